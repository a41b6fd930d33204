//! The queues of a yard: each class's own queue, its dead-letter queue, and the queue of interruptions.

use crate::common::failure::{CliFailure, CliResult};
use crate::session::setup_step::{SetupStep, State};
use runyard_core::ports::QueueError;
use runyard_operator::aws::queues::{QueueState, Queues, WantedQueue};

/// Creates or corrects each queue in turn, or returns what would be done.
pub(super) async fn all(queues: &Queues, wanted: &[WantedQueue], dry_run: bool) -> CliResult<Vec<SetupStep>> {
    let mut done = Vec::new();
    for queue in wanted {
        let looked = if dry_run { queues.examine(queue).await } else { queues.ensure(queue).await };
        let state = match looked {
            Ok(QueueState::Present(differences)) if differences.is_empty() => State::Good,
            Ok(QueueState::Present(differences)) => State::Mended(differences),
            Ok(QueueState::Missing(with)) => State::Made(with),
            // Queues are hints: without them, the records suffice.
            Err(QueueError::NoService(_)) => State::Nowhere("none: this endpoint has no SQS"),
            Err(error) => {
                let fix = match error {
                    QueueError::Invalid(_) => {
                        "shorten the name of the table, the class or interruptions.queue"
                    }
                    QueueError::Missing
                    | QueueError::NoService(_)
                    | QueueError::Throttled
                    | QueueError::Unreachable(_)
                    | QueueError::Denied(_) => {
                        "check the permissions and the endpoint of SQS, then run init again"
                    }
                };
                return Err(CliFailure::error("queue", &queue.name, error.to_string(), fix));
            }
        };
        done.push(SetupStep::new("queue", &queue.name, state));
    }
    Ok(done)
}
