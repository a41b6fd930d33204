//! How fast may the operator call EC2? EC2 grants calls and instances from token buckets of the account; this decorator
//! of the compute port keeps the same buckets and delays a call until its turn comes, so that EC2 does not refuse it.
//! Classes are served in the order of the tokens they have used, so that a burst of one class does not starve the
//! others. The decorator does not retry: the adapter retries below it, and the caller of a throttled call tries again
//! later.

mod endings;
mod line;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use self::endings::Endings;
use self::line::{Closed, Line};
use crate::model::{InstanceId, PoolSpec};
use crate::ports::{Compute, ComputeError, LaunchOrder, Launched, Machine, MachineState, StateReason};

/// A token bucket: its capacity and its refill rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Capacity of the bucket, in tokens.
    pub burst: u32,
    /// Refill rate, in thousandths of a token per second.
    pub milli: u32,
}

impl Rate {
    /// Returns a bucket of `burst` tokens that refills at `per_second` tokens a second.
    pub const fn new(burst: u32, per_second: u32) -> Self {
        Self { burst, milli: per_second * 1000 }
    }
}

/// The token buckets of `[limits]`; the defaults are EC2's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Calls that launch machines.
    pub launches: Rate,
    /// Machines that are launched.
    pub instances: Rate,
    /// Calls that terminate machines.
    pub changes: Rate,
    /// Calls that only read.
    pub looks: Rate,
}

impl Default for Limits {
    /// Returns the values of `config/default.toml`.
    fn default() -> Self {
        Self {
            launches: Rate::new(4, 2),
            instances: Rate::new(1000, 2),
            changes: Rate::new(50, 5),
            looks: Rate::new(100, 20),
        }
    }
}

/// The bucket for console output. Consoles are read for people and have a bucket of their own, so that a class whose
/// machines all fail takes nothing from the calls that serve requests.
const CONSOLES: Rate = Rate { burst: 10, milli: 500 };

/// The class name for calls that belong to no class.
const NOBODY: &str = "";

/// The compute port, kept within the account's limits. Requires a Tokio runtime.
pub struct Limited {
    inner: Arc<dyn Compute>,
    launches: Line,
    endings: Endings,
    looks: Line,
    consoles: Line,
}

impl Limited {
    /// Creates the decorator with full buckets, like those of an idle account.
    pub fn new(inner: Arc<dyn Compute>, limits: &Limits) -> Self {
        Self {
            launches: Line::new(&[limits.launches, limits.instances]),
            endings: Endings::new(inner.clone(), Line::new(&[limits.changes])),
            looks: Line::new(&[limits.looks]),
            consoles: Line::new(&[CONSOLES]),
            inner,
        }
    }

    async fn look<T>(&self, call: impl Future<Output = Result<T, ComputeError>>) -> Result<T, ComputeError> {
        in_line(&self.looks, NOBODY, &[1.0], call).await
    }
}

/// Makes a call when its turn comes. If EC2 throttles the call nevertheless, other clients use the same buckets, and
/// the line slows down.
async fn in_line<T>(
    line: &Line,
    whose: &str,
    needs: &[f64],
    call: impl Future<Output = Result<T, ComputeError>>,
) -> Result<T, ComputeError> {
    line.take(whose, needs).await.map_err(|Closed| ComputeError::Throttled)?;
    let answer = call.await;
    if let Err(ComputeError::Throttled) = answer {
        line.slow_down();
    }
    answer
}

#[async_trait]
impl Compute for Limited {
    fn keeps_inventory(&self) -> bool {
        self.inner.keeps_inventory()
    }

    fn why_ended(&self, id: &InstanceId) -> Option<StateReason> {
        self.inner.why_ended(id)
    }

    fn stop(&self) {
        self.launches.close();
        self.inner.stop();
    }

    async fn launch(&self, order: &LaunchOrder) -> Result<Launched, ComputeError> {
        let needs = [1.0, f64::from(order.launch.count)];
        let class = order.launch.resource_class.as_str();
        in_line(&self.launches, class, &needs, self.inner.launch(order)).await
    }

    async fn check(&self, spec: &PoolSpec) -> Result<(), ComputeError> {
        self.look(self.inner.check(spec)).await
    }

    async fn resolve(&self, spec: &PoolSpec) -> Result<String, ComputeError> {
        self.look(self.inner.resolve(spec)).await
    }

    async fn terminate(&self, ids: &[InstanceId]) -> Result<(), ComputeError> {
        self.endings.end(ids).await
    }

    async fn describe(&self, ids: &[InstanceId]) -> Result<BTreeMap<InstanceId, MachineState>, ComputeError> {
        self.look(self.inner.describe(ids)).await
    }

    async fn console(&self, id: &InstanceId) -> Result<Option<String>, ComputeError> {
        in_line(&self.consoles, NOBODY, &[1.0], self.inner.console(id)).await
    }

    async fn list(&self) -> Result<Vec<Machine>, ComputeError> {
        self.look(self.inner.list()).await
    }
}

/// How long terminations are collected before they are sent in one call.
const GATHER: Duration = Duration::from_millis(100);
/// Maximum number of machines in one termination call.
const TOGETHER: usize = 100;

#[cfg(test)]
mod tests;
