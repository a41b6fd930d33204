//! Injects faults that no call causes: machines die, actors are stopped, clocks are set, services become unavailable,
//! queues lose their messages, and other programs write foreign records.

use std::sync::Arc;
use std::time::Duration;

use runyard_core::model::{ClassName, InstanceId};
use runyard_core::ports::MachineState;
use serde_json::json;
use tokio::time::sleep;

use crate::simulation::actor::{Actor, Role};
use crate::simulation::fault_rates::Fault;
use crate::simulation::unreadable;
use crate::simulation::users::item;
use crate::simulation::world::World;

/// Deals blows for good.
pub(crate) async fn deal(world: Arc<World>) {
    loop {
        sleep(Duration::from_secs(1)).await;
        if world.fault_rates.calm() {
            return;
        }
        actors(&world);
        services(&world);
        queues(&world);
        machines(&world);
        write_foreign_records(&world);
        if world.strikes(Fault::VersionsAppear) {
            world.new_version();
        }
        if world.strikes(Fault::RecordUnreadable) {
            unreadable::spoil(&world);
        }
    }
}

fn actors(world: &World) {
    let actors: Vec<Arc<Actor>> = world.actors.lock().unwrap().clone();
    let chance = &world.chance;
    for actor in actors {
        let (stops, cut_off) = match actor.role {
            Role::Operator => (Fault::OperatorPauses, None),
            Role::Agent => (Fault::AgentPauses, Some(Fault::AgentPartition)),
            Role::Workflow | Role::Person => continue,
        };
        if world.strikes(stops) {
            let longest = *chance.one(&[5, 60, 600]);
            actor.stop(chance.seconds(1..longest));
        }
        if cut_off.is_some_and(|fault| world.strikes(fault)) {
            let longest = *chance.one(&[20, 120, 900]);
            actor.cut_off(chance.seconds(5..longest));
        }
        if world.strikes(Fault::ClockSteps) {
            actor.step_clock();
        }
    }
}

fn services(world: &World) {
    for (fault, longest) in [(Fault::StoreAway, 200), (Fault::GitHubAway, 600)] {
        if world.strikes(fault) {
            world.fault_rates.begin(fault, world.chance.seconds(5..longest));
        }
    }
}

fn class(world: &World) -> ClassName {
    let classes: Vec<&String> = world.classes.keys().collect();
    ClassName::parse(world.chance.one(&classes).as_str()).expect("a class name")
}

fn queues(world: &World) {
    // About as often as messages come.
    if !world.chance.percent(10) {
        return;
    }
    if world.strikes(Fault::QueueLoses) {
        world.queue.lose_all();
    }
    if world.strikes(Fault::QueueDoubles) {
        world.queue.double_all();
    }
    if world.strikes(Fault::QueueReorders) {
        world.queue.reverse_all();
    }
    if world.strikes(Fault::QueueGarbage) {
        world.queue.post(
            &class(world),
            world.chance.one::<&str>(&["", "{", "null", "{\"instanceId\": 7}", "\u{202e}abc"]),
        );
    }
    if world.strikes(Fault::ForeignMessage) {
        let known: Vec<InstanceId> = world.machines.lock().unwrap().keys().cloned().collect();
        let unknown_machine = InstanceId::parse("i-00000000000000bad").expect("an id");
        let who = if known.is_empty() { &unknown_machine } else { world.chance.one(&known) };
        let body = json!({"instanceId": who, "resourceClass": class(world), "usageClass": "on-demand"});
        world.queue.post(&class(world), &body.to_string());
    }
}

fn machines(world: &Arc<World>) {
    let some_machine = || {
        let machines = world.machines.lock().unwrap();
        let alive: Vec<_> = machines.values().filter(|sim_host| !sim_host.dead.is_cancelled()).collect();
        (!alive.is_empty()).then(|| world.chance.one(&alive).machine.id.clone())
    };
    if world.strikes(Fault::MachineDies)
        && let Some(id) = some_machine()
    {
        world.trace.tell(&format!("{id} dies"));
        let state =
            *world.chance.one(&[MachineState::Terminated, MachineState::Stopped, MachineState::ShuttingDown]);
        world.compute.set_state(&id, state);
        world.stir();
    }
    if world.strikes(Fault::SpotNotice)
        && let Some(id) = some_machine()
    {
        world.trace.tell(&format!("{id} is told that it will be taken back"));
        world.notices.post(&notice(&id));
        let world = world.clone();
        tokio::spawn(async move {
            sleep(Duration::from_secs(120)).await;
            world.compute.set_state(&id, MachineState::Terminated);
            world.stir();
        });
    }
}

fn notice(id: &InstanceId) -> String {
    json!({
        "version": "0", "id": "12345678-1234-1234-1234-123456789012", "source": "aws.ec2",
        "detail-type": "EC2 Spot Instance Interruption Warning", "account": "123456789012",
        "time": "2026-01-05T12:00:00Z", "region": "us-east-2", "resources": [],
        "detail": {"instance-id": id, "instance-action": "terminate"},
    })
    .to_string()
}

fn write_foreign_records(world: &World) {
    if !world.strikes(Fault::PoisonRecord) {
        return;
    }
    let number = world.chance.number(0..1_000_000);
    let arn = format!("arn:aws:ec2:local:000000000000:instance/i-0{number:016x}");
    let poison = match world.chance.number(0..4) {
        0 => {
            json!({"pk": format!("instance#{arn}"), "sk": "instance", "kind": "instance", "state": "flying"})
        }
        1 => json!({"pk": format!("instance#{arn}"), "sk": "instance", "kind": "instance", "schema": 99}),
        2 => {
            json!({"pk": format!("request#acme/web#{number}"), "sk": "request#x#1", "kind": "request", "count": -1})
        }
        _ => {
            json!({"pk": format!("launch#l-{number:016x}"), "sk": "launch", "kind": "launch", "version": "one"})
        }
    };
    world.store.put(item(&poison));
}
