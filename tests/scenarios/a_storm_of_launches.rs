use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use runyard_core::model::InstanceId;
use runyard_core::ports::{Compute, ComputeError, LaunchOrder, Launched, Machine, MachineState};
use runyard_operator::limits::{Limited, Limits};
use tokio::time::Instant;

use runyard_tests::world::{World, settings};

/// A token bucket as the account has it.
struct Bucket {
    tokens: f64,
    burst: f64,
    per_second: f64,
    at: Instant,
}

impl Bucket {
    fn new(burst: f64, per_second: f64) -> Self {
        Self { tokens: burst, burst, per_second, at: Instant::now() }
    }

    fn fill(&mut self) -> f64 {
        let now = Instant::now();
        let passed = (now - std::mem::replace(&mut self.at, now)).as_secs_f64();
        self.tokens = (self.tokens + passed * self.per_second).min(self.burst);
        self.tokens
    }
}

/// What the account saw.
#[derive(Default)]
struct Seen {
    calls: u32,
    throttled: u32,
    launched: u32,
    last: Duration,
    /// When each class had each share of its machines.
    by_class: BTreeMap<String, u32>,
    /// The classes as they stood when half of everything was launched.
    at_half: BTreeMap<String, u32>,
}

/// An account: makes machines as long as its buckets allow, and takes a moment to answer.
struct Account {
    inner: Arc<dyn Compute>,
    buckets: Mutex<(Bucket, Bucket)>,
    seen: Arc<Mutex<Seen>>,
    begun: Instant,
    total: u32,
}

#[async_trait]
impl Compute for Account {
    fn keeps_inventory(&self) -> bool {
        self.inner.keeps_inventory()
    }

    async fn launch(&self, order: &LaunchOrder) -> Result<Launched, ComputeError> {
        let digits = order.launch.client_token.bytes().map(u64::from).sum::<u64>();
        tokio::time::sleep(Duration::from_millis(40 + digits % 400)).await;
        let count = f64::from(order.launch.count);
        {
            let (mut buckets, mut seen) = (self.buckets.lock().unwrap(), self.seen.lock().unwrap());
            seen.calls += 1;
            let (calls, instances) = &mut *buckets;
            if calls.fill() < 1.0 || instances.fill() < count {
                seen.throttled += 1;
                return Err(ComputeError::Throttled);
            }
            calls.tokens -= 1.0;
            instances.tokens -= count;
            seen.launched += order.launch.count;
            seen.last = self.begun.elapsed();
            *seen.by_class.entry(order.launch.resource_class.to_string()).or_default() += order.launch.count;
            if seen.at_half.is_empty() && seen.launched * 2 >= self.total {
                seen.at_half = seen.by_class.clone();
            }
        }
        self.inner.launch(order).await
    }

    async fn terminate(&self, ids: &[InstanceId]) -> Result<(), ComputeError> {
        self.inner.terminate(ids).await
    }

    async fn describe(&self, ids: &[InstanceId]) -> Result<BTreeMap<InstanceId, MachineState>, ComputeError> {
        self.inner.describe(ids).await
    }

    async fn list(&self) -> Result<Vec<Machine>, ComputeError> {
        self.inner.list().await
    }
}

/// 5 000 machines for five classes, one of which wants thirty times what another does, through the real operator and
/// its limiter, from an account that grants 1 000 machines at once and two a second afterwards.
#[tokio::test(start_paused = true)]
async fn five_thousand_launches_use_the_accounts_rate_and_no_class_delays_another() {
    let wanted = [("a", 3000_u32), ("b", 1000), ("c", 600), ("d", 300), ("e", 100)];
    let total: u32 = wanted.iter().map(|(_, count)| count).sum();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let mut settings = settings("storm");
    // Nobody plays the agents here: the machines boot all the while, and the table is not read over and over.
    (settings.timing.created, settings.timing.stale) =
        (Duration::from_secs(1 << 20), Duration::from_secs(1 << 20));
    (settings.timing.resync, settings.sweep) = (Duration::from_secs(3600), Duration::from_secs(3600));
    let world = World::new();
    for (class, count) in wanted {
        world
            .pool(serde_json::json!({
                "resourceClass": class, "cpu": 2, "mmem": 4096, "desired": count, "max": count,
            }))
            .await;
    }
    let account = Account {
        inner: Arc::new(world.compute.clone()),
        buckets: Mutex::new((Bucket::new(4.0, 2.0), Bucket::new(1000.0, 2.0))),
        seen: seen.clone(),
        begun: Instant::now(),
        total,
    };
    let limited = Limited::new(Arc::new(account), &Limits::default());
    let stop = world.start_with(settings, Arc::new(limited));
    let done = async || seen.lock().unwrap().launched == total && world.instances().len() == total as usize;
    let end = Instant::now() + Duration::from_secs(3000);
    while !done().await {
        assert!(Instant::now() < end, "{} of {total}", seen.lock().unwrap().launched);
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    stop.cancel();
    let seen = seen.lock().unwrap();
    // The first thousand come at once, as fast as calls may be made.
    let optimum = f64::from(total - 1000) / 2.0;
    let share = optimum / seen.last.as_secs_f64();
    let throttled = f64::from(seen.throttled) / f64::from(seen.calls);
    println!(
        "{total} machines in {:.0} s, {:.1} % of the optimum ({optimum:.0} s); {} calls, {} throttled ({:.2} %); at half: {:?}",
        seen.last.as_secs_f64(),
        share * 100.0,
        seen.calls,
        seen.throttled,
        throttled * 100.0,
        seen.at_half
    );
    assert!(share >= 0.95, "{share}");
    assert!(throttled <= 0.01, "{throttled}");
    for (class, count) in wanted {
        let had = seen.at_half.get(class).copied().unwrap_or(0);
        assert!(had >= count.min(480), "{class} had {had} of {count} when half was launched");
    }
}
