//! Faults at EC2: a yard on the peer that has EC2's bad days, where each class meets one of them.

use runyard_core::model::{Instance, State};
use serde_json::{Value, json};

use crate::e2e::history;
use crate::e2e::waiting::{turn, until};
use crate::lifecycle::cloud::Cloud;
use crate::lifecycle::yard::Yard;
use crate::seeded::named::{Fault, Harm, Named, Part, REPOSITORY, asks};

const fn fault(part: Part, what: &'static str, cause: &'static str, harm: Harm) -> Fault {
    Fault { part, what, cause, harm }
}

/// All of this file, by the names of their classes.
pub(crate) const FAULTS: &[Fault] = &[
    fault(Part::Capacity, "quota", "quota", Harm::Launch),
    fault(Part::Capacity, "zone-is-full", "no-capacity", Harm::Launch),
    fault(Part::Rights, "spot-forbidden", "operator-policy", Harm::Launch),
    fault(Part::Rights, "no-profile", "machine-role", Harm::Launch),
    fault(Part::FirstBoot, "no-image", "image", Harm::Launch),
    fault(Part::Network, "no-subnet", "network-settings", Harm::Launch),
    fault(Part::Rights, "no-key", "volume-key", Harm::Machine),
    fault(Part::Capacity, "spot-goes", "spot-taken", Harm::Machine),
    fault(Part::Network, "no-agent", "agent-unreachable", Harm::Machine),
];

/// An image and an instance profile that are not there.
const NO_IMAGE: &str = "ami-00000000000000bad";
const NO_PROFILE: &str = "nobody";

/// What user data writes on the console where the agent cannot be fetched (`config/user-data.sh`).
const CONSOLE: &[u8] = b"Linux version 6.8\r\n\
      runyard: the first boot failed: the agent cannot be had from https://packages.example/runyard-agent\r\n\
      runyard: powers off: first boot failed while it fetched the agent (1)\r\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_at_ec2_are_named_by_debug() {
    let _turn = turn().await;
    let cloud = Cloud::with_bad_days();
    cloud.peer.as_ref().expect("the peer").rules(|rules| {
        let vcpus = "You have requested more vCPU capacity than your current vCPU limit of 0 allows for the instance bucket";
        rules.no_launch.insert("quota".into(), ("VcpuLimitExceeded", vcpus));
        rules.capacity.insert(("eu-central-1b".into(), "on-demand".into()), 0);
        rules.forbidden.insert("spot-instances-request");
        rules.no_images.insert(NO_IMAGE);
        rules.no_profiles.insert(NO_PROFILE);
        rules.consoles = CONSOLE.to_vec();
    });
    let launch = cloud.launch().await;
    let settings = [("RUNYARD_TIMING__CREATED", "40s")];
    let mut yard = Yard::with(cloud, 0, 2, &settings, &["no-agent"]).await;
    let pools: Vec<Value> = FAULTS.iter().map(|fault| pool(fault.what, &launch)).collect();
    let scratch = tempfile::tempdir().expect("a place for files");
    let file = scratch.path().join("pools.json");
    std::fs::write(&file, Value::from(pools).to_string()).expect("a file");
    yard.runs(&["apply", "-f", file.to_str().expect("UTF-8")]).await;
    for (run, fault) in (1..).zip(FAULTS) {
        yard.github.enqueue_run(REPOSITORY, Some(run), "build", Vec::new(), true).unwrap();
        asks(&yard.environment, fault.what, run).await;
    }
    ended(&yard, "no-key", ("Client.InvalidKMSKey.InvalidState", "The KMS key is in an incorrect state"))
        .await;
    ended(&yard, "spot-goes", ("Server.SpotInstanceTermination", "Instance terminated")).await;
    let mut named = Named::default();
    for (run, fault) in (1..).zip(FAULTS) {
        named.ask((&yard.environment, &yard.store), fault, (fault.what, run)).await;
    }
    yard.stop().await;
    named.judge(FAULTS.len());
}

fn pool(class: &str, usual: &Value) -> Value {
    let mut launch = usual.clone();
    let mut usage = "on-demand";
    match class {
        "zone-is-full" => launch["subnetIds"] = json!([runyard_support::peer::SUBNETS[1].0]),
        "spot-forbidden" => usage = "spot",
        "no-profile" => launch["instanceProfile"] = json!(NO_PROFILE),
        "no-image" => launch["ami"] = json!(NO_IMAGE),
        "no-subnet" => launch["subnetIds"] = json!(["subnet-00000000000000bad"]),
        _ => {}
    }
    json!({"resourceClass": class, "cpu": 2, "mmem": 4096, "max": 1, "usageClass": usage, "launch": launch})
}

/// EC2 ends the machine of a class, for this reason, once it is recorded.
async fn ended(yard: &Yard, class: &str, reason: (&'static str, &'static str)) {
    let machine = until(&format!("a machine of {class}"), async || {
        let seen = history::snapshot(&yard.store).await?;
        let of = |machine: &Instance| machine.facts.resource_class.as_str() == class;
        seen.all::<Instance>().into_iter().find(|machine| of(machine) && machine.state() != State::Terminated)
    })
    .await;
    let mut world = yard.cloud.peer.as_ref().expect("the peer").world();
    let one = world.instances.get_mut(machine.facts.instance_id.as_str()).expect("it is there");
    (one.state, one.reason) = ("terminated".into(), Some(reason));
}
