//! EC2: the adapter of machines, before the peer that has EC2's manners.

use std::time::Duration;

use runyard_core::model::{InstanceId, UsageClass};
use runyard_core::ports::{Compute as _, ComputeError};
use runyard_operator::aws::Ec2Compute;

use crate::ec2::benches::{options, order, spec, table};
use crate::wire::judge::{Came, Cell, config, judge};
use crate::wire::matrix::EC2;
use crate::wire::proxy::{Words, before};
use runyard_support::peer::{Peer, SUBNETS};

const XML: &str = "text/xml;charset=UTF-8";
const WORDS: Words = Words {
    internal: (
        500,
        XML,
        "<Response><Errors><Error><Code>InternalError</Code><Message>m</Message></Error></Errors></Response>",
    ),
    throttled: (
        503,
        XML,
        "<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>m</Message></Error></Errors></Response>",
    ),
    foreign: (200, "application/json", r#"{"Items":[]}"#),
};

fn letter<T>(outcome: &Result<T, ComputeError>) -> char {
    match outcome {
        Ok(_) => '.',
        Err(ComputeError::Unknown(_)) => 'u',
        Err(ComputeError::Throttled) => 't',
        Err(ComputeError::NoCapacity(_)) => 'c',
        Err(ComputeError::Refused(_)) => 'd',
        Err(ComputeError::TokenSpent(_)) => 's',
    }
}

async fn play(cell: Cell) -> Came {
    let peer = Peer::start();
    let table = table();
    let direct = Ec2Compute::connect(options(table.clone()), &config(peer.endpoint()).await);
    let launched =
        direct.launch(&order(&spec(&[SUBNETS[0].0]), "l-0", 1, UsageClass::OnDemand)).await.unwrap();
    let id: Vec<InstanceId> = vec![launched.machines[0].id.clone()];
    let name = match cell.call {
        "launch" => "Action=CreateFleet",
        "zones" => "Action=DescribeSubnets",
        "terminate" => "Action=TerminateInstances",
        "describe" | "list" => "Action=DescribeInstances",
        other => panic!("no call {other}"),
    };
    let wire = before(peer.endpoint(), name, cell.fault, cell.lasting.times(), &WORDS).await;
    // A fifth of the usual limits, so that silence is not waited for three quarters of a minute.
    let (attempt, call) = (Duration::from_secs(4), Duration::from_secs(9));
    let through = Ec2Compute::within(options(table), &config(&wire).await, attempt, call);
    let letter = match cell.call {
        "launch" => {
            letter(&through.launch(&order(&spec(&[SUBNETS[0].0]), "l-1", 1, UsageClass::OnDemand)).await)
        }
        "zones" => {
            let spec = spec(&[SUBNETS[0].0, SUBNETS[1].0]);
            letter(&through.launch(&order(&spec, "l-1", 1, UsageClass::OnDemand)).await)
        }
        "terminate" => letter(&through.terminate(&id).await),
        "describe" => letter(&through.describe(&id).await),
        _ => letter(&through.list().await),
    };
    let machines = peer.world().instances.len();
    // One machine was there; a launch brings one more, whatever happens to its answers.
    let launches = matches!(cell.call, "launch" | "zones");
    let most = if launches { 2 } else { 1 };
    let wrong = machines > most || launches && letter == '.' && machines != 2;
    Came { letter, wrong: wrong.then(|| format!("{cell:?}: {letter}, {machines} machines")) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_of_the_compute_provider_makes_of_every_fault_what_its_row_says() {
    judge(&EC2, async |cell| play(cell).await).await;
}
