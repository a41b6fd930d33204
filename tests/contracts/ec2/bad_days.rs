//! What EC2 does on a bad day, one thing at a time, as only the peer can do it.

use std::collections::BTreeSet;
use std::sync::Arc;

use runyard_core::model::{InstanceId, UsageClass, last_console_line};
use runyard_core::ports::{Compute, ComputeError, LaunchOrder, Launched, Machine, MachineState};
use runyard_operator::aws::Ec2Compute;
use runyard_operator::limits::{Limited, Limits};

use crate::ec2::benches::{compute, options, order, sdk_config, spec, table};
use runyard_support::engine::nobody;
use runyard_support::peer::{Bucket, GROUPS, Instance, OWNER, Peer, Refused, SUBNETS, TWIN, VPC};

async fn yard() -> (Peer, Ec2Compute) {
    let peer = Peer::start();
    let compute = compute(peer.endpoint(), table()).await;
    (peer, compute)
}

fn wanted(count: u32) -> LaunchOrder {
    order(&spec(&SUBNETS.map(|(id, _)| id)), "l-1", count, UsageClass::OnDemand)
}

fn spot(count: u32) -> LaunchOrder {
    order(&spec(&[SUBNETS[0].0]), "l-1", count, UsageClass::Spot)
}

fn ids(machines: &[Machine]) -> Vec<InstanceId> {
    machines.iter().map(|machine| machine.id.clone()).collect()
}

fn zones(machines: &[Machine]) -> BTreeSet<&str> {
    machines.iter().map(|machine| machine.zone.as_str()).collect()
}

#[tokio::test]
async fn a_machines_arn_names_its_owner_and_region() {
    let (_peer, compute) = yard().await;
    let machines = compute.launch(&wanted(1)).await.unwrap().machines;
    let wanted = format!("arn:aws:ec2:eu-central-1:{OWNER}:instance/{}", machines[0].id);
    assert_eq!(machines[0].arn.as_str(), wanted);
}

#[tokio::test]
async fn a_full_zone_is_made_up_for_by_the_next_and_told_of() {
    let (peer, compute) = yard().await;
    peer.rules(|rules| {
        rules.capacity.insert(("eu-central-1a".into(), "on-demand".into()), 1);
    });
    let Launched { machines, shortfalls } = compute.launch(&wanted(3)).await.unwrap();
    assert_eq!(zones(&machines), ["eu-central-1a", "eu-central-1b"].into());
    assert_eq!(machines.len(), 3);
    assert_eq!(shortfalls.len(), 1);
    assert!(shortfalls[0].message.contains("eu-central-1a"), "{shortfalls:?}");
}

#[tokio::test]
async fn a_zone_that_had_none_is_left_out_of_the_next_launch_alike_and_not_of_others() {
    let (peer, compute) = yard().await;
    peer.rules(|rules| {
        rules.capacity.insert(("eu-central-1a".into(), "on-demand".into()), 0);
    });
    compute.launch(&wanted(1)).await.unwrap();
    assert_eq!(subnets_asked_for(&peer).len(), 3);
    let another = |usage, name| order(&spec(&SUBNETS.map(|(id, _)| id)), name, 1, usage);
    compute.launch(&another(UsageClass::OnDemand, "l-2")).await.unwrap();
    assert_eq!(subnets_asked_for(&peer), [SUBNETS[1].0, SUBNETS[2].0]);
    compute.launch(&another(UsageClass::Spot, "l-3")).await.unwrap();
    assert_eq!(subnets_asked_for(&peer).len(), 3, "spot machines are had from other pools");
}

