//! Closes the hours of the ledger: the activity of each class's machines in an hour is written once, to the history
//! table, under a key that only its first writer gets. Later findings are added as lines of their own.
//!
//! *Guarantees*: however many operators close an hour, concurrently or one after another, its lines add up to the hour
//! as the last of them saw it.

use jiff::{SignedDuration, Timestamp};

use crate::ledger::{self, Entry, HourLine, Period, Prices, hour_lines};
use crate::model::history::{HistoryLine, MachineLine, day_of, partitions};
use crate::model::{Item, Write};
use crate::ports::{Store, StoreError};

/// How long after its end an hour is closed: lines of machines are written late.
const AFTER: SignedDuration = SignedDuration::from_mins(15);
/// Number of hours that are examined each time: the last one, and those before it for late lines.
pub(crate) const HOURS: i64 = 3;
/// Number of hours that a new leader examines.
pub(crate) const DAY: i64 = 24;

/// Returns the last hours that can be closed, oldest first.
pub(crate) fn hours(now: Timestamp, how_many: i64) -> impl Iterator<Item = Timestamp> {
    let last = (now - AFTER).as_second().div_euclid(3600) - 1;
    (last - how_many + 1..=last).filter_map(|hour| Timestamp::from_second(hour * 3600).ok())
}

/// Closes hours from the history and the known activity beside it.
///
/// # Errors
/// The history table cannot be read or written.
pub(crate) async fn close_all(
    store: &dyn Store,
    hours: &[Timestamp],
    now: Timestamp,
    known: Vec<MachineLine>,
    prices: &Prices,
    keep: i64,
) -> Result<usize, StoreError> {
    let Some(first) = hours.first() else { return Ok(0) };
    let mut lines = known;
    for hour in (first.as_second()..=now.as_second()).step_by(3600) {
        let Ok(hour) = Timestamp::from_second(hour) else { continue };
        lines.extend(over_in(store, hour).await?);
    }
    close(store, hours.iter().copied(), &lines, prices, keep).await
}

/// Reads the periods of machines' lives that ended in an hour from the history.
async fn over_in(store: &dyn Store, hour: Timestamp) -> Result<Vec<MachineLine>, StoreError> {
    // The sort keys of a day's lines begin with their times.
    let begin = hour.to_string();
    let prefix = begin.split(':').next().unwrap_or_default();
    let mut lines = Vec::new();
    for partition in partitions(day_of(hour)) {
        for item in all(store, &partition, prefix).await? {
            if let Ok(HistoryLine::Machine(line)) = HistoryLine::of_item(&item) {
                lines.push(line);
            }
        }
    }
    Ok(lines)
}

/// Reads all items of a partition whose sort keys begin with a prefix.
async fn all(store: &dyn Store, pk: &str, prefix: &str) -> Result<Vec<Item>, StoreError> {
    let (mut items, mut after) = (Vec::new(), None);
    loop {
        let page = store.query(pk, prefix, after.as_ref()).await?;
        items.extend(page.items);
        after = page.next;
        if after.is_none() {
            return Ok(items);
        }
    }
}

