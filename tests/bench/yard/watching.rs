//! What does a claim cost while the table is listed, and on a stream of many shards? Each beside its opposite, by
//! turns.

use std::time::{Duration, Instant};

use runyard_core::model::{Lease, Phase, Reading, Versioned as _, read};
use runyard_core::ports::{Clock as _, Store as _};

use super::claims::{compare, cycle, millis, percentile, sorted, until_phase};
use super::fixture::{Fixture, Services, intent, key, release};
use super::floors::Figures;

/// Claims on a stream of so many shards beside claims on one of a single shard.
pub(crate) async fn shards(shards: usize, samples: usize, figures: &mut Figures) {
    let title = format!("a wire like AWS's, {shards} shards");
    let yards =
        [("a wire like AWS's, 1 shard", Services::Wire(1), 10), (title.as_str(), Services::Wire(shards), 10)];
    let [one, many] = compare(yards, samples, figures).await;
    figures.add(&format!("claim: {shards} shards over one"), many.claim / one.claim);
}

/// Claims asked for inside a list of so many records beside claims outside.
pub(crate) async fn list(records: usize, samples: usize, figures: &mut Figures) {
    let fixture = Fixture::lay(Services::Wire(1), records).await;
    cycle(&fixture, 1_000_000).await;
    let (mut inside, mut services) = (Vec::new(), Vec::new());
    for run in 0..samples {
        services.push(claim(&fixture, 5_000_000 + run).await);
        fixture.calls.take();
        ask(&fixture).await;
        // The list has begun once its first page was read.
        while !fixture.calls.take().iter().any(|call| call.name == "list") {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let run = 6_000_000 + run;
        let took = claim_of(&fixture, run).await;
        if !listed(&fixture).await {
            inside.push(took);
        }
        give_back(&fixture, run).await;
        while !listed(&fixture).await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    fixture.clear().await;
    let of = inside.len();
    assert!(of > 0, "no list of {records} records lasted as long as a claim");
    let (inside, services) = (sorted(inside), sorted(services));
    let shown = |times: &[f64]| format!("{:.0} / {:.0}", percentile(times, 0.5), percentile(times, 0.95));
    println!(
        "\na claim inside a list of {records} records, p50 / p95: {} ms ({of} of {samples} ended inside); outside: {} ms",
        shown(&inside),
        shown(&services)
    );
    let ratio = percentile(&inside, 0.5) / percentile(&services, 0.5);
    figures.add(&format!("claim: inside a list of {records} records over outside"), ratio);
}

async fn claim(fixture: &Fixture, run: usize) -> f64 {
    let took = claim_of(fixture, run).await;
    give_back(fixture, run).await;
    took
}

async fn claim_of(fixture: &Fixture, run: usize) -> f64 {
    fixture.store.write(&intent(run, fixture.clock.now())).await.unwrap();
    let asked = Instant::now();
    let ready = until_phase(fixture, &mut Vec::new(), &key(run), Phase::Ready).await;
    millis(ready.saturating_duration_since(asked))
}

async fn give_back(fixture: &Fixture, run: usize) {
    fixture.store.write(&release(run)).await.unwrap();
    until_phase(fixture, &mut Vec::new(), &key(run), Phase::Released).await;
}

async fn resync(fixture: &Fixture) -> Option<Lease> {
    let item = fixture.store.get(&Lease::key_of(Lease::RESYNC)).await.unwrap()?;
    match read::<Lease>(&item) {
        Reading::Record(lease) => Some(lease),
        Reading::Newer { .. } | Reading::Unreadable(_) => None,
    }
}

/// Asks for a list, as `runyard refresh` does.
async fn ask(fixture: &Fixture) {
    let now = Some(fixture.clock.now());
    let write = match resync(fixture).await {
        Some(before) => {
            let mut after = Lease { requested_at: now, ..before.clone() };
            after.advance(fixture.clock.now());
            after.replacing(&before)
        }
        None => {
            let lease = Lease {
                name: Lease::RESYNC.into(),
                holder: String::new(),
                token: 0,
                renewals: 0,
                term_seconds: 0.0,
                requested_at: now,
                completed_at: None,
                operator_version: None,
                history_until: None,
                version: 1,
                updated_at: now,
            };
            lease.creating()
        }
    };
    fixture.store.write(&write).await.unwrap();
}

/// Whether the list that was asked for came to its end.
async fn listed(fixture: &Fixture) -> bool {
    resync(fixture).await.is_some_and(|lease| lease.completed_at >= lease.requested_at)
}