#[tokio::test]
async fn spot_beyond_the_limit_is_a_lack_and_what_was_had_is_kept() {
    let (peer, compute) = yard().await;
    peer.rules(|rules| rules.spot_limit = Some(2));
    let Launched { machines, shortfalls } = compute.launch(&spot(3)).await.unwrap();
    assert_eq!(machines.len(), 2);
    assert_eq!(shortfalls[0].code, "MaxSpotInstanceCountExceeded");
    let mut next = spot(1);
    next.launch.client_token = "l-2-1".into();
    let outcome = compute.launch(&next).await;
    assert!(matches!(&outcome, Err(ComputeError::NoCapacity(why)) if why.contains("MaxSpot")), "{outcome:?}");
}

#[tokio::test]
async fn a_spot_launch_that_the_policy_forbids_is_a_refusal_within_a_success() {
    let (peer, compute) = yard().await;
    peer.rules(|rules| {
        rules.forbidden.insert("spot-instances-request");
    });
    let outcome = compute.launch(&spot(1)).await;
    let told = |why: &str| why.contains("UnauthorizedOperation") && why.contains("spot-instances-request");
    assert!(matches!(&outcome, Err(ComputeError::Refused(why)) if told(why)), "{outcome:?}");
    assert_eq!(peer.calls("CreateFleet"), 1, "a success is not asked for again");
    let mut next = wanted(1);
    next.launch.client_token = "l-2-1".into();
    assert_eq!(compute.launch(&next).await.unwrap().machines.len(), 1, "on demand touches no such thing");
}

#[tokio::test]
async fn a_launch_whose_answer_was_lost_brings_its_machines_once() {
    let (peer, compute) = yard().await;
    peer.rules(|rules| rules.lost.push_back("CreateFleet"));
    let machines = compute.launch(&wanted(2)).await.unwrap().machines;
    assert_eq!(machines.len(), 2);
    assert_eq!(peer.calls("CreateFleet"), 2, "asked again after the lost answer, by the same token");
    assert_eq!(peer.world().instances.len(), 2);
}

/// The call is repeated by the same token while EC2 may still be at work on the first.
#[tokio::test]
async fn a_launch_that_is_not_answered_in_time_is_repeated_and_brings_its_machines_once() {
    let peer = Peer::start();
    let (attempt, call) = (std::time::Duration::from_secs(1), std::time::Duration::from_secs(60));
    let config = sdk_config(peer.endpoint()).await;
    let compute = Ec2Compute::within(options(table()), &config, attempt, call);
    peer.rules(|rules| rules.silent.push_back("CreateFleet"));
    let machines = compute.launch(&wanted(2)).await.unwrap().machines;
    assert_eq!(machines.len(), 2);
    let world = peer.world();
    let fleets = world.calls.iter().filter(|(action, _)| action == "CreateFleet");
    assert_eq!(fleets.clone().count(), 2);
    let tokens: BTreeSet<_> = fleets.map(|(_, asked)| asked.text("ClientToken")).collect();
    assert_eq!((tokens.len(), world.instances.len()), (1, 2));
}

#[tokio::test]
async fn a_restarted_operator_asks_again_with_the_same_call_and_gets_the_same_machines() {
    let peer = Peer::start();
    let table = table();
    let before = compute(peer.endpoint(), table.clone()).await;
    let first = before.launch(&wanted(2)).await.unwrap().machines;
    drop(before);
    let after = compute(peer.endpoint(), table).await;
    let again = after.launch(&wanted(2)).await.unwrap().machines;
    assert_eq!(ids(&first), ids(&again));
    assert_eq!(peer.world().instances.len(), 2);
}

#[tokio::test]
async fn a_launch_asked_again_after_its_class_changed_finds_what_it_brought_by_its_tags() {
    let (peer, compute) = yard().await;
    let first = compute.launch(&wanted(2)).await.unwrap().machines;
    let mut changed = wanted(2);
    changed.spec.launch.subnet_ids.pop();
    let again = compute.launch(&changed).await.unwrap().machines;
    assert_eq!(ids(&first), ids(&again));
    assert_eq!(peer.world().instances.len(), 2);
}

