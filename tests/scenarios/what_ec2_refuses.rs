use runyard_core::model::{Pool, RecordId};

use runyard_tests::world::{World, linux};

const WORDS: &str = "InvalidFleetConfiguration: No instance type satisfies the requirements";

/// A request of another repository than `acme/web`.
async fn ask(world: &World, repository: &str, run: &str, more: serde_json::Value) -> RecordId {
    let mut fields = serde_json::json!({
        "pk": format!("request#{repository}#{run}"), "repository": repository, "timeoutSeconds": 3600,
    });
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    world.provision(run, "linux", 1, fields).await
}

#[tokio::test(start_paused = true)]
async fn types_that_do_not_exist_fail_their_own_request_and_hold_no_other_repository_back() {
    let world = World::new();
    world.pool(linux(0, 10)).await;
    world.compute.refuse("c99*", WORDS);
    world.start();
    let typo = ask(&world, "acme/typo", "7", serde_json::json!({"allowedInstanceTypes": ["c99*"]})).await;
    world.sleep(1).await;
    assert!(!world.request(&typo).await.phase().is_final(), "{}", world.show());
    assert_eq!(world.compute.orders().len(), 1, "{}", world.show());
    let good = ask(&world, "acme/good", "8", serde_json::json!({})).await;
    world.until_phase(&good, "Ready", 30).await;
    world.until_phase(&typo, "Failed", 10).await;
    let second = &world.compute.orders()[1];
    assert!(second.types.0.is_empty(), "it is launched for at once: {}", world.show());
    let told = world.request(&typo).await.status.message;
    assert_eq!(told, format!("Invalid: EC2: {WORDS}"));
    assert_eq!(world.compute.orders().len(), 3, "twice for what was refused, once for the other");
    world.sleep(60).await;
    let pool = world.get::<Pool>(&Pool::key_of(&"linux".parse().unwrap())).await.unwrap();
    let status = format!("{:?}", pool.status);
    assert!(!status.contains("satisfies") && !status.contains("c99"), "nobody else is told: {status}");
}
