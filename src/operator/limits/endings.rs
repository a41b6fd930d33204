//! Batches terminations: those requested within a moment share one call, and a machine that cannot be terminated does
//! not hold up the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};

use super::line::Line;
use super::{GATHER, NOBODY, TOGETHER, in_line};
use crate::model::InstanceId;
use crate::ports::{Compute, ComputeError};

type Answers = BTreeMap<InstanceId, Result<(), ComputeError>>;
/// A call that all its callers drive together. A caller that gives up leaves it to the others; the call is dropped with
/// the last caller.
type Call = BoxFuture<'static, Arc<Answers>>;
/// The machines of a call; `None` once the call is being sent.
type Ids = Arc<Mutex<Option<BTreeSet<InstanceId>>>>;

/// Collects terminations into shared calls.
pub(super) struct Endings {
    inner: Arc<Inner>,
    gathering: Mutex<Option<(Ids, WeakShared<Call>)>>,
}

struct Inner {
    compute: Arc<dyn Compute>,
    line: Line,
}

impl Endings {
    pub(super) fn new(compute: Arc<dyn Compute>, line: Line) -> Self {
        Self { inner: Arc::new(Inner { compute, line }), gathering: Mutex::default() }
    }

    /// Terminates machines and returns the first error of any of them.
    pub(super) async fn end(&self, ids: &[InstanceId]) -> Result<(), ComputeError> {
        if ids.is_empty() {
            return Ok(());
        }
        let answers = self.join(ids).await;
        ids.iter().filter_map(|id| answers.get(id)).cloned().collect()
    }

    /// Returns the call that terminates these machines: the one that is still collecting, else a new one.
    fn join(&self, ids: &[InstanceId]) -> Shared<Call> {
        let mut gathering = locked(&self.gathering);
        if let Some((waiting, call)) = &*gathering
            && let Some(call) = call.upgrade()
            && let Some(waiting) = locked(waiting).as_mut()
        {
            waiting.extend(ids.iter().cloned());
            return call;
        }
        let waiting: Ids = Arc::new(Mutex::new(Some(ids.iter().cloned().collect())));
        let call = self.inner.clone().send(waiting.clone()).boxed().shared();
        *gathering = call.downgrade().map(|call| (waiting, call));
        call
    }
}

impl Inner {
    async fn send(self: Arc<Self>, waiting: Ids) -> Arc<Answers> {
        tokio::time::sleep(GATHER).await;
        let ids: Vec<InstanceId> = locked(&waiting).take().into_iter().flatten().collect();
        let mut answers = Answers::new();
        for ids in ids.chunks(TOGETHER) {
            self.batch(ids.to_vec(), &mut answers).await;
        }
        Arc::new(answers)
    }

    /// Sends a batch. A refused batch is halved until the refused machine is alone.
    async fn batch(&self, batch: Vec<InstanceId>, answers: &mut Answers) {
        let mut todo = vec![batch];
        while let Some(mut batch) = todo.pop() {
            let answer = in_line(&self.line, NOBODY, &[1.0], self.compute.terminate(&batch)).await;
            if let Err(ComputeError::Refused(_)) = answer
                && batch.len() > 1
            {
                let right = batch.split_off(batch.len() / 2);
                todo.extend([right, batch]);
                continue;
            }
            answers.extend(batch.into_iter().map(|id| (id, answer.clone())));
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
