use std::time::Duration;

use runyard_core::model::UsageClass;

use runyard_tests::world::{World, linux};

fn spot() -> serde_json::Value {
    let mut spec = linux(0, 10);
    spec["usageClass"] = "spot".into();
    spec
}

fn patient(more: serde_json::Value) -> serde_json::Value {
    let mut wish = serde_json::json!({"timeoutSeconds": 3000});
    wish.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    wish
}

#[tokio::test(start_paused = true)]
async fn what_there_is_none_of_is_asked_for_rarely_and_had_soon_after_it_is_back() {
    let world = World::new();
    world.pool(linux(0, 10)).await;
    world.compute.capacity(Some(0));
    world.start();
    let key = world.provision("1", "linux", 2, patient(serde_json::json!({}))).await;
    world.sleep(170).await;
    assert_eq!(world.compute.orders().len(), 1, "{}", world.show());
    world.sleep(200).await;
    assert_eq!(world.compute.orders().len(), 2, "{}", world.show());
    let pool: runyard_core::model::Pool = world.all().remove(0);
    assert!(pool.status.message.contains("no capacity for on-demand machines"), "{}", pool.status.message);
    assert!(pool.status.message.contains("tried again at 2026-01-05T12:07"), "{}", pool.status.message);
    world.compute.capacity(None);
    world.until_phase(&key, "Ready", 200).await;
    assert_eq!(world.live().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_class_that_lacks_spot_tells_so_and_serves_who_allows_on_demand() {
    let world = World::new();
    world.pool(spot()).await;
    world.compute.capacity(Some(0));
    world.start();
    let strict = world.provision("1", "linux", 1, patient(serde_json::json!({}))).await;
    world.sleep(200).await;
    let open = "runyard_breaker_open{kind=\"spot\",resource_class=\"linux\"} 1";
    assert!(world.metrics.render().contains(open), "{}", world.metrics.render());
    world.compute.capacity(None);
    let asked = world.compute.orders().len();
    let lenient =
        world.provision("2", "linux", 1, patient(serde_json::json!({"onDemandFallback": true}))).await;
    world.until_phase(&lenient, "Ready", 30).await;
    let orders = world.compute.orders();
    assert_eq!(orders.len(), asked + 1);
    assert_eq!(orders[asked].launch.usage_class, UsageClass::OnDemand);
    assert_ne!(world.phase(&strict).await, "Ready");
    world.until_phase(&strict, "Ready", 400).await;
    assert!(
        world.metrics.render().contains("runyard_breaker_open{kind=\"spot\",resource_class=\"linux\"} 0")
    );
    let said = world.store.records();
    let reasons: Vec<&str> = said
        .iter()
        .filter(|item| {
            item.get("pk")
                .is_some_and(|pk| pk == &runyard_core::model::AttributeValue::S("pool#linux".into()))
        })
        .filter_map(|item| match item.get("reason") {
            Some(runyard_core::model::AttributeValue::S(reason)) => Some(reason.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(reasons, ["SpotAvoided", "SpotTried"]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_short_of_its_minimum_gives_back_what_it_had() {
    let world = World::new();
    world.pool(linux(0, 10)).await;
    world.compute.capacity(Some(2));
    world.start();
    let key =
        world.provision("1", "linux", 4, serde_json::json!({"timeoutSeconds": 100, "minCount": 3})).await;
    world.until_phase(&key, "Failed", 110).await;
    world.until("both are in the pool", Duration::from_secs(60), async || world.pooled().len() == 2).await;
}