#[tokio::test]
async fn a_changed_template_is_no_other_launch() {
    let (peer, compute) = yard().await;
    let first = compute.launch(&wanted(2)).await.unwrap().machines;
    let mut changed = wanted(2);
    changed.spec.launch.volume_gib = Some(40);
    let again = compute.launch(&changed).await.unwrap().machines;
    assert_eq!(ids(&first), ids(&again));
    assert_eq!(peer.calls("CreateLaunchTemplateVersion"), 1);
}

#[tokio::test]
async fn a_spent_token_that_brought_nothing_is_told_as_spent() {
    let (peer, compute) = yard().await;
    compute.launch(&wanted(1)).await.unwrap();
    peer.world().instances.clear();
    let outcome = compute.launch(&wanted(2)).await;
    assert!(matches!(outcome, Err(ComputeError::TokenSpent(_))), "{outcome:?}");
}

/// New machines are listed one after the other, and whoever is never listed is nobody's.
#[tokio::test]
async fn a_part_of_what_a_spent_or_silent_token_brought_is_no_answer() {
    let (peer, compute) = yard().await;
    compute.launch(&wanted(2)).await.unwrap();
    peer.world().instances.pop_last();
    let mut changed = wanted(2);
    changed.spec.launch.subnet_ids.pop();
    let outcome = compute.launch(&changed).await;
    let Err(ComputeError::TokenSpent(why)) = &outcome else { panic!("{outcome:?}") };
    assert!(why.ends_with("; 1 of 2 machines carry its tags"), "{why}");
    peer.rules(|rules| rules.silent_replays = true);
    let outcome = compute.launch(&wanted(2)).await;
    let Err(ComputeError::Unknown(why)) = &outcome else { panic!("{outcome:?}") };
    assert!(why.ends_with("; 1 of 2 machines carry its tags"), "{why}");
}

#[tokio::test]
async fn a_replay_that_names_no_machines_finds_them_by_their_tags() {
    let (peer, compute) = yard().await;
    peer.rules(|rules| rules.silent_replays = true);
    let first = compute.launch(&wanted(2)).await.unwrap().machines;
    let again = compute.launch(&wanted(2)).await.unwrap().machines;
    assert_eq!(ids(&first), ids(&again));
    peer.world().instances.clear();
    let outcome = compute.launch(&wanted(2)).await;
    assert!(matches!(outcome, Err(ComputeError::Unknown(_))), "nothing certain: {outcome:?}");
}

#[tokio::test]
async fn a_machine_ec2_does_not_know_yet_is_waited_for() {
    let (peer, compute) = yard().await;
    peer.rules(|rules| rules.unseen_for = 3);
    let machines = compute.launch(&wanted(2)).await.unwrap().machines;
    assert_eq!(machines.len(), 2);
    assert_eq!(peer.calls("DescribeInstances"), 4);
}

#[tokio::test]
async fn a_machine_ec2_never_tells_of_leaves_the_launch_uncertain() {
    let peer = Peer::start();
    let mut options = options(table());
    options.patience = std::time::Duration::from_millis(300);
    let compute = Ec2Compute::connect(options, &sdk_config(peer.endpoint()).await);
    peer.rules(|rules| rules.unseen_for = u32::MAX);
    let outcome = compute.launch(&wanted(1)).await;
    assert!(matches!(outcome, Err(ComputeError::Unknown(_))), "{outcome:?}");
    assert_eq!(compute.list().await, Ok(Vec::new()));
    peer.rules(|rules| rules.unseen_for = 0);
    assert_eq!(compute.launch(&wanted(1)).await.unwrap().machines.len(), 1);
    assert_eq!(peer.world().instances.len(), 1);
}

