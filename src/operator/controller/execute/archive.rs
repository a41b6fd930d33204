//! Moves the records of ended requests to the history table, and reads what it has under the key of a new one.

use std::time::Duration;

use crate::controller::records::archive;
use crate::model::{Guard, Reading, Request, RequestKey, Write, read};
use crate::ports::StoreError;
use crate::yard::Observation;

use super::{Executor, Failure};

/// How long a new request waits for the history table; afterwards it is served as if it were not there.
const PATIENCE: Duration = Duration::from_secs(1);

impl Executor {
    /// Copies the record of an ended request to the history table, and removes it once it is there. A crash between the
    /// two is repeated: the copy is the same.
    pub(super) async fn archive(&self, id: &RequestKey) -> Result<Vec<Observation>, Failure> {
        let Some(history) = self.ports.history.as_ref() else { return Ok(Vec::new()) };
        let (key, begun) = (Request::key_of(id), self.ports.clock.elapsed());
        let item = self.ports.store.get(&key).await.map_err(Failure::Store)?;
        let ended = item.as_ref().and_then(|item| match read::<Request>(item) {
            Reading::Record(request) if request.phase().is_final() => Some(request),
            Reading::Record(_) | Reading::Newer { .. } | Reading::Unreadable(_) => None,
        });
        let (Some(item), Some(request)) = (item.clone(), ended) else {
            return Ok(vec![Observation::Looked(begun, key, item)]);
        };
        // One that got no machine, as it was refused because of its key, does not replace the record of the one before.
        let served = !request.status.served.is_empty();
        if served || archive::record(&*history.store, id).await.map_err(Failure::Store)?.is_none() {
            match history.store.append(&[item]).await.map_err(Failure::Store)? {
                0 => {}
                _ => return Err(Failure::Store(StoreError::Throttled)),
            }
        }
        let write = Write::delete(key.clone(), Guard::image(&request));
        self.ports.store.write(&write).await.map_err(Failure::Store)?;
        Ok(vec![Observation::Record(key, None)])
    }

    /// Reads how a request ended that had this key before. A history table that fails refuses nobody.
    pub(super) async fn recall(&self, id: RequestKey) -> Vec<Observation> {
        let Some(history) = self.ports.history.as_ref() else { return vec![Observation::Recalled(id, None)] };
        let found = match tokio::time::timeout(PATIENCE, archive::record(&*history.store, &id)).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => {
                tracing::warn!(request = %id, %error, "the history was not read: whether the key is new is not known");
                None
            }
            Err(_) => {
                tracing::warn!(request = %id, "the history did not answer: whether the key is new is not known");
                None
            }
        };
        let how = found.map(|item| match read::<Request>(&item) {
            Reading::Record(request) => {
                let at = request.status.ended_at.map(|at| format!(" at {at}")).unwrap_or_default();
                format!("{}{at}", request.phase())
            }
            Reading::Newer { .. } | Reading::Unreadable(_) => "by a newer program".to_owned(),
        });
        vec![Observation::Recalled(id, how)]
    }
}
