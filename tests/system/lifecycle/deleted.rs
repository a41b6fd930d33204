//! Does `runyard delete pool` take everything of a class away: its machines, its record, its queues and its template?

use runyard_core::model::{Pool, State};

use crate::e2e::waiting::turn;
use crate::lifecycle::cloud::Cloud;
use crate::lifecycle::yard::{CLASS, TABLE, Yard};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_pool_leaves_no_machine_queue_or_template() {
    let _turn = turn().await;
    let mut yard = Yard::on(Cloud::dynoxide_and_moto(), 1, 2).await;
    yard.pools(1).await;
    let before = yard.cloud.of_class(TABLE, CLASS).await;
    let all =
        [format!("{TABLE}-{CLASS}"), format!("{TABLE}-{CLASS}-dead"), format!("template {TABLE}-{CLASS}")];
    assert_eq!(before, all.into_iter().collect(), "what there is to be deleted");
    let ended = yard.runs(&["delete", "pool", CLASS, "--yes", "--timeout", "10m"]).await;
    for what in [format!("queue {TABLE}-{CLASS}: deleted"), format!("template {TABLE}-{CLASS}: deleted")] {
        assert!(ended.stdout.contains(&what), "{what}: {ended:?}");
    }
    assert!(yard.cloud.of_class(TABLE, CLASS).await.is_empty());
    let seen = yard.look().await;
    assert!(seen.all::<Pool>().is_empty());
    assert!(seen.all::<runyard_core::model::Instance>().iter().all(|one| one.state() == State::Terminated));
    let again = yard.verb(&["delete", "pool", CLASS, "--yes"]).await;
    assert_eq!(again.code, Some(1), "there is none any more: {again:?}");
    yard.stop().await;
}