#[tokio::test]
async fn a_launch_whose_machines_may_not_be_looked_at_is_uncertain_and_not_over() {
    let peer = Peer::start();
    let mut options = options(table());
    options.patience = std::time::Duration::ZERO;
    let compute = Ec2Compute::connect(options, &sdk_config(peer.endpoint()).await);
    let refused = Refused::new("UnauthorizedOperation", "You are not authorized to perform this operation.");
    peer.rules(|rules| rules.refused.push_back(("DescribeInstances", refused)));
    let outcome = compute.launch(&wanted(1)).await;
    assert!(matches!(outcome, Err(ComputeError::Unknown(_))), "{outcome:?}");
    assert_eq!(compute.launch(&wanted(1)).await.unwrap().machines.len(), 1);
    assert_eq!(peer.world().instances.len(), 1);
}

#[tokio::test]
async fn late_tags_do_not_hide_what_a_launch_brought() {
    let (peer, compute) = yard().await;
    peer.rules(|rules| rules.untagged_for = 2);
    let machines = compute.launch(&wanted(1)).await.unwrap().machines;
    assert_eq!(machines[0].launch.as_ref().map(|launch| launch.as_str()), Some("l-1"));
    assert_eq!(compute.list().await, Ok(Vec::new()), "not ours until its tags say so");
    assert_eq!(ids(&compute.list().await.unwrap()), ids(&machines));
}

#[tokio::test]
async fn a_machine_stays_pending_as_long_as_ec2_says_so() {
    let (peer, compute) = yard().await;
    peer.rules(|rules| rules.pending_for = 2);
    let machines = compute.launch(&wanted(1)).await.unwrap().machines;
    assert_eq!(machines[0].state, MachineState::Pending);
    let id = &machines[0].id;
    let mut told = Vec::new();
    for _ in 0..2 {
        told.push(compute.describe(std::slice::from_ref(id)).await.unwrap()[id]);
    }
    assert_eq!(told, [MachineState::Pending, MachineState::Running]);
}

#[tokio::test]
async fn a_list_is_read_through_all_its_pages() {
    let (peer, compute) = yard().await;
    peer.rules(|rules| rules.page = Some(2));
    let machines = compute.launch(&wanted(7)).await.unwrap().machines;
    assert_eq!(machines.len(), 7);
    assert_eq!(ids(&compute.list().await.unwrap()), ids(&machines));
}

#[tokio::test]
async fn a_list_that_breaks_off_is_an_error_and_no_shorter_list() {
    let (peer, compute) = yard().await;
    peer.rules(|rules| rules.page = Some(1));
    compute.launch(&wanted(2)).await.unwrap();
    let refused =
        || Refused::new("UnauthorizedOperation", "You are not authorized to perform this operation.");
    peer.rules(|rules| rules.refused.push_back(("DescribeInstances", refused())));
    let outcome = compute.list().await;
    assert!(matches!(outcome, Err(ComputeError::Refused(_))), "{outcome:?}");
}

#[tokio::test]
async fn a_machine_ec2_has_forgotten_is_left_out() {
    let (peer, compute) = yard().await;
    let machines = compute.launch(&wanted(2)).await.unwrap().machines;
    compute.terminate(&ids(&machines)[..1]).await.unwrap();
    peer.world().instances.remove(machines[0].id.as_str());
    let told = compute.describe(&ids(&machines)).await.unwrap();
    assert_eq!(told.keys().collect::<Vec<_>>(), [&machines[1].id]);
    compute.terminate(&ids(&machines)).await.unwrap();
}

#[tokio::test]
async fn one_machine_that_may_not_be_ended_keeps_no_other_alive_and_is_told_of() {
    let (peer, compute) = yard().await;
    let machines = compute.launch(&wanted(9)).await.unwrap().machines;
    let kept = machines[4].id.to_string();
    peer.rules(|rules| rules.protected.insert(kept.clone()).then_some(()).expect("a fresh id"));
    let outcome = compute.terminate(&ids(&machines)).await;
    assert!(matches!(&outcome, Err(ComputeError::Refused(why)) if why.contains(&kept)), "{outcome:?}");
    let alive: Vec<_> =
        peer.world().instances.iter().filter(|(_, one)| one.alive()).map(|(id, _)| id.clone()).collect();
    assert_eq!(alive, [kept]);
}

