//! How long until an operator that begins knows everything, against a raw scan of the same table?

use std::time::{Duration, Instant};

use runyard_core::ports::Store as _;
use runyard_store::DynamoStore;

use super::fixture::{Fixture, Services};
use super::floors::Figures;

/// How long it takes to read the whole table, page by page.
async fn scan(store: &DynamoStore) -> Duration {
    let begun = Instant::now();
    let mut after = None;
    loop {
        after = store.list(after.as_ref()).await.unwrap().next;
        if after.is_none() {
            return begun.elapsed();
        }
    }
}

/// Measures and prints: medians of nine each.
pub(crate) async fn measure(records: usize, figures: &mut Figures) {
    let mut fixture = Fixture::lay(Services::Embedded, records).await;
    let (mut scans, mut restarts) = (Vec::new(), Vec::new());
    // By turns, so that both are measured in the same weather; the scan while no operator works.
    for _ in 0..9 {
        scans.push(fixture.restart(scan).await);
        restarts.push(fixture.listed_after);
    }
    scans.sort();
    restarts.sort();
    let calls = fixture.calls.take();
    let about = |call: &&super::timed::Call| {
        call.keys.iter().any(|key| key.pk().starts_with("instance#") || key.pk().starts_with("request#"))
    };
    let writes =
        calls.iter().filter(|call| call.name == "write" || call.name == "transact").filter(about).count();
    let (scan, restart) = (scans[4], restarts[4]);
    println!(
        "\nrestart with {records} records: {:.0} ms; a raw scan {:.0} ms; {writes} writes",
        restart.as_secs_f64() * 1000.0,
        scan.as_secs_f64() * 1000.0
    );
    figures.add("restart over a raw scan", restart.as_secs_f64() / scan.as_secs_f64());
    figures.add("restart: writes though nothing changed", writes as f64);
    fixture.clear().await;
}
