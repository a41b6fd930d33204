//! Computes the counts for the hours of a week that keep a promise with the fewest idle hours: the next idle machine
//! always goes to the hour where it saves most late requests.

use crate::model::{Bins, HOURS};

use super::LATE;

/// The promise to keep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Promise {
    /// The least and the greatest count.
    pub bounds: (u32, u32),
    /// The most idle machine-hours in a week; none where there is no cap.
    pub most_hours: Option<f64>,
    /// The share of requests that may be late.
    pub late: f64,
    /// Whether an hour is judged by itself; else its neighbours and other days like it contribute to it.
    pub apart: bool,
}

impl Default for Promise {
    fn default() -> Self {
        Self { bounds: (0, u32::MAX), most_hours: None, late: LATE, apart: false }
    }
}

/// Counts by hour of the week.
#[derive(Clone, Debug, PartialEq)]
pub struct Levels {
    /// The count of each hour, Monday 00:00 first.
    pub by_hour: Vec<u32>,
    /// The share of the remembered requests that would have been late with these counts.
    pub late: f64,
    /// Whether the cap stopped it before the promise was kept.
    pub capped: bool,
}

/// The weight with which an hour contributes to another one, by their distance: a bell of two hours. Working days
/// contribute to each other in full, and so do days off: a few weeks are too few to tell a Monday from a Tuesday.
const NEAR: [f64; 7] = [1.0, 0.88, 0.61, 0.32, 0.14, 0.04, 0.01];
/// A need that was seen in fewer hours of the week is an incident and not a habit.
const HABIT: usize = 3;

/// The expected requests by need, most needed last.
pub(super) type Needs = Vec<(u32, f64)>;

/// A part of the time that has one count.
pub(super) struct Part {
    /// Its hours per week.
    pub(super) hours: f64,
    /// The needs that it may expect.
    pub(super) needs: Needs,
}

/// The result of [`greedy`].
pub(super) struct Found {
    /// The count of each part.
    pub(super) counts: Vec<u32>,
    /// The share of requests that would be late.
    pub(super) late: f64,
    /// Whether the cap stopped it.
    pub(super) capped: bool,
}

/// Computes the best counts for the remembered needs.
pub fn levels(bins: &Bins, promise: Promise) -> Levels {
    let smooth = if promise.apart { apart(bins) } else { smoothed(&habits(bins)) };
    let parts: Vec<Part> = smooth.into_iter().map(|needs| Part { hours: 1.0, needs }).collect();
    let found = greedy(&parts, promise);
    Levels { by_hour: found.counts, late: found.late, capped: found.capped }
}

/// Spends idle hours where they save most.
pub(super) fn greedy(parts: &[Part], promise: Promise) -> Found {
    let (least, most) = promise.bounds;
    let mut counts = vec![least; parts.len()];
    let total: f64 = parts.iter().flat_map(|part| &part.needs).map(|(_, count)| count).sum();
    let over = |needs: &Needs, level: u32| -> f64 {
        needs.iter().filter(|(need, _)| *need > level).map(|(_, count)| count).sum()
    };
    let mut late: f64 = parts.iter().map(|part| over(&part.needs, least)).sum();
    let mut hours = f64::from(least) * parts.iter().map(|part| part.hours).sum::<f64>();
    let mut capped = false;
    while late > promise.late * total {
        // Of all steps to a higher count, the one that saves most for each idle hour; the first of equals.
        let steps = parts.iter().enumerate().flat_map(|(at, part)| {
            let level = counts[at];
            let higher =
                part.needs.iter().map(|(need, _)| *need).filter(move |need| *need > level && *need <= most);
            higher.map(move |need| {
                let (add, saved) = (
                    f64::from(need - level) * part.hours,
                    over(&part.needs, level) - over(&part.needs, need),
                );
                (saved / add, at, need, saved)
            })
        });
        let best = steps.fold(None, |best: Option<(f64, usize, u32, f64)>, step| match best {
            Some(best) if best.0 >= step.0 => Some(best),
            Some(_) | None => Some(step),
        });
        let Some((_, at, need, saved)) = best else { break };
        let add = f64::from(need - counts[at]) * parts[at].hours;
        if promise.most_hours.is_some_and(|most| hours + add > most) {
            capped = true;
            break;
        }
        counts[at] = need;
        hours += add;
        late -= saved;
    }
    let late = if total > 0.0 { (late / total).max(0.0) } else { 0.0 };
    Found { counts, late, capped }
}