#[tokio::test]
async fn a_malformed_id_among_good_ones_ends_the_good_ones() {
    let (peer, compute) = yard().await;
    let machines = compute.launch(&wanted(2)).await.unwrap().machines;
    let mut all = ids(&machines);
    all.insert(1, InstanceId::parse("x-1").unwrap());
    compute.terminate(&all).await.unwrap();
    assert!(peer.world().instances.values().all(|one| !one.alive()));
}

#[tokio::test]
async fn a_lost_answer_to_an_end_is_no_error() {
    let (peer, compute) = yard().await;
    let machines = compute.launch(&wanted(1)).await.unwrap().machines;
    peer.rules(|rules| rules.lost.push_back("TerminateInstances"));
    compute.terminate(&ids(&machines)).await.unwrap();
}

#[tokio::test]
async fn a_bucket_that_fills_again_is_waited_for_and_one_that_does_not_is_told() {
    let (peer, compute) = yard().await;
    compute.launch(&wanted(1)).await.unwrap();
    peer.rules(|rules| rules.bucket = Some(Bucket::empty(5.0, 20.0)));
    assert_eq!(compute.list().await.unwrap().len(), 1);
    peer.rules(|rules| rules.bucket = Some(Bucket::empty(5.0, 0.0)));
    assert_eq!(compute.list().await, Err(ComputeError::Throttled));
    let mut next = wanted(1);
    next.launch.client_token = "l-2-1".into();
    assert_eq!(compute.launch(&next).await, Err(ComputeError::Throttled));
    assert_eq!(peer.world().instances.len(), 1);
}

/// The line before EC2 repeated what the SDK had repeated: thirty calls of one.
#[tokio::test]
async fn a_call_that_is_throttled_for_good_is_repeated_by_one_layer_alone() {
    let (peer, compute) = yard().await;
    let machines = compute.launch(&wanted(1)).await.unwrap().machines;
    let mut next = wanted(1);
    next.launch.client_token = "l-2-1".into();
    let before = peer.world().calls.len();
    peer.rules(|rules| rules.bucket = Some(Bucket::empty(5.0, 0.0)));
    let limited = Limited::new(Arc::new(compute), &Limits::default());
    let ids = ids(&machines);
    let (listed, ended, launched) =
        tokio::join!(limited.list(), limited.terminate(&ids), limited.launch(&next));
    assert_eq!(listed, Err(ComputeError::Throttled));
    assert_eq!(ended, Err(ComputeError::Throttled));
    assert_eq!(launched, Err(ComputeError::Throttled));
    let calls: Vec<String> =
        peer.world().calls.iter().skip(before).map(|(action, _)| action.clone()).collect();
    for action in ["DescribeInstances", "TerminateInstances", "CreateFleet"] {
        let attempts = calls.iter().filter(|call| *call == action).count();
        assert_eq!(attempts, 6, "{action} of {calls:?}");
    }
    assert_eq!(calls.len(), 18, "{calls:?}");
}

#[tokio::test]
async fn an_interrupted_machine_is_told_as_it_goes() {
    let (peer, compute) = yard().await;
    let machines = compute.launch(&spot(1)).await.unwrap().machines;
    let id = &machines[0].id;
    for (state, wanted) in [
        ("shutting-down", MachineState::ShuttingDown),
        ("terminated", MachineState::Terminated),
        ("stopped", MachineState::Stopped),
    ] {
        peer.world().instances.get_mut(id.as_str()).unwrap().state = state.into();
        assert_eq!(compute.describe(std::slice::from_ref(id)).await.unwrap()[id], wanted);
    }
}

