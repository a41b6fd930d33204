//! What holds of the decisions whatever the records say: they are total, the same each time, write each record once,
//! move machines only along the table, never launch over `max`, come to rest, and with agents that do their part
//! serve every request. `PROPTEST_CASES=1000000 cargo test --test proofs properties::` runs each with that many cases.

mod any_yard;
mod day;
mod world;

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::Config;
use runyard_core::decide::{AtGitHub, Change, Effect, Plan, Planned};
use runyard_core::model::{Instance, Place, RecordId, Slot, TRANSITIONS};
use runyard_core::yard::Unit;

use world::World;

/// So many cases, unless the environment names another number.
fn cases(usual: u32) -> Config {
    let config = Config { failure_persistence: None, ..Config::default() };
    let unset = Config { ..Config::default() }.cases == 256;
    Config {
        cases: if unset { usual } else { config.cases },
        max_shrink_iters: 2000,
        max_global_rejects: u32::MAX,
        ..config
    }
}

fn steps(action: &Planned) -> Vec<(Place, &Instance)> {
    let moved = |change| match change {
        Change::Instance(step) => Some((step.before.place(), &step.after)),
        Change::Born(instance) => Some((Place::Nowhere, instance)),
        Change::Agent(_) | Change::Request(_) | Change::Launch(_) | Change::Pool(_) => None,
    };
    action.effect.changes().into_iter().filter_map(moved).collect()
}

/// Every planned change of state is a row of the table; what changes no state changes a deadline only, or the runner
/// that was registered ahead.
fn legal_moves(plans: &BTreeMap<Unit, Plan>) {
    for action in plans.values().flat_map(|plan| &plan.actions) {
        for (from, after) in steps(action) {
            let to = after.place();
            let known = TRANSITIONS.iter().any(|row| row.from == from && row.to == to);
            assert!(known || from == to, "{from:?} -> {to:?}: {}", action.describe());
        }
        if let Effect::Instance(step, github) = &action.effect
            && step.before.place() == step.after.place()
        {
            let (mut before, after) = (step.before.clone(), &step.after);
            (before.threshold, before.version, before.updated_at) =
                (after.threshold, after.version, after.updated_at);
            before.public_key.clone_from(&after.public_key);
            // A runner that was registered ahead is confirmed or given up; the package of a claim stays.
            if matches!(github, AtGitHub::Confirm { .. } | AtGitHub::Forget { .. }) {
                before.ahead.clone_from(&after.ahead);
                before.registration.clone_from(&after.registration);
                if after.pooled_at().is_some() {
                    before.runner.clone_from(&after.runner);
                }
            }
            assert_eq!(&before, after, "only the deadline moves");
        }
    }
}

/// Each plan writes each record once. Intents of one class have no name yet and share a place.
fn one_write_a_record(plans: &BTreeMap<Unit, Plan>) {
    for plan in plans.values() {
        let mut slots: Vec<Slot> = plan.actions.iter().flat_map(|action| action.slots.clone()).collect();
        slots.retain(|slot| !matches!(slot, Slot::Launches(_)));
        slots.sort();
        let all = slots.len();
        slots.dedup();
        assert_eq!(slots.len(), all, "{:?}", plan.actions.iter().map(Planned::describe).collect::<Vec<_>>());
    }
}

/// All units judged together give no machine away twice, and no request to two classes.
fn claims_are_disjoint(plans: &BTreeMap<Unit, Plan>) {
    let claims =
        plans.values().flat_map(|plan| &plan.actions).filter(|a| matches!(a.effect, Effect::Claim { .. }));
    let mut keys: Vec<RecordId> = claims.flat_map(Planned::records).cloned().collect();
    keys.sort();
    let all = keys.len();
    keys.dedup();
    assert_eq!(keys.len(), all);
}

fn within_max(world: &World, plans: &BTreeMap<Unit, Plan>) {
    let mut intended: BTreeMap<_, u64> = BTreeMap::new();
    for action in plans.values().flat_map(|plan| &plan.actions) {
        if let Effect::Intend(launch, _) = &action.effect {
            assert!((1..=40).contains(&launch.count));
            *intended.entry(launch.resource_class.clone()).or_default() += u64::from(launch.count);
        }
    }
    for (name, more) in intended {
        let class = world.yard.class(&name).unwrap();
        let open: u64 =
            class.in_flight.open().map(|id| u64::from(world.yard.launch(id).unwrap().launch.count)).sum();
        let max = u64::from(class.pool.as_ref().unwrap().spec.max);
        let live = u64::from(class.live());
        assert!(live + open + more <= max, "{live} live, {open} open, {more} more, max {max}");
        assert!(world.role.lease.is_some(), "only the holder of the lease launches");
    }
}

proptest! {
    #![proptest_config(cases(10_000))]

    #[test]
    fn whatever_the_records_say_there_is_a_decision_and_it_is_the_same_each_time(any_yard in any_yard::any_yard()) {
        let world = any_yard.world();
        let plans = world.judge();
        prop_assert_eq!(&plans, &world.judge());
        one_write_a_record(&plans);
        claims_are_disjoint(&plans);
        legal_moves(&plans);
        within_max(&world, &plans);
        for action in plans.values().flat_map(|plan| &plan.actions) {
            prop_assert!(!action.describe().is_empty());
        }
    }
}

proptest! {
    #![proptest_config(cases(1_500))]

    #[test]
    fn carried_out_and_judged_again_everything_comes_to_rest(any_yard in any_yard::any_yard()) {
        prop_assume!(any_yard.is_modest());
        let mut world = any_yard.world();
        let mut told = Vec::new();
        for _ in 0..40 {
            let did = world.round();
            if did.is_empty() {
                return Ok(());
            }
            told = did;
        }
        prop_assert!(false, "still at it, without anything having happened: {:#?}", told);
    }
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn with_agents_that_do_their_part_every_request_is_served_refused_or_released(day in day::day()) {
        day.play();
    }
}
