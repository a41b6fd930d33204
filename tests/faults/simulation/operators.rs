//! Two or three production operators over one table, each started again some time after it died.

use std::sync::Arc;
use std::time::Duration;

use runyard_core::ports::{Doorbell, JobBell};
use runyard_fakes::SeededEntropy;
use runyard_operator::controller::{Bell, Ports, Settings, run};
use runyard_operator::metrics::Metrics;
use runyard_operator::status::Health;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::simulation::actor::{Actor, Role};
use crate::simulation::fault_rates::Fault;
use crate::simulation::services::Services;
use crate::simulation::table::Table;
use crate::simulation::world::World;

/// Runs one for good.
pub(crate) async fn operate(world: Arc<World>, name: String) {
    let actor = Actor::new(&world, &name, Role::Operator);
    world.actors.lock().unwrap().push(actor.clone());
    // A name of its own for each process, or one for all of them, as a stateful set gives.
    let fresh = world.chance.percent(50);
    for life in 0.. {
        sleep(world.chance.millis(0..3000)).await;
        let identity = if fresh { format!("{name}-{life}") } else { name.clone() };
        world.knowledge.lock().unwrap().forget(&name);
        let stop = CancellationToken::new();
        let settings = Settings { identity, ..world.settings.clone() };
        let mut running = Box::pin(run(ports(&actor), settings, health(&actor), stop.clone()));
        let ended = tokio::select! {
            biased;
            () = actor.death.notified() => None,
            ended = &mut running => Some(ended),
        };
        match ended {
            None if world.chance.percent(20) && !world.fault_rates.calm() => {
                // A deployment: it is told to stop, and has half a minute.
                world.trace.tell(&format!("{name} is told to stop instead"));
                stop.cancel();
                let _ = timeout(Duration::from_secs(30), &mut running).await;
            }
            None => {}
            Some(Err(error)) => world.trace.tell(&format!("{name} gave up: {error}")),
            Some(Ok(())) => world.broke(format!("{name} ended without being told to")),
        }
        // Dead with all its tasks, not when the next one is there.
        drop(running);
        if !world.fault_rates.calm() {
            let long = world.chance.percent(15) && world.fault_rates.has(Fault::OperatorCrashes);
            sleep(world.chance.seconds(if long { 30..400 } else { 1..10 })).await;
        }
    }
}

fn health(actor: &Arc<Actor>) -> Arc<Health> {
    Arc::new(Health::new(actor.clone()))
}

fn ports(actor: &Arc<Actor>) -> Ports {
    let seed = actor.world.chance.number(0..u64::MAX);
    let services = Arc::new(Services(actor.clone()));
    Ports {
        store: Arc::new(Table(actor.clone())),
        queue: services.clone(),
        compute: services.clone(),
        github: Some(services.clone()),
        notices: Some(services.clone()),
        doorbell: actor
            .world
            .rings
            .is_on()
            .then(|| Bell { port: services.clone() as Arc<dyn Doorbell>, look: watch::channel(()).0 }),
        scale_sets: actor.world.set_jobs.port(&services),
        job_bell: actor.world.jobs.is_on().then_some(services as Arc<dyn JobBell>),
        history: actor.world.shelf.table(actor),
        clock: actor.clone(),
        entropy: Arc::new(SeededEntropy::new(seed)),
        metrics: Metrics::new(actor.clone()),
    }
}
