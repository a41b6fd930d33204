//! The records of ended requests in the history table, under the keys that they had in the yard's table.

use crate::model::{Item, RecordId, Request, RequestKey};
use crate::ports::{Store, StoreError};

/// Returns the record of a request that left the yard's table.
pub(crate) async fn record(history: &dyn Store, id: &RequestKey) -> Result<Option<Item>, StoreError> {
    let key = Request::key_of(id);
    let page = history.query(&key.pk(), &key.sk(), None).await?;
    Ok(page.items.into_iter().find(|item| RecordId::of(item).as_ref() == Some(&key)))
}

/// Returns the records of a run's requests that left the yard's table.
pub(crate) async fn of_run(history: &dyn Store, one: &RequestKey) -> Result<Vec<Item>, StoreError> {
    let (mut items, mut after) = (Vec::new(), None);
    loop {
        let page = history.query(&Request::key_of(one).pk(), "request#", after.as_ref()).await?;
        items.extend(page.items);
        after = page.next;
        if after.is_none() {
            return Ok(items);
        }
    }
}
