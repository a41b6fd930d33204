//! How long does a warm claim take, and a release, and where does the time go?

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use runyard_core::model::{Operation, Phase, Reading, RecordId, Request, Write, read};
use runyard_core::ports::{Ringer as _, Store as _};

use super::fixture::{Fixture, Services, intent, key, release};
use super::floors::Figures;
use super::timed::Call;

/// Longest one step may take.
const LIMIT: Duration = Duration::from_secs(30);

/// What one run of samples gives.
pub(crate) struct Measured {
    /// Median of intent → `Ready`, in milliseconds.
    pub(crate) claim: f64,
    /// Median of the four store operations of a claim, done one after the other on the same store.
    pub(crate) floor: f64,
    phases: BTreeMap<usize, (&'static str, Vec<f64>)>,
}

pub(crate) fn heading() {
    println!(
        "\n{:<36}{:>9}{:>9}{:>9}{:>9}   {:>9}{:>9}{:>9}{:>9}{:>9}",
        "milliseconds", "claim p50", "p90", "p99", "max", "again p50", "p90", "p99", "max", "floor p50"
    );
}

pub(crate) fn percentile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

pub(crate) fn sorted(mut times: Vec<f64>) -> Vec<f64> {
    times.sort_by(f64::total_cmp);
    times
}

pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Waits for a state of a record to be written by the operator; every call until then.
async fn until(fixture: &Fixture, calls: &mut Vec<Call>, done: impl Fn(&Call) -> bool) -> Instant {
    let limit = tokio::time::Instant::now() + LIMIT;
    loop {
        let news = fixture.calls.take();
        let found = news.iter().find(|call| call.ok && done(call)).map(|call| call.ended);
        calls.extend(news);
        if let Some(at) = found {
            return at;
        }
        let news = tokio::time::timeout_at(limit, fixture.calls.news()).await;
        if news.is_err() {
            let did: Vec<_> = calls.iter().map(|call| (call.name, &call.keys, call.ok)).collect();
            panic!("the operator did not do its part in time; it did: {did:#?}");
        }
    }
}

/// Calls about a request: the operator's writes of it, in their order.
fn about(call: &Call, key: &RecordId) -> bool {
    call.name == "write" && call.keys.contains(key)
}

/// One workflow: asks, is served, gives back. Claim and release in milliseconds.
pub(crate) async fn cycle(fixture: &Fixture, run: usize) -> (f64, f64, Vec<Call>, Instant) {
    let (key, mut calls) = (key(run), Vec::new());
    fixture.calls.take();
    fixture.store.write(&intent(run, runyard_core::ports::Clock::now(fixture.clock.as_ref()))).await.unwrap();
    let asked = Instant::now();
    if let Some((bell, key)) = fixture.bell.clone().map(|bell| (bell, key.clone())) {
        tokio::spawn(async move { bell.ring(&key).await });
    }
    let ready = until_phase(fixture, &mut calls, &key, Phase::Ready).await;
    let claim_calls = std::mem::take(&mut calls);
    fixture.store.write(&release(run)).await.unwrap();
    let released = Instant::now();
    if let Some((bell, key)) = fixture.bell.clone().map(|bell| (bell, key.clone())) {
        tokio::spawn(async move { bell.ring(&key).await });
    }
    // Pooled: the second write of the instance after the release (idle, then pooled).
    let writes = std::cell::Cell::new(0);
    let free = until(fixture, &mut calls, |call| {
        let instance = call.name == "write" && call.keys.iter().any(|key| key.pk().starts_with("instance#"));
        writes.set(writes.get() + u32::from(instance));
        instance && writes.get() == 2
    })
    .await;
    until_phase(fixture, &mut calls, &key, Phase::Released).await;
    let claim = millis(ready.saturating_duration_since(asked));
    (claim, millis(free.saturating_duration_since(released)), claim_calls, asked)
}

/// Waits for a phase: the record is looked at, again after each write of it; the moment of the write that made it so.
pub(crate) async fn until_phase(
    fixture: &Fixture,
    calls: &mut Vec<Call>,
    key: &RecordId,
    phase: Phase,
) -> Instant {
    loop {
        let item = fixture.store.get(key).await.unwrap().unwrap();
        if let Reading::Record(request) = read::<Request>(&item)
            && request.phase() == phase
        {
            calls.extend(fixture.calls.take());
            let last = calls.iter().rfind(|call| call.ok && about(call, key));
            return last.map_or_else(Instant::now, |call| call.ended);
        }
        until(fixture, calls, |call| about(call, key)).await;
    }
}

/// Measures so many claims and prints their line.
pub(crate) async fn measure(
    title: &str,
    services: Services,
    records: usize,
    samples: usize,
    figures: &mut Figures,
) -> Measured {
    let [measured] = compare([(title, services, records)], samples, figures).await;
    measured
}

/// Measures so many claims on each of several yards, by turns, so that all are measured in the same weather.
pub(crate) async fn compare<const YARDS: usize>(
    yards: [(&str, Services, usize); YARDS],
    samples: usize,
    figures: &mut Figures,
) -> [Measured; YARDS] {
    let mut series = Vec::new();
    for (title, services, records) in yards {
        series.push(Series::begin(title, services, records).await);
    }
    for run in 0..samples {
        for series in &mut series {
            series.sample(run).await;
        }
    }
    let mut measured = Vec::new();
    for series in series {
        measured.push(series.end(figures).await);
    }
    measured.try_into().unwrap_or_else(|_| unreachable!("one of each yard"))
}

/// The claims of one yard.
struct Series {
    title: String,
    fixture: Fixture,
    cold: f64,
    claims: Vec<f64>,
    again: Vec<f64>,
    floors: Vec<f64>,
    phases: BTreeMap<usize, (&'static str, Vec<f64>)>,
    counts: BTreeMap<String, usize>,
}

impl Series {
    async fn begin(title: &str, services: Services, records: usize) -> Self {
        let fixture = Fixture::lay(services, records).await;
        // The first launches the machine.
        let (cold, ..) = cycle(&fixture, 1_000_000).await;
        for run in 0..10 {
            cycle(&fixture, 2_000_000 + run).await;
        }
        let (title, phases, counts) = (title.to_owned(), BTreeMap::new(), BTreeMap::new());
        let (claims, again, floors) = (Vec::new(), Vec::new(), Vec::new());
        Self { title, fixture, cold, claims, again, floors, phases, counts }
    }

