//! The context of a verb: the table, the clock, the actor, and the output.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::environment::Environment;
use crate::common::failure::{CliFailure, CliResult};
use crate::output::screen::Screen;
use runyard_core::model::kind_of;
use runyard_core::model::{
    AttributeValue, Event, EventType, Item, Kind, Reading, Record, RecordId, Repository, RequestKey, RunId,
    TableName, Unreadable, millis, read,
};
use runyard_core::ports::{Clock, Entropy, Page, PoolQueue, Ringer, Store, StoreError};

/// The context of a verb.
pub(crate) struct CliContext {
    /// The table.
    pub(crate) store: Arc<dyn Store>,
    /// The history table; `None` if the yard's name is too long for it. The table may not exist.
    pub(crate) history: Option<Arc<dyn Store>>,
    /// The pool queues, if there are any.
    pub(crate) queue: Option<Arc<dyn PoolQueue>>,
    /// The doorbell, if there is one; each write of `store` rings it.
    pub(crate) doorbell: Option<Arc<dyn Ringer>>,
    /// The wall clock.
    pub(crate) clock: Arc<dyn Clock>,
    /// The source of fresh names.
    pub(crate) entropy: Arc<dyn Entropy>,
    /// The table's name.
    pub(crate) table: TableName,
    /// The process's environment.
    pub(crate) environment: Environment,
    /// The output.
    pub(crate) screen: Screen,
}

/// An action of a person, as its event records it.
pub(crate) struct AuditEvent<'a> {
    /// The record that was changed.
    pub(crate) key: &'a RecordId,
    /// The reason: one stable word in CamelCase.
    pub(crate) reason: &'static str,
    /// The message: a sentence.
    pub(crate) message: String,
    /// The attribute's value before and after, if one word expresses it.
    pub(crate) change: Option<(String, String)>,
}

impl CliContext {
    /// Converts an error of the table to a failure for a person.
    pub(crate) fn failed(&self, error: &StoreError) -> CliFailure {
        CliFailure::of_store(&self.table, &self.environment, error)
    }

    /// Reads one item.
    pub(crate) async fn item(&self, key: &RecordId) -> CliResult<Option<Item>> {
        self.store.get(key).await.map_err(|error| self.failed(&error))
    }

    /// Reads every item of ours except events, which are many times as numerous in a week as all other items.
    pub(crate) async fn everything(&self) -> CliResult<Vec<Item>> {
        self.all_that(|item| match kind_of(item) {
            Some(
                Kind::Instance
                | Kind::Agent
                | Kind::Request
                | Kind::Pool
                | Kind::Launch
                | Kind::Lease
                | Kind::Queue,
            ) => true,
            Some(Kind::Event) | None => false,
        })
        .await
    }

    /// Reads the items of the table that match; items that do not match are dropped page by page.
    pub(crate) async fn all_that(&self, wanted: impl Fn(&Item) -> bool) -> CliResult<Vec<Item>> {
        let mut items = Vec::new();
        let mut after: Option<RecordId> = None;
        loop {
            let mut page = self.store.list(after.as_ref()).await.map_err(|error| self.failed(&error))?;
            page.items.retain(&wanted);
            if !gather(&mut items, page, &mut after) {
                return Ok(items);
            }
        }
    }

    /// Reads the items of one partition key whose sort keys begin with a prefix, in order.
    pub(crate) async fn under(&self, pk: &str, sk_prefix: &str) -> CliResult<Vec<Item>> {
        self.query(pk, sk_prefix).await.map_err(|error| self.failed(&error))
    }

    async fn query(&self, pk: &str, sk_prefix: &str) -> Result<Vec<Item>, StoreError> {
        let mut items = Vec::new();
        let mut after: Option<RecordId> = None;
        loop {
            let page = self.store.query(pk, sk_prefix, after.as_ref()).await?;
            if !gather(&mut items, page, &mut after) {
                return Ok(items);
            }
        }
    }

    /// Reads the records of a run's requests that left the table for the history, which they do a day after their end.
    /// None where there is no history table, or no right to it.
    pub(crate) async fn archived(&self, repository: &Repository, run_id: &RunId) -> CliResult<Vec<Item>> {
        let Some(history) = &self.history else { return Ok(Vec::new()) };
        let (pk, mut items, mut after) =
            (RecordId::partition(&repository.folded(), run_id), Vec::new(), None);
        loop {
            match history.query(&pk, "request#", after.as_ref()).await {
                Ok(page) => {
                    if !gather(&mut items, page, &mut after) {
                        return Ok(items);
                    }
                }
                Err(StoreError::NoTable(_) | StoreError::Denied(_)) => return Ok(Vec::new()),
                Err(error) => return Err(self.failed(&error)),
            }
        }
    }

    /// Reads the items of a run whose sort keys begin with a prefix. Keys have the repository in lower case, and older
    /// keys have it as spelled; if neither finds items, every other spelling is tried. A role that is confined to
    /// today's keys may not look for the others.
    pub(crate) async fn of_run(
        &self,
        repository: &Repository,
        run_id: &RunId,
        sk_prefix: &str,
    ) -> CliResult<Vec<Item>> {
        let folded = RecordId::partition(&repository.folded(), run_id);
        let mut items = self.under(&folded, sk_prefix).await?;
        let spelt = RecordId::partition(repository, run_id);
        if spelt != folded {
            match self.query(&spelt, sk_prefix).await {
                Ok(former) => items.extend(former),
                Err(StoreError::Denied(_)) => {}
                Err(error) => return Err(self.failed(&error)),
            }
        }
        if items.is_empty() {
            items = self.in_any_spelling(repository, run_id, sk_prefix).await?;
        }
        Ok(items)
    }

