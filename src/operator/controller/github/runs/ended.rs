//! Releases the requests of runs that are over, and writes the workflow of a run into its requests.

use crate::decide::is_over;
use crate::model::{Event, EventType, Reading, ReleasedBy, Request, RequestKey, Versioned, read};
use crate::ports::StoreError;
use crate::ports::github::{RunState, WorkflowRun};

use super::RunWatch;
use super::known::{self, Requests};

/// How often a request is read again because another writer changed it.
const ATTEMPTS: u32 = 5;

impl RunWatch {
    /// Releases the open requests of a run whose attempts are over in this state.
    pub(super) async fn end(&self, requests: &Requests, state: RunState) -> Result<(), StoreError> {
        for (id, _) in requests.iter().filter(|(id, held)| held.live && is_over(state, id.attempt)) {
            self.release(id, state).await?;
        }
        Ok(())
    }

    /// Writes into the status that the run is over, on the version that was read; the decisions then release the
    /// request. The intent remains unchanged.
    async fn release(&self, id: &RequestKey, state: RunState) -> Result<(), StoreError> {
        for _ in 0..ATTEMPTS {
            // An unreadable request is ignored, and another writer may have released it first.
            let Some(request) = self.request(id).await?.filter(known::is_live) else { return Ok(()) };
            let now = self.clock.now();
            let mut next = request.clone();
            next.status.released_by = Some(ReleasedBy::RunEnded);
            next.advance(now);
            match self.store.write(&next.replacing(&request)).await {
                Ok(_) => {
                    self.report_end(id, state);
                    return Ok(());
                }
                // Another writer changed it; it is read again.
                Err(StoreError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        // It is looked up again soon.
        Err(StoreError::Contended)
    }

    fn report_end(&self, id: &RequestKey, state: RunState) {
        let message = match state {
            RunState::Completed { attempt } => {
                format!("{id}: GitHub says that attempt {attempt} of the run is completed; released")
            }
            RunState::Active { attempt } => {
                format!(
                    "{id}: GitHub says that the run is at attempt {attempt}, so this one is over; released"
                )
            }
        };
        let mut event = self.event(id, EventType::Normal, "RunEnded", message);
        event.to = Some(ReleasedBy::RunEnded.to_string());
        self.tell(id, &event);
    }

    /// Returns an event about a request, written or not.
    fn event(&self, about: &RequestKey, event_type: EventType, reason: &str, message: String) -> Event {
        let mut event = Event::new(&Request::key_of(about), self.entropy.hex(), self.clock.now(), "operator");
        (event.event_type, event.reason, event.message) = (event_type, reason.to_owned(), message);
        event
    }

    fn tell(&self, about: &RequestKey, event: &Event) {
        tracing::info!(request = %about, reason = %event.reason, message = %event.message, "a run at GitHub");
        self.events.send(event);
    }

    pub(super) fn report(&self, about: &RequestKey, event_type: EventType, reason: &str, message: String) {
        self.tell(about, &self.event(about, event_type, reason, message));
    }

    /// Writes the workflow of a run into its requests that are ready; waiting requests are not changed.
    pub(super) async fn note_workflow(
        &self,
        run: &WorkflowRun,
        requests: &Requests,
    ) -> Result<(), StoreError> {
        let unnamed = requests.iter().filter(|(id, held)| held.unnamed && id.attempt == run.attempt);
        for (id, _) in unnamed.filter(|_| !run.workflow.is_empty()) {
            let request = self.request(id).await?;
            let unnamed = |request: &Request| request.status.workflow.is_none() && known::is_live(request);
            let Some(request) = request.filter(unnamed) else { continue };
            let mut next = request.clone();
            next.status.workflow = Some(run.workflow.clone());
            next.advance(self.clock.now());
            match self.store.write(&next.replacing(&request)).await {
                // Another writer changed it meanwhile; the next lookup tries again.
                Ok(_) | Err(StoreError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads a request in the table, or in the history where it is known to have left the table.
    pub(super) async fn request(&self, key: &RequestKey) -> Result<Option<Request>, StoreError> {
        let item = match self.store.get(&Request::key_of(key)).await? {
            None => self.past_record(key).await?,
            there => there,
        };
        // Unreadable requests are ignored.
        Ok(item.and_then(|item| match read::<Request>(&item) {
            Reading::Record(request) => Some(request),
            Reading::Newer { .. } | Reading::Unreadable(_) => None,
        }))
    }
}