#[tokio::test]
async fn a_machine_that_never_began_is_told_with_ec2s_reason() {
    let (peer, compute) = yard().await;
    let machines = compute.launch(&wanted(3)).await.unwrap().machines;
    let reasons = [
        Some(("Client.InternalError", "Client error on launch")),
        Some(("Client.InstanceInitiatedShutdown", "Instance initiated shutdown")),
        None,
    ];
    for (machine, reason) in machines.iter().zip(reasons) {
        let mut world = peer.world();
        let one = world.instances.get_mut(machine.id.as_str()).unwrap();
        (one.state, one.reason) = ("terminated".into(), reason);
        assert_eq!(compute.why_ended(&machine.id), None, "not told yet");
    }
    compute.describe(&ids(&machines)[..1]).await.unwrap();
    let told = |at: usize| compute.why_ended(&machines[at].id).map(|ending| (ending.why, ending.never_began));
    assert_eq!(told(0), Some(("Client.InternalError: Client error on launch".into(), true)));
    assert_eq!(told(1), None);
    compute.list().await.unwrap();
    assert_eq!(
        told(1),
        Some(("Client.InstanceInitiatedShutdown: Instance initiated shutdown".into(), false))
    );
    assert_eq!(told(2), None, "EC2 said nothing");
}

/// A machine with this on its console.
async fn with_console(peer: &Peer, compute: &Ec2Compute, console: &[u8]) -> InstanceId {
    let id = compute.launch(&wanted(1)).await.unwrap().machines[0].id.clone();
    peer.world().instances.get_mut(id.as_str()).unwrap().console = console.to_vec();
    id
}

fn change(peer: &Peer, id: &InstanceId, change: impl FnOnce(&mut Instance)) {
    change(peer.world().instances.get_mut(id.as_str()).unwrap());
}

#[tokio::test]
async fn the_screen_of_a_machine_that_boots_is_read_at_once() {
    let (peer, compute) = yard().await;
    let id = with_console(&peer, &compute, b"kernel\r\nrunyard: first boot installs the agent\r\n").await;
    let console = compute.console(&id).await.unwrap().unwrap();
    assert_eq!(last_console_line(&console), Some("first boot installs the agent".into()));
    assert_eq!(peer.calls("GetConsoleOutput"), 1);
}

#[tokio::test]
async fn an_ended_machine_has_no_console_until_ec2_has_posted_it() {
    let (peer, compute) = yard().await;
    let id = with_console(&peer, &compute, b"runyard: powers off: no route\n").await;
    change(&peer, &id, |one| one.state = "terminated".into());
    assert_eq!(compute.console(&id).await, Ok(None));
    change(&peer, &id, |one| one.posted = true);
    assert_eq!(compute.console(&id).await, Ok(Some("runyard: powers off: no route\n".into())));
}

#[tokio::test]
async fn of_types_whose_screen_cannot_be_looked_at_what_was_posted_is_read() {
    let (peer, compute) = yard().await;
    peer.rules(|rules| rules.no_screens = true);
    let id = with_console(&peer, &compute, b"runyard: hello\n").await;
    assert_eq!(compute.console(&id).await, Ok(None));
    change(&peer, &id, |one| one.posted = true);
    assert_eq!(compute.console(&id).await, Ok(Some("runyard: hello\n".into())));
}

#[tokio::test]
async fn a_console_is_the_last_64_kibibytes_whatever_is_on_it() {
    let (peer, compute) = yard().await;
    let mut written = vec![0xff; 100 << 10];
    written.extend(b"\nrunyard: at the end\n");
    let id = with_console(&peer, &compute, &written).await;
    let console = compute.console(&id).await.unwrap().unwrap();
    assert_eq!(console.chars().count(), 64 << 10);
    assert_eq!(last_console_line(&console), Some("at the end".into()));
}

