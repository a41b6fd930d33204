//! Reads the records of the yard.

use runyard_core::model::{Item, Kind, Reading, Record, read};
use runyard_core::ports::{Store, StoreError};

/// Lists the whole table.
pub async fn everything(store: &dyn Store) -> Result<Vec<Item>, StoreError> {
    let mut items = Vec::new();
    let mut after = None;
    loop {
        let page = store.list(after.as_ref()).await?;
        items.extend(page.items);
        after = page.next;
        if after.is_none() {
            return Ok(items);
        }
    }
}

/// Returns the records of one kind.
pub(super) fn records<T: Record>(items: &[Item]) -> Vec<T> {
    let of_kind = items.iter().filter(|item| kind(item) == Some(T::KIND));
    let readable = of_kind.filter_map(|item| match read::<T>(item) {
        Reading::Record(record) => Some(record),
        Reading::Newer { .. } | Reading::Unreadable(_) => None,
    });
    readable.collect()
}

fn kind(item: &Item) -> Option<Kind> {
    match item.get("kind") {
        Some(runyard_core::model::AttributeValue::S(kind)) => kind.parse().ok(),
        Some(_) | None => None,
    }
}