/// Removes the needs above the greatest habitual one: one burst must not keep machines idle for weeks.
fn habits(bins: &Bins) -> Bins {
    let seen = |need: u32| bins.0.values().filter(|bin| bin.keys().next_back() >= Some(&need)).count();
    let needs: std::collections::BTreeSet<u32> =
        bins.0.values().flat_map(|bin| bin.keys().copied()).collect();
    let most = needs.into_iter().rev().find(|need| seen(*need) >= HABIT).unwrap_or(0);
    let kept = bins.0.iter().map(|(hour, bin)| (*hour, bin.range(..=most).map(|(n, c)| (*n, *c)).collect()));
    Bins(kept.collect())
}

/// Returns the needs seen in each hour, and nothing else.
fn apart(bins: &Bins) -> Vec<Needs> {
    let one = |hour: u16| {
        let needs = bins.0.get(&hour).into_iter().flatten();
        needs.map(|(need, count)| (*need, f64::from(*count))).collect()
    };
    (0..HOURS).map(one).collect()
}

/// Returns the needs that each hour may expect: those seen in it, and with less weight those seen near it and on days
/// like it.
fn smoothed(bins: &Bins) -> Vec<Needs> {
    let hours = i32::from(HOURS);
    let of = |hour: i32| bins.0.get(&(hour.rem_euclid(hours) as u16));
    let off = |day: i32| day >= 5;
    let one = |hour: i32| {
        let mut sums: std::collections::BTreeMap<u32, f64> = std::collections::BTreeMap::new();
        let mut weights = 0.0;
        for other in (0..7).filter(|other| off(*other) == off(hour / 24)) {
            for by in -6_i32..=6 {
                let weight = NEAR[by.unsigned_abs() as usize];
                weights += weight;
                for (need, count) in of(other * 24 + hour % 24 + by).into_iter().flatten() {
                    *sums.entry(*need).or_default() += weight * f64::from(*count);
                }
            }
        }
        sums.into_iter().map(|(need, sum)| (need, sum / weights)).collect()
    };
    (0..hours).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bins(text: &str) -> Bins {
        Bins::from(text.to_owned())
    }

    #[test]
    fn a_machine_is_kept_where_requests_come_and_nowhere_else() {
        let busy =
            levels(&bins("9=1:10000;33=1:10000;57=1:10000"), Promise { late: 0.3, ..Promise::default() });
        assert!(busy.by_hour[9] == 1 && busy.by_hour[33] == 1, "{:?}", busy.by_hour);
        assert_eq!(busy.by_hour[120..], [0; 48], "nobody asks at the weekend");
        assert!(busy.late <= 0.3 && !busy.capped);
        assert_eq!(levels(&Bins::default(), Promise::default()).by_hour, vec![0; 168]);
    }

    #[test]
    fn a_cap_is_spent_where_it_saves_most_and_says_that_it_ended_it() {
        let all = bins("8=4:500;9=1:100000;20=4:1000;21=4:1000");
        let capped = levels(&all, Promise { most_hours: Some(3.0), ..Promise::default() });
        assert!(capped.capped && capped.late > LATE);
        assert_eq!(capped.by_hour.iter().sum::<u32>(), 3);
        assert!(capped.by_hour.iter().all(|level| *level <= 1), "{:?}", capped.by_hour);
    }

    #[test]
    fn a_burst_that_was_seen_once_keeps_no_machines() {
        let habit: Vec<String> = (8..18).map(|hour| format!("{hour}=1:1000")).collect();
        let burst = bins(&format!("{};40=32:9000", habit.join(";")));
        assert!(levels(&burst, Promise::default()).by_hour.iter().all(|level| *level <= 1));
    }

    #[test]
    fn bounds_hold_whatever_was_needed() {
        let bounded = levels(
            &bins("9=8:100000;10=8:100000;11=8:100000"),
            Promise { bounds: (1, 3), ..Promise::default() },
        );
        assert!(bounded.by_hour.iter().all(|level| *level == 1), "eight are needed and three allowed");
        let bounded = levels(
            &bins("8=2:100000;9=2:100000;10=2:100000"),
            Promise { bounds: (1, 3), ..Promise::default() },
        );
        assert_eq!((bounded.by_hour[9], bounded.by_hour[100]), (2, 1));
    }
}