    /// Scans for the items of a run whose keys spell the repository with other capitals, which a query cannot find.
    async fn in_any_spelling(
        &self,
        repository: &Repository,
        run_id: &RunId,
        sk_prefix: &str,
    ) -> CliResult<Vec<Item>> {
        let ours = |item: &Item| {
            RecordId::of(item).is_some_and(|id| {
                let of_run = |key: &RequestKey| key.repository.is(repository) && key.run_id == *run_id;
                id.request().is_some_and(of_run) && id.sk().starts_with(sk_prefix)
            })
        };
        let (mut items, mut after) = (Vec::new(), None);
        loop {
            match self.store.list(after.as_ref()).await {
                Ok(mut page) => {
                    page.items.retain(&ours);
                    if !gather(&mut items, page, &mut after) {
                        return Ok(items);
                    }
                }
                Err(StoreError::Denied(_)) => return Ok(Vec::new()),
                Err(error) => return Err(self.failed(&error)),
            }
        }
    }

    /// Records a change in the audit trail. Best effort: a person who may make the change need not be allowed to write
    /// events.
    pub(crate) async fn record_event(&self, audit: AuditEvent<'_>) {
        let id = self.entropy.hex();
        let mut event = Event::new(audit.key, id, millis(self.clock.now()), &self.environment.actor());
        event.event_type = EventType::Normal;
        event.reason = audit.reason.to_owned();
        event.message = audit.message;
        (event.from, event.to) = audit.change.unzip();
        match self.store.append(&[event.to_item()]).await {
            Ok(0) => {}
            Ok(dropped) => tracing::info!(dropped, "the event was not recorded"),
            Err(error) => tracing::info!(%error, "the event was not recorded"),
        }
    }
}

fn gather(items: &mut Vec<Item>, page: Page, after: &mut Option<RecordId>) -> bool {
    items.extend(page.items);
    *after = page.next;
    after.is_some()
}

/// Parses an item as a record, or returns why it cannot be used.
pub(crate) fn readable<T: Record>(item: &Item) -> CliResult<T> {
    match read::<T>(item) {
        Reading::Record(record) => Ok(record),
        Reading::Newer { schema } => {
            let key = RecordId::of(item).map(|key| key.to_string()).unwrap_or_default();
            Err(CliFailure::newer(&key, schema))
        }
        Reading::Unreadable(Unreadable { key, problem }) => {
            Err(CliFailure::unreadable(&Unreadable { key, problem }))
        }
    }
}

/// Returns a text attribute.
pub(crate) fn text(value: impl ToString) -> AttributeValue {
    AttributeValue::S(value.to_string())
}

/// Returns a number attribute.
pub(crate) fn number(value: impl Into<u64>) -> AttributeValue {
    AttributeValue::N(value.into().to_string())
}

/// Builds attributes from pairs.
pub(crate) fn attributes<const N: usize>(pairs: [(&str, AttributeValue); N]) -> Item {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns an increment of one for each of these counters.
pub(crate) fn one_more<const N: usize>(names: [&str; N]) -> BTreeMap<String, i64> {
    names.into_iter().map(|name| (name.to_owned(), 1)).collect()
}

#[cfg(test)]
impl CliContext {
    /// Creates a context on a table in memory, without queues or a person.
    pub(crate) fn on(store: runyard_fakes::MemoryStore, screen: Screen) -> Self {
        Self {
            store: Arc::new(store),
            history: None,
            queue: None,
            doorbell: None,
            clock: Arc::new(runyard_fakes::TokioClock::starting(jiff::Timestamp::UNIX_EPOCH)),
            entropy: Arc::new(runyard_fakes::SeededEntropy::new(1)),
            table: TableName::parse("runyard").expect("a name"),
            environment: Environment::default(),
            screen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::format::Format;
    use runyard_fakes::MemoryStore;

    #[tokio::test]
    async fn everything_is_all_of_ours_but_events() {
        let store = MemoryStore::new().paged(2);
        let keys = [
            ("instance#arn:aws:ec2:local:000000000000:instance/i-1", "instance"),
            ("note#1", "note"),
            ("pool#a", "event#2026-01-01T00:00:00Z#1"),
            ("pool#a", "note"),
            ("pool#a", "pool"),
            ("request#a/b#1", "event#2026-01-01T00:00:00Z#2"),
            ("request#a/b#1", "request#default#1"),
        ];
        for (pk, sk) in keys {
            store.put(attributes([("pk", text(pk)), ("sk", text(sk)), ("kind", text("pool"))]));
        }
        let context = CliContext::on(store, Screen::nowhere(Format::Text));
        let sorted = |items: Vec<Item>| {
            let mut keys: Vec<RecordId> = items.iter().filter_map(RecordId::of).collect();
            keys.sort();
            keys
        };
        let expected = [0, 4, 6].map(|at: usize| RecordId::new(keys[at].0, keys[at].1));
        assert_eq!(sorted(context.everything().await.unwrap()), expected);
        assert_eq!(sorted(context.all_that(|_| true).await.unwrap()).len(), keys.len());
    }
}
