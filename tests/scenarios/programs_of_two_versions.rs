//! Programs of different versions on one table: an older agent, an older operator, an older command line, and newer
//! ones, each beside the others of this version, through whole claims.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use runyard::StepPorts;
use runyard::step;
use runyard_core::model::{
    Agent, AttributeValue, Guard, Instance, Item, Kind, Place, Record as _, Request, Write,
};
use runyard_core::ports::{Clock as _, Store as _};
use runyard_fakes::SeededEntropy;
use serde_json::json;

use runyard_tests::world::{World, item, linux};

use agents::{of_the_first_form, of_this_program};
use table::{ADDED, Table, Version, additions};

mod agents;
mod table;

/// A class whose runners are registered before their claims.
fn ahead() -> serde_json::Value {
    let mut spec = linux(1, 1);
    spec["reuseWithin"] = "repository".into();
    spec["repositories"] = json!(["acme/web"]);
    spec["registeredAhead"] = true.into();
    spec
}

/// The same where nobody says so: wherever it can be.
fn auto() -> serde_json::Value {
    let mut spec = ahead();
    spec.as_object_mut().unwrap().remove("registeredAhead");
    spec
}

/// A class that keeps directories.
fn keeping() -> serde_json::Value {
    let mut spec = linux(1, 1);
    spec["keep"] = json!([{"name": "npm", "path": "~/.npm"}]);
    spec
}

/// A step of a workflow, by the command line of this program.
async fn command(world: &World, table: &Table, arguments: &str) {
    let entropy = Arc::new(SeededEntropy::new(arguments.bytes().map(u64::from).sum()));
    let ports = StepPorts { store: Arc::new(table.clone()), clock: Arc::new(world.clock), entropy };
    let words: Vec<&str> = arguments.split(' ').collect();
    let ended = step(ports, &words).await;
    ended.unwrap_or_else(|failed| panic!("{arguments}: {failed}\n{}", world.show()));
}

async fn provision(world: &World, table: &Table, run: u32) {
    let of = format!("--run-id {run} --repository acme/web --class linux");
    command(world, table, &format!("provision {of} --count 1 --wait")).await;
}

async fn release(world: &World, table: &Table, run: u32) {
    command(world, table, &format!("release --run-id {run} --repository acme/web --wait")).await;
}

async fn pooled(world: &World) -> Instance {
    world.until("one is in the pool", Duration::from_secs(120), async || world.pooled().len() == 1).await;
    world.pooled().remove(0)
}

/// Two claims of one machine: claimed, registered, released, cleaned.
async fn two_claims(world: &World, commands: &Table) {
    pooled(world).await;
    for run in 1..=2 {
        let labelled = || world.github.all_runners().iter().any(|runner| runner.labels == [run.to_string()]);
        provision(world, commands, run).await;
        let [held] = &world.live()[..] else { panic!("one machine\n{}", world.show()) };
        assert_eq!((held.run().map(ToString::to_string), held.uses), (Some(run.to_string()), run));
        assert!(labelled(), "its runner is at GitHub");
        release(world, commands, run).await;
        assert!(!labelled(), "its runner is gone from GitHub");
        pooled(world).await;
    }
    assert_eq!(world.reasons(), Vec::<String>::new(), "no machine ended for it");
    assert!(world.metrics.render().contains("\nrunyard_unreadable_records 0\n"));
}

/// The same where each program is of a version of its own; the world, and what each wrote.
async fn drill(
    spec: fn() -> serde_json::Value,
    operator: Version,
    agent: Version,
    commands: Version,
) -> (World, [Table; 3]) {
    let (world, place) = (World::with_github(), tempfile::tempdir().unwrap());
    let tables = [operator, agent, commands].map(|version| Table::new(&world.store, version));
    let [operators, agents, commands] = &tables;
    world.pool(spec()).await;
    world.start_on("one", Arc::new(operators.clone()));
    of_this_program(&world, agents, place.path());
    two_claims(&world, commands).await;
    world.stop().await;
    (world, tables)
}

fn has_none_of(item: &Item, kind: Kind) -> bool {
    !item.keys().any(|name| additions(kind).contains(name.as_str()))
}

