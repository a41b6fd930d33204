//! The leader lease: one holder at a time, distinguished from former ones by a token that only rises.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::field::FieldError;
use super::identity::{Kind, RecordId};
use super::ids::Uid;
use super::time::after;
use crate::model::record::{Record, Versioned};

/// The lease record. `lease#resync` uses the same kind of record to ask for a resync, see [`Lease::RESYNC`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// The name, from the key.
    #[serde(skip)]
    pub name: String,
    /// The holder; empty when it was handed back.
    #[serde(default)]
    pub holder: String,
    /// Rises with each change of holder.
    #[serde(default)]
    pub token: u64,
    /// Rises with each renewal; others watch it to see that the holder is alive.
    #[serde(default)]
    pub renewals: u64,
    /// How long others wait without a renewal before they take it, in seconds.
    #[serde(default)]
    pub term_seconds: f64,
    /// `lease#resync`: when a resync was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_at: Option<Timestamp>,
    /// `lease#resync`: when one that began after that was completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// `lease#operator`: the version of the program that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_version: Option<String>,
    /// `lease#operator`: the history table has everything that had ended at this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_until: Option<Timestamp>,
    /// The number of writes.
    pub version: u64,
    /// When it was last written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Timestamp>,
}

/// Longest term that is accepted, in seconds.
const LONGEST_TERM: f64 = 86_400.0;

impl Lease {
    /// Returns the key of a lease.
    pub fn key_of(name: &str) -> RecordId {
        RecordId::Lease(name.into())
    }

    /// The lease whose holder may launch.
    pub const OPERATOR: &str = "operator";

    /// Returns why no operator holds it, if none does. A holder renews it three times a term and loses it after one;
    /// two more terms allow for clocks that differ, and `blind` for a reader that could not see renewals for that time.
    pub fn lapsed(&self, now: Timestamp, blind: Duration) -> Option<String> {
        if self.holder.is_empty() {
            return Some("the last operator handed the lease back, and none took it".into());
        }
        let term = Duration::try_from_secs_f64(self.term_seconds).unwrap_or_default();
        let renewed = self.updated_at?;
        let late = after(renewed, (term * 3).saturating_add(blind)) < now;
        late.then(|| format!("{} has not renewed the lease since {renewed}", self.holder))
    }

    /// The record by which people ask for a resync.
    pub const RESYNC: &str = "resync";
}

impl Record for Lease {
    const KIND: Kind = Kind::Lease;
    type Row = Self;

    fn key(&self) -> RecordId {
        Self::key_of(&self.name)
    }

    fn to_row(&self) -> Self {
        self.clone()
    }

    fn from_row(key: &RecordId, row: Self) -> Result<Self, FieldError> {
        let name = key.pk().strip_prefix("lease#").unwrap_or_default().to_owned();
        if !(0.0..=LONGEST_TERM).contains(&row.term_seconds) {
            let (value, fix) =
                (row.term_seconds.to_string(), "let the holder write it again, or remove the record");
            return Err(FieldError::new("termSeconds", value, "not a time between 0 and a day", fix));
        }
        Ok(Self { name, ..row })
    }
}

impl Versioned for Lease {
    fn version(&self) -> u64 {
        self.version
    }

    fn uid(&self) -> Option<&Uid> {
        None
    }

    fn advance(&mut self, now: Timestamp) {
        self.version += 1;
        self.updated_at = Some(now);
    }
}