#[tokio::test]
async fn a_machine_ec2_has_forgotten_has_no_console_and_a_refusal_is_told() {
    let (peer, compute) = yard().await;
    assert_eq!(compute.console(&InstanceId::parse("i-0123456789abcdef9").unwrap()).await, Ok(None));
    let id = with_console(&peer, &compute, b"runyard: hello\n").await;
    let refused =
        || Refused::new("UnauthorizedOperation", "You are not authorized to perform this operation.");
    peer.rules(|rules| {
        rules.refused.extend([("GetConsoleOutput", refused()), ("GetConsoleOutput", refused())])
    });
    let outcome = compute.console(&id).await;
    assert!(matches!(outcome, Err(ComputeError::Refused(_))), "{outcome:?}");
}

#[tokio::test]
async fn a_subnet_that_is_gone_is_refused_and_among_others_made_up_for() {
    let (_peer, compute) = yard().await;
    let gone = "subnet-0000000000000000f";
    let order_in = |subnets: &[&str], name| order(&spec(subnets), name, 1, UsageClass::OnDemand);
    let outcome = compute.launch(&order_in(&[gone], "l-1")).await;
    assert!(matches!(&outcome, Err(ComputeError::Refused(why)) if why.contains(gone)), "{outcome:?}");
    let Launched { machines, shortfalls } =
        compute.launch(&order_in(&[gone, SUBNETS[1].0], "l-2")).await.unwrap();
    assert_eq!((machines.len(), shortfalls[0].code.as_str()), (1, "InvalidSubnetID.NotFound"));
}

fn subnets_asked_for(peer: &Peer) -> Vec<String> {
    let world = peer.world();
    let (_, asked) = world.calls.iter().rfind(|(action, _)| action == "CreateFleet").unwrap();
    let config = asked.list("LaunchTemplateConfigs")[0].clone();
    config.list("Overrides").iter().filter_map(|one| one.text("SubnetId").map(str::to_owned)).collect()
}

#[tokio::test]
async fn two_subnets_of_a_zone_make_one_launch_in_the_one_with_most_room() {
    let (peer, compute) = yard().await;
    peer.rules(|rules| {
        rules.free_addresses = [(SUBNETS[0].0, 3), (TWIN.0, 200)].into();
    });
    let both = |name| order(&spec(&[SUBNETS[0].0, SUBNETS[1].0, TWIN.0]), name, 1, UsageClass::OnDemand);
    assert_eq!(compute.launch(&both("l-1")).await.unwrap().machines.len(), 1);
    assert_eq!(subnets_asked_for(&peer), [TWIN.0, SUBNETS[1].0]);
    peer.rules(|rules| rules.free_addresses = [(SUBNETS[0].0, 200), (TWIN.0, 0)].into());
    compute.launch(&both("l-2")).await.unwrap();
    assert_eq!(subnets_asked_for(&peer), [TWIN.0, SUBNETS[1].0], "known for a minute");
    assert_eq!(peer.calls("DescribeSubnets"), 1);
    let restarted = Ec2Compute::connect(options(table()), &sdk_config(peer.endpoint()).await);
    restarted.launch(&both("l-3")).await.unwrap();
    assert_eq!(subnets_asked_for(&peer), [SUBNETS[0].0, SUBNETS[1].0]);
}

#[tokio::test]
async fn a_role_that_may_not_ask_for_zones_launches_as_before() {
    let (peer, compute) = yard().await;
    let refused = Refused::new("UnauthorizedOperation", "You are not authorized to perform this operation.");
    peer.rules(|rules| rules.refused.push_back(("DescribeSubnets", refused)));
    assert_eq!(compute.launch(&wanted(1)).await.unwrap().machines.len(), 1);
    assert_eq!(subnets_asked_for(&peer).len(), 3);
}

#[tokio::test]
async fn a_class_of_one_subnet_asks_for_no_zones() {
    let (peer, compute) = yard().await;
    compute.launch(&spot(1)).await.unwrap();
    assert_eq!(peer.calls("DescribeSubnets"), 0);
}

