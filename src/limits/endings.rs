//! Which machines end together? Those whose end is asked for within a moment share a call; one that cannot be ended
//! holds up no other.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use super::line::Line;
use super::{GATHER, NOBODY, TOGETHER, in_line};
use crate::model::InstanceId;
use crate::ports::{Compute, ComputeError};

type Waiting = (InstanceId, oneshot::Sender<Result<(), ComputeError>>);

/// Terminations that wait for company.
pub(super) struct Endings(Arc<Inner>);

struct Inner {
    compute: Arc<dyn Compute>,
    line: Line,
    waiting: Mutex<Vec<Waiting>>,
}

impl Endings {
    pub(super) fn new(compute: Arc<dyn Compute>, line: Line) -> Self {
        Self(Arc::new(Inner { compute, line, waiting: Mutex::default() }))
    }

    /// Ends machines; the first error of any of them.
    pub(super) async fn end(&self, ids: &[InstanceId]) -> Result<(), ComputeError> {
        let mut answers = Vec::new();
        let first = {
            let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let first = waiting.is_empty();
            for id in ids {
                let (tell, answer) = oneshot::channel();
                waiting.push((id.clone(), tell));
                answers.push(answer);
            }
            first && !ids.is_empty()
        };
        if first {
            // Apart from the caller, whose giving up would leave the others waiting.
            tokio::spawn(self.0.clone().send());
        }
        let mut all = Ok(());
        for answer in answers {
            let unanswered = || Err(ComputeError::Unknown("the call that ends it was broken off".into()));
            all = all.and(answer.await.unwrap_or_else(|_| unanswered()));
        }
        all
    }
}

impl Inner {
    async fn send(self: Arc<Self>) {
        tokio::time::sleep(GATHER).await;
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        let mut rest = waiting.into_iter().peekable();
        while rest.peek().is_some() {
            self.batch(rest.by_ref().take(TOGETHER).collect()).await;
        }
    }

    /// A batch that is refused is halved until who is to blame stands alone.
    async fn batch(&self, batch: Vec<Waiting>) {
        let mut todo = vec![batch];
        while let Some(mut batch) = todo.pop() {
            let ids: Vec<InstanceId> = batch.iter().map(|(id, _)| id.clone()).collect();
            let answer = in_line(&self.line, NOBODY, &[1.0], self.compute.terminate(&ids)).await;
            if let Err(ComputeError::Refused(_)) = answer
                && batch.len() > 1
            {
                let right = batch.split_off(batch.len() / 2);
                todo.extend([right, batch]);
                continue;
            }
            for (_, tell) in batch {
                // Who asked may have gone away.
                let _ = tell.send(answer.clone());
            }
        }
    }
}
