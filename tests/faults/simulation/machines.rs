//! Who runs on the machines? The production agent, on each machine that comes up, started again when it dies, until the
//! power goes.

use std::sync::Arc;
use std::time::Duration;

use runyard_agent::agent::{End, Parts, Timing, run};
use runyard_agent::records::TableRecords;
use runyard_agent::reports::logs::Ring;
use runyard_agent::shutdown::guard::Lengths;
use runyard_agent::shutdown::power::Exit;
use runyard_core::ports::{Machine, MachineState};
use runyard_fakes::SeededEntropy;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::simulation::actor::{Actor, Role};
use crate::simulation::bugs::Bug;
use crate::simulation::fault_rates::Fault;
use crate::simulation::sim_host::{Hands, SimHost};
use crate::simulation::table::Table;
use crate::simulation::world::World;

/// How long a machine that ended is still told of.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// Gives every machine that comes up a life, and takes it when its provider ended it.
pub(crate) async fn keep(world: Arc<World>) {
    loop {
        let machines = if world.was_stirred() { world.compute.machines() } else { Vec::new() };
        for machine in machines {
            let known = world.machines.lock().unwrap().get(&machine.id).cloned();
            match known {
                None if machine.state.alive() => {
                    let sim_host = SimHost::new(machine.clone());
                    world.machines.lock().unwrap().insert(machine.id.clone(), sim_host.clone());
                    world.trace.tell(&format!("{} comes up in {:?}", machine.id, machine.class));
                    once(&world, &machine);
                    tokio::spawn(live(world.clone(), sim_host));
                }
                Some(sim_host) if !machine.state.alive() && !sim_host.dead.is_cancelled() => {
                    sim_host.power_off(&world);
                    let (compute, id) = (world.compute.clone(), machine.id.clone());
                    tokio::spawn(async move {
                        sleep(REMEMBERED).await;
                        compute.forget(&id);
                    });
                }
                Some(_) | None => {}
            }
        }
        sleep(Duration::from_secs(1)).await;
    }
}

/// S8: one launch brings one set of machines.
fn once(world: &World, machine: &Machine) {
    let brought = world.compute.machines().into_iter().filter(|other| other.launch == machine.launch).count();
    let orders = world.compute.orders();
    let order = orders.iter().find(|order| Some(&order.launch.launch_id) == machine.launch.as_ref());
    if let Some(order) = order.filter(|order| brought > order.launch.count as usize) {
        let (id, count) = (&order.launch.launch_id, order.launch.count);
        world.broke(format!("S8 {id}: {brought} machines came of a launch of {count}"));
    }
}

async fn live(world: Arc<World>, sim_host: Arc<SimHost>) {
    let dead = sim_host.dead.clone();
    let ended = dead.run_until_cancelled(serve(&world, &sim_host)).await;
    if ended.is_some() {
        sim_host.ends_itself(&world);
        world.compute.set_state(&sim_host.machine.id, MachineState::Terminated);
        world.stir();
    }
    sim_host.power_off(&world);
    world.actors.lock().unwrap().retain(|actor| actor.name != sim_host.machine.id.as_str());
}

/// Until the machine ends itself.
async fn serve(world: &Arc<World>, sim_host: &Arc<SimHost>) {
    if world.strikes(Fault::NeverBoots) {
        std::future::pending::<()>().await;
    }
    let slow = world.strikes(Fault::BootsSlowly);
    sleep(world.chance.seconds(if slow { 120..1200 } else { 5..40 })).await;
    let actor = Actor::new(world, sim_host.machine.id.as_str(), Role::Agent);
    world.actors.lock().unwrap().push(actor.clone());
    loop {
        let parts = parts(&actor, sim_host);
        let ended = tokio::select! {
            biased;
            () = actor.death.notified() => None,
            ended = run(parts, CancellationToken::new()) => Some(ended),
        };
        match ended {
            None => sleep(world.chance.seconds(1..10)).await,
            Some(Ok(End::PoweredOff(why))) => {
                world.trace.tell(&format!("{} ends itself: {why}", sim_host.machine.id));
                return;
            }
            Some(other) => world.broke(format!("{}: its agent ended: {other:?}", sim_host.machine.id)),
        }
    }
}

fn parts(actor: &Arc<Actor>, sim_host: &Arc<SimHost>) -> Parts {
    let world = &actor.world;
    let Machine { id, arn, .. } = &sim_host.machine;
    let life = world.chance.number(0..u64::MAX);
    let name = if world.bug == Some(Bug::AgentForgets) { format!("{id}-{life}") } else { id.to_string() };
    let state_dir = world.dir.path().join(name);
    std::fs::create_dir_all(&state_dir).expect("a directory in memory");
    let settings = &world.settings;
    Parts {
        records: Arc::new(TableRecords::new(Arc::new(Table(actor.clone())), arn.clone())),
        executor: Arc::new(Hands {
            world: world.clone(),
            actor: actor.clone(),
            sim_host: sim_host.clone(),
            package: Default::default(),
        }),
        clock: actor.clone(),
        entropy: Arc::new(SeededEntropy::new(life)),
        power: Arc::new(Exit),
        timing: Timing {
            heartbeat: settings.timing.heartbeat,
            heartbeat_free: settings.timing.heartbeat_free(),
            poll: settings.timing.agent_poll,
            reregister: Duration::from_secs(2),
            guard: Lengths { created: settings.timing.created, grace: settings.timing.grace },
        },
        state_dir,
        boot_id: "boot".into(),
        ring: Ring::default(),
    }
}
