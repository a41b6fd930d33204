//! Closes the hours of the ledger: what the machines of each class did in an hour is written once, to the history table,
//! under a key that only its first writer gets. What becomes known later is a line of its own that is added.
//!
//! *Guarantees*: however many operators close an hour, at the same time or after one another, its lines add up to what
//! it was as the last of them knew it.

use jiff::{SignedDuration, Timestamp};

use crate::ledger::{self, Entry, HourLine, Period, Prices, hour_lines};
use crate::model::history::{HistoryLine, MachineLine, day_of, partitions};
use crate::model::{Item, Write};
use crate::ports::{Store, StoreError};

/// How long after its end an hour is closed: lines of machines are written late.
const AFTER: SignedDuration = SignedDuration::from_mins(15);
/// How many hours are looked at each time: the last one, and those before it for what came late.
pub(crate) const HOURS: i64 = 3;
/// How many are looked at by whoever begins.
pub(crate) const DAY: i64 = 24;

/// The last hours that can be closed, the oldest first.
pub(crate) fn hours(now: Timestamp, how_many: i64) -> impl Iterator<Item = Timestamp> {
    let last = (now - AFTER).as_second().div_euclid(3600) - 1;
    (last - how_many + 1..=last).filter_map(|hour| Timestamp::from_second(hour * 3600).ok())
}

/// Closes hours by what the history says and what is known beside it.
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

/// The stretches of machines' lives that were over in an hour, as the history has them.
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

/// All items of a partition whose sort keys begin so.
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

/// Writes what is not written yet of some hours; returns how many lines were.
///
/// # Errors
/// The history table cannot be read or written. What was written stays, and the next call goes on.
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
                // Somebody else wrote it; the next look adds what is different.
                Err(StoreError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(written)
}

/// The lines that an hour lacks.
async fn missing(
    store: &dyn Store,
    hour: Timestamp,
    entries: &[Entry],
    prices: &Prices,
) -> Result<Vec<HourLine>, StoreError> {
    let before = written(store, hour).await?;
    let mut now = ledger::close(entries, hour, prices);
    // A class that had machines as it was written, and has none as it is known now.
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

/// The lines that were written of an hour. What a newer program wrote and cannot be read is left out.
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
        // Nothing of it was true: a correction takes it back.
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
