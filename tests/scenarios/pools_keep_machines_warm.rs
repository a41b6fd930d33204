use std::time::Duration;

use runyard_core::model::Event;
use runyard_core::ports::Store;

use runyard_tests::world::{World, linux};

#[tokio::test(start_paused = true)]
async fn a_pool_keeps_its_number_idle_and_renews_rather_than_replaces() {
    let world = World::new();
    let mut spec = linux(2, 5);
    spec["idleSeconds"] = 300.into();
    world.pool(spec).await;
    world.start();
    world.until("two are warm", Duration::from_secs(60), async || world.pooled().len() == 2).await;
    let before: Vec<_> = world.pooled().into_iter().map(|instance| instance.facts.instance_id).collect();
    world.sleep(2 * 3600).await;
    let after: Vec<_> = world.pooled().into_iter().map(|instance| instance.facts.instance_id).collect();
    assert_eq!(before, after);
    assert!(world.reasons().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_too_old_goes_after_its_replacement_came() {
    let world = World::new();
    let mut spec = linux(1, 5);
    spec["maxAgeSeconds"] = 3600.into();
    world.pool(spec).await;
    world.start();
    world.until("one is warm", Duration::from_secs(60), async || world.pooled().len() == 1).await;
    for _ in 0..400 {
        world.sleep(10).await;
        assert!(!world.pooled().is_empty(), "at {}\n{}", world.show(), "the pool is never empty");
    }
    assert_eq!(world.reasons(), ["max-age"]);
}

#[tokio::test(start_paused = true)]
async fn a_lower_max_ends_idle_machines_and_never_a_busy_one() {
    let world = World::new();
    world.pool(linux(2, 5)).await;
    world.start();
    let key = world.provision("1", "linux", 2, serde_json::json!({})).await;
    world.until_phase(&key, "Ready", 60).await;
    world.until("two are warm", Duration::from_secs(60), async || world.pooled().len() == 2).await;
    let pool_key = runyard_core::model::Pool::key_of(&"linux".parse().unwrap());
    let change = async |max: u32| {
        let pool: runyard_core::model::Pool = world.get(&pool_key).await.unwrap();
        let mut next = pool.clone();
        runyard_core::model::Versioned::advance(&mut next, world.at());
        (next.spec.max, next.spec.desired) = (max, 0);
        runyard_core::ports::Store::write(
            &world.store,
            &runyard_core::model::Versioned::replacing(&next, &pool),
        )
        .await
        .is_ok()
    };
    world.until("the change is written", Duration::from_secs(10), async || change(1).await).await;
    world.until("idle ones end", Duration::from_secs(60), async || world.pooled().is_empty()).await;
    assert_eq!(world.reasons(), ["surplus", "surplus"]);
    assert_eq!(world.live().len(), 2, "the busy ones stay");
}

#[tokio::test(start_paused = true)]
async fn machines_in_the_pool_are_announced_and_announced_again() {
    let world = World::new();
    world.pool(linux(1, 5)).await;
    world.start();
    let class = "linux".parse().unwrap();
    world
        .until("it is announced", Duration::from_secs(60), async || !world.queue.bodies(&class).is_empty())
        .await;
    world.queue.lose_all();
    world
        .until("it is announced again", Duration::from_secs(610), async || {
            !world.queue.bodies(&class).is_empty()
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn machines_launched_in_another_way_are_replaced_one_at_a_time_without_a_gap() {
    let world = World::new();
    let with = |ami: &str| {
        let mut spec = linux(3, 10);
        spec["launch"] = serde_json::json!({"ami": ami});
        spec
    };
    world.pool(with("ami-1")).await;
    world.start();
    world.until("all are pooled", Duration::from_secs(60), async || world.pooled().len() == 3).await;
    let set = runyard_tests::world::item(&serde_json::json!({"launch": {"ami": "ami-2"}}));
    let pool = world.all::<runyard_core::model::Pool>().remove(0);
    let key = runyard_core::model::Pool::key_of(&pool.spec.resource_class);
    let add = std::collections::BTreeMap::from([("version".to_owned(), 1)]);
    let guard = runyard_core::model::Guard::Version(pool.version);
    world.store.write(&runyard_core::model::Write::update(key, guard, set, add)).await.unwrap();
    world
        .until("all are replaced", Duration::from_secs(600), async || {
            assert!(world.pooled().len() >= 3, "fewer than wanted\n{}", world.show());
            assert!(world.live().len() <= 5, "too many at once\n{}", world.show());
            world.reasons() == ["drifted"; 3]
        })
        .await;
    world.sleep(120).await;
    assert_eq!(world.reasons(), ["drifted"; 3], "and no more");
    assert_eq!(world.pooled().len(), 3);
}

/// Story: a class that EC2 refuses was told about by a second scan of the whole table at the start, and one that was
/// added later not at all.
#[tokio::test(start_paused = true)]
async fn whether_a_class_can_be_launched_is_asked_once_when_it_is_first_seen() {
    let world = World::new();
    world.start();
    world.sleep(60).await;
    assert!(world.compute.checked().is_empty());
    world.pool(linux(1, 5)).await;
    world.until("one is warm", Duration::from_secs(60), async || world.pooled().len() == 1).await;
    world.sleep(3600).await;
    let checked = world.compute.checked();
    let names: Vec<&str> = checked.iter().map(|spec| spec.resource_class.as_str()).collect();
    assert_eq!(names, ["linux"]);
}

#[tokio::test(start_paused = true)]
async fn a_newer_image_is_told_and_takes_the_place_of_idle_machines() {
    let world = World::new();
    world.compute.image("/golden/linux", "ami-1");
    let mut spec = linux(1, 5);
    spec["launch"] = serde_json::json!({"ami": "ssm:/golden/linux"});
    world.pool(spec).await;
    world.start();
    world.until("one is warm", Duration::from_secs(60), async || world.pooled().len() == 1).await;
    let told = || {
        let events = world.all::<Event>().into_iter().filter(|event| event.reason == "ImageChanged");
        events.map(|event| event.message).collect::<Vec<_>>()
    };
    world.until("the image is told", Duration::from_secs(60), async || !told().is_empty()).await;
    world.sleep(2 * 3600).await;
    assert_eq!(told(), ["/golden/linux is ami-1 now"], "the same image again is no news");
    assert!(world.reasons().is_empty());
    world.compute.image("/golden/linux", "ami-2");
    world
        .until("the machine is replaced", Duration::from_secs(2 * 3600), async || {
            world.reasons() == ["drifted"]
        })
        .await;
    let mut told = told();
    told.sort();
    assert_eq!(told, ["/golden/linux is ami-1 now", "/golden/linux is ami-2 now; it was ami-1"]);
}
