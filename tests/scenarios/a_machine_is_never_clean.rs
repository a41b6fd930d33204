//! What if jobs of a repository leave what cannot be cleaned, each time? And what becomes of what a machine wrote?

use std::time::Duration;

use runyard_core::model::{Agent, AttributeValue, Guard, Instance, Item, Record, Write};
use runyard_core::ports::Store as _;

use runyard_tests::agents::Habit;
use runyard_tests::world::{GOOD, World, linux};

/// A run is served and gives its machine back, which ends.
async fn a_run_ends_its_machine(world: &World, run: &str) {
    let key = world.provision(run, "linux", 1, serde_json::json!({"timeoutSeconds": 1000})).await;
    world.until_phase(&key, "Ready", 120).await;
    world.release(&key).await;
    world.until("its machine ended", Duration::from_secs(600), async || world.live().is_empty()).await;
}

fn ended_for(world: &World, reason: &str) -> usize {
    world.reasons().iter().filter(|known| *known == reason).count()
}

#[tokio::test(start_paused = true)]
async fn three_machines_that_were_never_clean_set_the_brake_of_their_repository() {
    for (habit, failed) in [(Habit::CleaningFails, "cleanup-failed"), (Habit::NeverCleans, "threshold")] {
        let world = World::new();
        world.pool(linux(0, 5)).await;
        world.agents.all(habit);
        world.start();
        for run in ["1", "2", "3"] {
            a_run_ends_its_machine(&world, run).await;
        }
        assert_eq!((ended_for(&world, failed), ended_for(&world, "max-uses")), (3, 0), "{habit:?}");
        a_run_ends_its_machine(&world, "4").await;
        // An operator that starts reads it from the records.
        world.kill();
        world.start();
        a_run_ends_its_machine(&world, "5").await;
        assert_eq!((ended_for(&world, failed), ended_for(&world, "max-uses")), (3, 2), "{habit:?}");
        let other = serde_json::json!({"pk": "request#acme/api#6", "repository": "acme/api"});
        let key = world.provision("6", "linux", 1, other).await;
        world.agents.all(GOOD);
        world.until_phase(&key, "Ready", 120).await;
        world.release(&key).await;
        let pooled = async || world.pooled().len() == 1;
        world.until("another's machine is pooled", Duration::from_secs(300), pooled).await;
        world.sleep(3600).await;
        let key = world.provision("7", "linux", 1, serde_json::json!({})).await;
        world.until_phase(&key, "Ready", 120).await;
        world.release(&key).await;
        world
            .until("its own is pooled again", Duration::from_secs(300), async || !world.pooled().is_empty())
            .await;
        assert_eq!(ended_for(&world, "max-uses"), 2, "{habit:?}");
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_machine_wrote_under_its_key_goes_with_its_record() {
    let world = World::new();
    world.pool(linux(0, 1)).await;
    world.agents.all(Habit::CleaningFails);
    world.start();
    a_run_ends_its_machine(&world, "1").await;
    let gone = async || world.instances().iter().all(|machine| machine.gone_at().is_some());
    world.until("it is gone", Duration::from_secs(600), gone).await;
    let ended = world.instances().remove(0);
    let agent = Agent::key_of(&ended.facts.instance_arn);
    let row = |number: u32| -> Item {
        let text = |text: String| AttributeValue::S(text);
        [("pk", text(agent.pk())), ("sk", text(format!("row#{number}")))]
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    };
    let rows: Vec<Item> = (0..300).map(row).collect();
    assert_eq!(world.store.append(&rows).await.unwrap(), 0, "all are kept");
    // A day has passed.
    let set = [("expiresAt".to_owned(), AttributeValue::N(world.at().as_second().to_string()))];
    let write = Write::update(ended.key(), Guard::Exists, set.into(), [("version".to_owned(), 1)].into());
    world.store.write(&write).await.unwrap();
    let removed = async || world.get::<Instance>(&ended.key()).await.is_none();
    world.until("its record is removed", Duration::from_secs(60), removed).await;
    let page = world.store.query(&agent.pk(), "", None).await.unwrap();
    assert_eq!((page.items, page.next), (Vec::new(), None));
    world.stop().await;
}
