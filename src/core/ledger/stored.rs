//! Closed hours as items of the history table: those of a day are in one partition, in the order of their hours.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::hours::HourLine;
use crate::model::history::item_of;
use crate::model::{AttributeValue, Item, RecordId};

/// The value of `kind` of such a line.
const KIND: &str = "ledger";

/// Returns the partition of the day on which an hour begins, and the prefix of the sort keys of that hour's lines.
pub fn hour_lines(hour: Timestamp) -> (String, String) {
    let at = hour.to_zoned(TimeZone::UTC);
    (format!("ledger#{}", at.date()), format!("{:02}#", at.hour()))
}

impl HourLine {
    /// Returns the key under which every writer stores this line: there is one for each hour, class and correction.
    pub fn key(&self) -> RecordId {
        let (pk, prefix) = hour_lines(self.hour);
        let sk = format!("{prefix}{}#{}", self.resource_class, self.correction);
        RecordId::new(pk, sk)
    }

    /// Returns the item that is stored, and may be deleted after `keep_seconds`.
    pub fn to_item(&self, keep_seconds: i64) -> Item {
        item_of(self, self.key().key(), KIND, self.hour.as_second().saturating_add(keep_seconds))
    }

    /// Parses an item of the history table as a line.
    ///
    /// # Errors
    /// Describes the part of the item that cannot be read.
    pub fn of_item(item: &Item) -> Result<Self, String> {
        let row = AttributeValue::M(item.clone().into_iter().collect());
        serde_dynamo::from_attribute_value(row).map_err(|error| error.to_string())
    }
}
