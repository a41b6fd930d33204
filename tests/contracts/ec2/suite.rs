//! What every compute provider does.

use std::collections::{BTreeMap, BTreeSet};

use runyard_core::model::{InstanceId, UsageClass};
use runyard_core::ports::{Compute as _, ComputeError, Launched, Machine};

use crate::ec2::benches::Bench;

macro_rules! on_every_engine {
    ($($test:ident),+ $(,)?) => {
        on_every_engine!(@ fake Fake $($test)+);
        on_every_engine!(@ peer Peer $($test)+);
        on_every_engine!(@ moto Moto $($test)+);
        on_every_engine!(@ ministack Ministack $($test)+);
    };
    (@ $module:ident $bench:ident $($test:ident)+) => {
        mod $module {
            $(#[tokio::test] async fn $test() { super::$test($crate::ec2::benches::Benches::$bench.fresh().await).await })+
        }
    };
}

on_every_engine!(
    a_launch_brings_machines_that_say_what_they_are_for,
    a_launched_machine_is_listed_and_described_until_it_ends,
    ending_what_is_gone_or_never_was_is_no_error,
    what_nobody_knows_is_left_out_of_a_description,
    a_token_used_again_brings_the_same_machines_and_no_others,
    a_token_used_for_another_order_brings_no_others,
    launches_do_not_mix,
    a_spot_machine_is_known_as_one,
    a_launch_that_comes_short_keeps_what_it_has_and_says_why,
    a_launch_that_brings_nothing_is_a_lack,
    another_tables_machines_are_not_listed,
);

fn ids(machines: &[Machine]) -> BTreeSet<InstanceId> {
    machines.iter().map(|machine| machine.id.clone()).collect()
}

async fn launched(bench: &Bench, name: &str, count: u32) -> Vec<Machine> {
    let order = bench.order(name, count, UsageClass::OnDemand);
    let Launched { machines, shortfalls } = bench.compute.launch(&order).await.unwrap();
    assert_eq!((machines.len(), shortfalls), (count as usize, Vec::new()));
    machines
}

async fn listed(bench: &Bench) -> BTreeMap<InstanceId, Machine> {
    bench.compute.list().await.unwrap().into_iter().map(|machine| (machine.id.clone(), machine)).collect()
}

async fn a_launch_brings_machines_that_say_what_they_are_for(bench: Bench) {
    assert!(bench.compute.keeps_inventory());
    let machines = launched(&bench, "l-1", 3).await;
    assert_eq!(ids(&machines).len(), 3);
    let known = listed(&bench).await;
    for machine in &machines {
        assert_eq!(machine.arn.instance_id(), machine.id.as_str());
        assert!(machine.state.alive(), "{machine:?}");
        let told = &known[&machine.id];
        for told in [machine, told] {
            assert_eq!(told.class.as_ref().map(|class| class.as_str()), Some("linux"));
            assert_eq!(told.launch.as_ref().map(|launch| launch.as_str()), Some("l-1"));
            assert_eq!((told.attempt, told.usage_class), (1, UsageClass::OnDemand));
            assert!(!told.instance_type.is_empty() && !told.zone.is_empty());
        }
        assert_eq!((&told.arn, &told.instance_type), (&machine.arn, &machine.instance_type));
    }
}

async fn a_launched_machine_is_listed_and_described_until_it_ends(bench: Bench) {
    let machines = launched(&bench, "l-1", 2).await;
    let all: Vec<_> = machines.iter().map(|machine| machine.id.clone()).collect();
    let told = bench.compute.describe(&all).await.unwrap();
    assert!(all.iter().all(|id| told[id].alive()), "{told:?}");
    bench.compute.terminate(&all[..1]).await.unwrap();
    let told = bench.compute.describe(&all).await.unwrap();
    assert!(told.get(&all[0]).is_none_or(|state| !state.alive()), "{told:?}");
    assert!(told[&all[1]].alive(), "{told:?}");
    let alive: BTreeSet<_> =
        listed(&bench).await.into_values().filter(|machine| machine.state.alive()).map(|m| m.id).collect();
    assert_eq!(alive, all[1..].iter().cloned().collect());
}

fn unknown() -> InstanceId {
    InstanceId::parse("i-0123456789abcdef9").expect("a valid id")
}

async fn ending_what_is_gone_or_never_was_is_no_error(bench: Bench) {
    let machines = launched(&bench, "l-1", 3).await;
    let mut all: Vec<_> = machines.iter().map(|machine| machine.id.clone()).collect();
    all.insert(1, unknown());
    bench.compute.terminate(&all).await.unwrap();
    bench.compute.terminate(&all).await.unwrap();
    bench.compute.terminate(&[]).await.unwrap();
    let alive = listed(&bench).await.into_values().filter(|machine| machine.state.alive()).count();
    assert_eq!(alive, 0, "the unknown one keeps no other from its end");
}

async fn what_nobody_knows_is_left_out_of_a_description(bench: Bench) {
    let machines = launched(&bench, "l-1", 1).await;
    let told = bench.compute.describe(&[unknown(), machines[0].id.clone()]).await.unwrap();
    assert_eq!(told.keys().cloned().collect::<BTreeSet<_>>(), ids(&machines));
    assert_eq!(bench.compute.describe(&[]).await, Ok(BTreeMap::new()));
}

async fn a_token_used_again_brings_the_same_machines_and_no_others(bench: Bench) {
    let first = launched(&bench, "l-1", 2).await;
    let again = launched(&bench, "l-1", 2).await;
    assert_eq!(ids(&first) == ids(&again), bench.can.replay);
    assert_eq!(listed(&bench).await.len() == 2, bench.can.replay);
}

async fn a_token_used_for_another_order_brings_no_others(bench: Bench) {
    let first = launched(&bench, "l-1", 2).await;
    let other = bench.order("l-1", 3, UsageClass::OnDemand);
    let outcome = bench.compute.launch(&other).await;
    let none_new = match &outcome {
        Ok(launched) => ids(&launched.machines) == ids(&first),
        Err(error) => matches!(error, ComputeError::TokenSpent(_)),
    };
    assert_eq!(none_new, bench.can.replay, "{outcome:?}");
    assert_eq!(listed(&bench).await.len() == 2, bench.can.replay);
}

async fn launches_do_not_mix(bench: Bench) {
    let (first, second) = (launched(&bench, "l-1", 2).await, launched(&bench, "l-2", 2).await);
    assert!(ids(&first).is_disjoint(&ids(&second)));
    let known = listed(&bench).await;
    for (machines, name) in [(first, "l-1"), (second, "l-2")] {
        for id in ids(&machines) {
            assert_eq!(known[&id].launch.as_ref().map(|launch| launch.as_str()), Some(name));
        }
    }
}

async fn a_spot_machine_is_known_as_one(bench: Bench) {
    let order = bench.order("l-1", 1, UsageClass::Spot);
    let machines = bench.compute.launch(&order).await.unwrap().machines;
    assert_eq!(machines[0].usage_class, UsageClass::Spot);
    let told = listed(&bench).await[&machines[0].id].usage_class;
    assert_eq!(told == UsageClass::Spot, bench.can.spot);
}

async fn a_launch_that_comes_short_keeps_what_it_has_and_says_why(bench: Bench) {
    if !bench.can.lack {
        // Nothing comes short here; that a full launch is told as one is all there is to see.
        launched(&bench, "l-1", 5).await;
        return;
    }
    bench.room_for(2);
    let order = bench.order("l-1", 5, UsageClass::OnDemand);
    let Launched { machines, shortfalls } = bench.compute.launch(&order).await.unwrap();
    assert_eq!(machines.len(), 2);
    let codes: Vec<_> = shortfalls.iter().map(|short| short.code.as_str()).collect();
    assert_eq!(codes, ["InsufficientInstanceCapacity"]);
}

async fn a_launch_that_brings_nothing_is_a_lack(bench: Bench) {
    if !bench.can.lack {
        launched(&bench, "l-1", 1).await;
        return;
    }
    bench.room_for(0);
    let outcome = bench.compute.launch(&bench.order("l-1", 2, UsageClass::OnDemand)).await;
    let Err(ComputeError::NoCapacity(why)) = &outcome else { panic!("{outcome:?}") };
    assert!(why.contains("InsufficientInstanceCapacity"), "{why}");
    assert!(listed(&bench).await.is_empty());
}

async fn another_tables_machines_are_not_listed(bench: Bench) {
    let ours = launched(&bench, "l-1", 1).await;
    let Some(other) = bench.neighbour().await else { return };
    let theirs = other.launch(&bench.order("l-1", 1, UsageClass::OnDemand)).await;
    // The one token of an account is the other table's too; what its launch is told of is not that.
    if bench.can.replay {
        assert!(matches!(theirs, Err(ComputeError::TokenSpent(_))), "{theirs:?}");
    }
    let theirs = other.launch(&bench.order("l-2", 1, UsageClass::OnDemand)).await.unwrap().machines;
    assert_eq!(ids(&bench.compute.list().await.unwrap()), ids(&ours));
    assert!(ids(&other.list().await.unwrap()).is_superset(&ids(&theirs)));
    assert!(ids(&other.list().await.unwrap()).is_disjoint(&ids(&ours)));
}