#[tokio::test]
async fn the_network_of_a_class_is_told_with_what_is_missing_from_it() {
    let (peer, compute) = yard().await;
    peer.rules(|rules| rules.free_addresses = [(SUBNETS[1].0, 7)].into());
    let mut spec = spec(&[SUBNETS[1].0, "subnet-0000000000000000f"]);
    spec.launch.security_group_ids =
        vec![GROUPS[0].0.into(), GROUPS[1].0.into(), "sg-0000000000000000f".into()];
    let network = compute.network(&spec).await.unwrap();
    let told: Vec<_> = network
        .subnets
        .iter()
        .map(|one| (one.id.as_str(), one.zone.as_str(), one.free, one.vpc.as_str()))
        .collect();
    assert_eq!(told, [(SUBNETS[1].0, SUBNETS[1].1, 7, VPC)]);
    let groups: Vec<_> = network.groups.iter().map(|(id, vpc)| (id.as_str(), vpc.as_str())).collect();
    assert_eq!(groups, GROUPS);
}

#[tokio::test]
async fn types_are_chosen_by_size_architecture_and_globs() {
    let (_peer, compute) = yard().await;
    for (name, cpu, architecture, globs, wanted) in [
        ("l-1", 2, "x86_64", vec![], "m7i.large"),
        ("l-2", 2, "arm64", vec![], "c7g.large"),
        ("l-3", 3, "x86_64", vec![], "c7i.xlarge"),
        ("l-4", 2, "x86_64", vec!["t3.*", "m7i.*"], "t3.large"),
        ("l-5", 2, "x86_64", vec!["m7a.*"], "m7a.xlarge"),
        ("l-6", 16, "x86_64", vec!["m7i.metal*"], "m7i.metal-24xl"),
    ] {
        let mut order = order(&spec(&[]), name, 1, UsageClass::OnDemand);
        order.spec.cpu = cpu;
        order.spec.launch.architecture = Some(architecture.into());
        order.types.0 = globs.into_iter().map(str::to_owned).collect();
        // Of a class that lets requests have any size.
        order.spec.request_types.0 = vec!["*".into()];
        let machines = compute.launch(&order).await.unwrap().machines;
        assert_eq!(machines[0].instance_type, wanted, "{name}");
    }
}

#[tokio::test]
async fn more_than_a_launch_may_ask_for_is_refused_before_ec2_is() {
    let (peer, compute) = yard().await;
    for count in [0, 41] {
        let outcome = compute.launch(&wanted(count)).await;
        assert!(matches!(outcome, Err(ComputeError::Refused(_))), "{outcome:?}");
    }
    assert!(peer.world().calls.is_empty());
    assert_eq!(compute.launch(&wanted(40)).await.unwrap().machines.len(), 40);
}

#[tokio::test]
async fn where_nobody_listens_nothing_is_certain() {
    let (endpoint, _held) = nobody();
    let compute: Arc<dyn Compute> = Arc::new(compute(&endpoint, table()).await);
    let outcome = compute.launch(&wanted(1)).await;
    assert!(matches!(outcome, Err(ComputeError::Unknown(_))), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn silence_is_given_20_s_an_attempt_and_45_s_in_all() {
    // Its kernel accepts, and nobody ever answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let compute = compute(&endpoint, table()).await;
    let started = tokio::time::Instant::now();
    let outcome = compute.list().await;
    assert!(matches!(&outcome, Err(ComputeError::Unknown(_))), "{outcome:?}");
    let waited = started.elapsed();
    assert!((45.0..45.1).contains(&waited.as_secs_f64()), "{waited:?}");
    silent.set_nonblocking(true).unwrap();
    let attempts = std::iter::from_fn(|| silent.accept().ok()).count();
    assert_eq!(attempts, 3, "at 0 s, soon after 20 s and soon after 40 s");
}