#[tokio::test(start_paused = true)]
async fn an_agent_of_the_first_form_serves_claims_of_classes_with_additions() {
    for spec in [ahead(), keeping()] {
        let (world, registers_ahead) = (World::with_github(), spec.get("registeredAhead").is_some());
        world.pool(spec).await;
        world.start();
        of_the_first_form(&world);
        let commands = Table::new(&world.store, Version::This);
        two_claims(&world, &commands).await;
        let machine = pooled(&world).await;
        if registers_ahead {
            let asked = async || world.pooled().iter().any(|machine| machine.ahead.is_some());
            world
                .until("it is asked for a runner that it cannot register", Duration::from_secs(30), asked)
                .await;
        }
        let agent = world.store.get(&Agent::key_of(&machine.facts.instance_arn)).await.unwrap().unwrap();
        assert!(has_none_of(&agent, Kind::Agent), "{agent:?}");

        provision(&world, &commands, 3).await;
        let version = world.get::<Instance>(&machine.key()).await.unwrap().version;
        let until = (world.clock.now() + Duration::from_secs(3600)).to_string();
        let hold = item(&json!({"hold": {"by": "ada", "until": until}}));
        let more = [("version".to_owned(), 1)].into();
        let hold = Write::update(machine.key(), Guard::Version(version), hold, more);
        world.store.write(&hold).await.unwrap();
        release(&world, &commands, 3).await;
        world.sleep(600).await;
        let held = world.get::<Instance>(&machine.key()).await.unwrap();
        assert_eq!(held.place(), Place::IdleHeld, "its agent cleans it, and nobody pools it all the same");
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn this_agent_and_command_line_get_through_claims_of_an_older_operator() {
    for spec in [ahead, keeping] {
        let (_, [operators, ..]) = drill(spec, Version::Older, Version::This, Version::This).await;
        let written = operators.written().await;
        assert!(written.iter().any(|(key, _)| key.instance().is_some()));
        for (key, mut item) in written {
            let kind = key.kind().expect("one of ours");
            // Written by others: a request's by the command line, an agent's report by itself, a class's spec by people.
            match kind {
                Kind::Request => drop(item.remove("uid")),
                Kind::Agent => drop(item.remove("proof")),
                Kind::Instance | Kind::Pool | Kind::Launch | Kind::Lease | Kind::Queue | Kind::Event => {}
            }
            assert!(kind == Kind::Pool || has_none_of(&item, kind), "{key}: {item:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_operator_before_auto_takes_runners_back_and_this_one_makes_them_anew() {
    let (world, place) = (World::with_github(), tempfile::tempdir().unwrap());
    let commands = Table::new(&world.store, Version::This);
    world.pool(auto()).await;
    of_this_program(&world, &commands, place.path());
    let mut machines = BTreeSet::new();
    for (run, version) in
        [Version::BeforeAuto, Version::This, Version::BeforeAuto, Version::This].iter().enumerate()
    {
        world.start_on(&format!("operator-{run}"), Arc::new(Table::new(&world.store, *version)));
        let on = *version == Version::This;
        let as_it_should = || {
            let pooled = world.pooled();
            let rests = |one: &Instance| one.ahead.as_ref().is_some_and(|ahead| ahead.runner_id.is_some());
            pooled.len() == 1 && pooled.iter().all(|one| if on { rests(one) } else { one.ahead.is_none() })
        };
        world.until("its runner rests, or is gone", Duration::from_secs(180), async || as_it_should()).await;
        assert_eq!(world.github.all_runners().len(), usize::from(on));
        provision(&world, &commands, run as u32 + 1).await;
        let [held] = &world.live()[..] else { panic!("one machine\n{}", world.show()) };
        machines.insert(held.facts.instance_id.clone());
        assert_eq!((held.ahead.is_some(), held.uses), (on, run as u32 + 1), "{version:?}");
        release(&world, &commands, run as u32 + 1).await;
        pooled(&world).await;
        world.stop().await;
    }
    assert_eq!((machines.len(), world.reasons()), (1, Vec::new()), "always the same machine");
}

#[tokio::test(start_paused = true)]
async fn an_older_command_line_gets_machines_and_gives_them_back() {
    for spec in [ahead, keeping] {
        let (world, [.., commands]) = drill(spec, Version::This, Version::This, Version::Older).await;
        let written = commands.written().await;
        assert_eq!((written.len(), world.all::<Request>().len()), (2, 2));
        for (key, item) in written {
            assert!(!item.contains_key("uid"), "{key}: it is of an older version");
            // What the operator adds is beside it.
            let kept = ["accepted", "served", "releasedAt", "endedAt"].map(|name| item.contains_key(name));
            assert_eq!(kept, [true; 4], "{key}: {item:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_newer_operator_agent_or_command_line_adds_outlives_our_writes() {
    use Version::{Newer, This};
    for (at, versions) in
        [[Newer, This, This], [This, Newer, This], [This, This, Newer]].into_iter().enumerate()
    {
        let [operator, agent, commands] = versions;
        let (_, tables) = drill(ahead, operator, agent, commands).await;
        let written = tables[at].written().await;
        assert!(!written.is_empty(), "{versions:?}");
        for (key, item) in written {
            assert_eq!(item.get(ADDED), Some(&AttributeValue::N("7".into())), "{versions:?}: {key}");
        }
    }
}