    async fn sample(&mut self, run: usize) {
        self.floors.push(millis(floor(&self.fixture, run).await));
        let (claim, release, calls, asked) = cycle(&self.fixture, 3_000_000 + run).await;
        self.claims.push(claim);
        self.again.push(release);
        split(&calls, asked, &mut self.phases);
        let others = |call: &&Call| {
            call.name != "told"
                && !call
                    .keys
                    .iter()
                    .any(|key| key.pk().starts_with("lease#") || key.pk().starts_with("pool#"))
        };
        for call in calls.iter().filter(others) {
            *self.counts.entry(call.name.to_owned()).or_default() += 1;
        }
    }

    async fn end(self, figures: &mut Figures) -> Measured {
        let Self { title, fixture, cold, claims, again, floors, phases, counts } = self;
        fixture.clear().await;
        let samples = claims.len();
        let (claims, again, floors) = (sorted(claims), sorted(again), sorted(floors));
        let shown = |times: &[f64]| {
            let all = [0.5, 0.9, 0.99, 1.0].map(|share| format!("{:>9.1}", percentile(times, share)));
            all.concat()
        };
        println!(
            "{title:<36}{}   {}{:>9.1}   cold {cold:.0} ms, per claim {counts:?}/{samples}",
            shown(&claims),
            shown(&again),
            percentile(&floors, 0.5)
        );
        figures.add(
            &format!("{title}: reads a claim"),
            counts.get("get").copied().unwrap_or(0) as f64 / samples as f64,
        );
        Measured { claim: percentile(&claims, 0.5), floor: percentile(&floors, 0.5), phases }
    }
}

/// The four store operations of a claim one after the other: a transaction of two, a signal, two writes.
async fn floor(fixture: &Fixture, run: usize) -> Duration {
    let fresh = |part: &str| {
        let write = intent(4_000_000 + run, runyard_core::ports::Clock::now(fixture.clock.as_ref()));
        let key = RecordId::new(format!("floor#{part}#{run}"), "floor");
        let Operation::Create(mut item) = write.operation else { unreachable!("an intent creates") };
        item.insert("pk".into(), runyard_core::model::AttributeValue::S(key.pk().clone()));
        item.insert("sk".into(), runyard_core::model::AttributeValue::S(key.sk().clone()));
        Write::create(key, item)
    };
    let begun = Instant::now();
    fixture.store.transact(&[fresh("a"), fresh("b")]).await.unwrap();
    for part in ["c", "d", "e"] {
        fixture.store.write(&fresh(part)).await.unwrap();
    }
    begun.elapsed()
}

/// Where the time of a claim went.
fn split(calls: &[Call], asked: Instant, phases: &mut BTreeMap<usize, (&'static str, Vec<f64>)>) {
    let has = |call: &Call, prefix: &str| call.keys.iter().any(|key| key.pk().starts_with(prefix));
    let find = |name: &str, prefix: &str| calls.iter().find(|call| call.name == name && has(call, prefix));
    let last = |name: &str, prefix: &str| calls.iter().rfind(|call| call.name == name && has(call, prefix));
    let agent_told = calls.iter().find(|call| {
        let said = find("said", "agent#").map(|said| said.begun);
        call.name == "told" && has(call, "agent#") && said.is_some_and(|said| call.ended > said)
    });
    let steps = [
        ("the watch tells the intent", find("told", "request#acme/web").map(|call| call.ended)),
        ("decided, queue asked", find("transact", "instance#").map(|call| call.begun)),
        ("the claim's transaction", find("transact", "instance#").map(|call| call.ended)),
        ("the agent sees it (polls each ms)", find("said", "agent#").map(|call| call.begun)),
        ("the agent's write", find("said", "agent#").map(|call| call.ended)),
        ("the watch tells the signal", agent_told.map(|call| call.ended)),
        ("decided on it", find("write", "instance#").map(|call| call.begun)),
        ("the write of `running`", find("write", "instance#").map(|call| call.ended)),
        ("decided on it", last("write", "request#").map(|call| call.begun)),
        ("the write of `Ready`", last("write", "request#").map(|call| call.ended)),
    ];
    let mut before = asked;
    for (at, (what, moment)) in steps.into_iter().enumerate() {
        let Some(moment) = moment else { continue };
        let took = moment.saturating_duration_since(before);
        phases.entry(at).or_insert((what, Vec::new())).1.push(millis(took));
        before = before.max(moment);
    }
}

impl Measured {
    /// Prints where the time of a claim goes.
    pub(crate) fn print_phases(&self) {
        for (what, times) in self.phases.values() {
            let times = sorted(times.clone());
            println!(
                "    {what:<34}{:>7.2} ms (p90 {:.2})",
                percentile(&times, 0.5),
                percentile(&times, 0.9)
            );
        }
    }
}