/// Writes the missing lines of some hours and returns their number.
///
/// # Errors
/// The history table cannot be read or written. Lines already written remain, and the next call continues.
pub(crate) async fn close(
    store: &dyn Store,
    hours: impl Iterator<Item = Timestamp>,
    lines: &[MachineLine],
    prices: &Prices,
    keep: i64,
) -> Result<usize, StoreError> {
    let mut written = 0;
    for hour in hours {
        let from = hour.as_second();
        let entries = ledger::entries(lines, Period { from, to: from + 3600 });
        for line in missing(store, hour, &entries, prices).await? {
            match store.write(&Write::create(line.key(), line.to_item(keep))).await {
                Ok(_) => written += 1,
                // Another writer was first; the next pass adds the difference.
                Err(StoreError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(written)
}

/// Returns the lines that an hour lacks.
async fn missing(
    store: &dyn Store,
    hour: Timestamp,
    entries: &[Entry],
    prices: &Prices,
) -> Result<Vec<HourLine>, StoreError> {
    let before = written(store, hour).await?;
    let mut now = ledger::close(entries, hour, prices);
    // A class that had machines when it was written, and has none by present knowledge.
    for old in &before {
        if now.iter().all(|line| line.resource_class != old.resource_class) {
            now.push(HourLine { correction: 0, parts: Vec::new(), ..old.clone() });
        }
    }
    let lacks = |line: HourLine| {
        let same = |old: &&HourLine| old.resource_class == line.resource_class;
        let old: Vec<HourLine> = before.iter().filter(same).cloned().collect();
        if old.is_empty() { Some(line) } else { ledger::correction(&old, &line) }
    };
    Ok(now.into_iter().filter_map(lacks).collect())
}

/// Reads the lines of an hour. Unreadable lines of a newer program are omitted.
async fn written(store: &dyn Store, hour: Timestamp) -> Result<Vec<HourLine>, StoreError> {
    let (pk, prefix) = hour_lines(hour);
    let items = all(store, &pk, &prefix).await?;
    Ok(items.iter().filter_map(|item| HourLine::of_item(item).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::HourPart;
    use crate::model::UsageClass;
    use crate::model::history::{Activity, Span};
    use crate::prices;
    use runyard_fakes::MemoryStore;

    const HOUR: i64 = 1_790_000_000 / 3600 * 3600;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(HOUR + second).unwrap()
    }

    fn machine(number: u32, spans: &[(Activity, i64, i64)]) -> MachineLine {
        let id = format!("i-{number:017x}");
        MachineLine {
            instance_id: id.parse().unwrap(),
            instance_arn: format!("arn:aws:ec2:us-east-1:123456789012:instance/{id}").parse().unwrap(),
            resource_class: "small".parse().unwrap(),
            instance_type: "m7i.large".into(),
            availability_zone: "us-east-1a".into(),
            usage_class: UsageClass::OnDemand,
            launched_at: at(spans[0].1),
            spans: spans
                .iter()
                .map(|(activity, from, to)| Span {
                    activity: *activity,
                    from: at(*from),
                    to: at(*to),
                    request: None,
                })
                .collect(),
            held_by: None,
            ended: None,
        }
    }

    async fn seconds(store: &MemoryStore) -> (usize, i64) {
        let lines = written(store, at(0)).await.unwrap();
        (lines.len(), lines.iter().flat_map(|line| &line.parts).map(HourPart::lived).sum())
    }

    #[tokio::test]
    async fn two_operators_that_close_an_hour_write_it_once() {
        let (store, prices) = (MemoryStore::new(), prices::shipped());
        let lines = [machine(1, &[(Activity::Idle, 0, 3600)]), machine(2, &[(Activity::Idle, 600, 900)])];
        let hour = || std::iter::once(at(0));
        let (one, other) = tokio::join!(
            close(&store, hour(), &lines, &prices, 86_400),
            close(&store, hour(), &lines, &prices, 86_400)
        );
        assert_eq!(one.unwrap() + other.unwrap(), 1, "one of them writes the hour");
        assert_eq!(seconds(&store).await, (1, 3900));
        assert_eq!(close(&store, hour(), &lines, &prices, 86_400).await.unwrap(), 0, "and nobody again");
    }

    #[tokio::test]
    async fn what_comes_late_is_a_line_of_its_own_and_the_first_stays_as_it_is() {
        let (store, prices) = (MemoryStore::new(), prices::shipped());
        let early = [machine(1, &[(Activity::Idle, 0, 3600)])];
        let late = [early[0].clone(), machine(2, &[(Activity::Idle, 600, 900)])];
        let hour = || std::iter::once(at(0));
        close(&store, hour(), &early, &prices, 86_400).await.unwrap();
        let first = written(&store, at(0)).await.unwrap();
        let both = tokio::join!(
            close(&store, hour(), &late, &prices, 86_400),
            close(&store, hour(), &late, &prices, 86_400)
        );
        assert_eq!(both.0.unwrap() + both.1.unwrap(), 1);
        let all = written(&store, at(0)).await.unwrap();
        assert_eq!((&all[..1], all.len()), (first.as_slice(), 2));
        assert_eq!(seconds(&store).await, (2, 3900));
        // None of it was true: a correction reverses it.
        close(&store, hour(), &[], &prices, 86_400).await.unwrap();
        assert_eq!(seconds(&store).await, (3, 0));
    }

    #[test]
    fn an_hour_is_closed_a_quarter_after_its_end() {
        let closed = |second| hours(at(second), HOURS).last().map(|hour| hour.as_second() - HOUR);
        assert_eq!(closed(3600 + 14 * 60), Some(-3600));
        assert_eq!(closed(3600 + 15 * 60), Some(0));
        assert_eq!(hours(at(0), DAY).count(), 24);
    }
}
