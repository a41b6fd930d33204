//! Laws over random histories, and the rules one by one.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::*;
use crate::model::history::{Activity, Ended, MachineLine, Span};
use crate::model::{InstanceArn, InstanceId, Reason, RecordId, UsageClass};

/// Pseudo-random numbers that are the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut n = self.0;
        n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (n ^ (n >> 31)) % most
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }

    fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}

fn moment(millis: u64) -> Timestamp {
    Timestamp::from_millisecond(1_790_000_000_000 + millis as i64).unwrap()
}

fn request(repository: &str, run: u64) -> RecordId {
    let id = RecordId::new(format!("request#{repository}#{run}"), "request#default#1");
    assert!(id.request().is_some());
    id
}

fn line(number: usize, kind: &str, launched: Timestamp, spans: Vec<Span>) -> MachineLine {
    let id = format!("i-{number:017x}");
    let arn = format!("arn:aws:ec2:us-east-1:123456789012:instance/{id}");
    MachineLine {
        instance_id: InstanceId::parse(&id).unwrap(),
        instance_arn: InstanceArn::parse(&arn).unwrap(),
        resource_class: if number.is_multiple_of(3) { "gpu" } else { "small" }.parse().unwrap(),
        instance_type: kind.to_owned(),
        availability_zone: "us-east-1a".to_owned(),
        usage_class: if number.is_multiple_of(2) { UsageClass::Spot } else { UsageClass::OnDemand },
        launched_at: launched,
        spans,
        held_by: None,
        ended: None,
    }
}

fn span(activity: Activity, from: u64, to: u64, request: Option<&RecordId>) -> Span {
    Span { activity, from: moment(from), to: moment(to), request: request.cloned() }
}

/// Builds a history of some machines: their lines, and for each machine how many seconds it lived and whether it has
/// ended.
fn history(chance: &mut Chance) -> (Vec<MachineLine>, Vec<(u64, bool)>) {
    let requests: Vec<RecordId> =
        (0..6).map(|n| request(["acme/web", "acme/api", "other/lib"][n as usize % 3], n)).collect();
    let (mut lines, mut lives) = (Vec::new(), Vec::new());
    for number in 0..1 + chance.below(6) as usize {
        let kind = *chance.pick(&["m7i.large", "c7g.medium", "x9.large"]);
        let launched = chance.below(7_200_000);
        let (mut at, mut spans) = (launched, Vec::new());
        let mut go = |spans: &mut Vec<Span>, chance: &mut Chance, activity, request: Option<&RecordId>| {
            let longest = *chance.pick(&[900, 20_000, 3_600_000]);
            let to = at + chance.below(longest);
            spans.push(span(activity, at, to, request));
            at = to;
        };
        let bound = (chance.below(2) == 0).then(|| chance.pick(&requests).clone());
        go(&mut spans, chance, Activity::Starting, bound.as_ref());
        let mut serves = bound;
        for _ in 0..chance.below(4) {
            if let Some(request) = serves.take() {
                go(&mut spans, chance, Activity::Running, Some(&request));
                go(&mut spans, chance, Activity::Cleaning, Some(&request));
            }
            // A stretch ends where the machine enters the pool.
            lines.push(line(number, kind, moment(launched), std::mem::take(&mut spans)));
            go(&mut spans, chance, Activity::Idle, None);
            if chance.below(3) > 0 {
                let request = chance.pick(&requests).clone();
                go(&mut spans, chance, Activity::Claimed, Some(&request));
                serves = Some(request);
            }
        }
        let ended = chance.below(3) > 0;
        if ended {
            go(&mut spans, chance, Activity::Ending, None);
        }
        let end = spans.last().map_or(moment(launched), |span| span.to);
        let how = ended.then_some(Ended { at: end, reason: Reason::Surplus });
        lines.push(MachineLine { ended: how, ..line(number, kind, moment(launched), spans) });
        let lived = end.as_second() - moment(launched).as_second();
        lives.push((u64::try_from(lived).unwrap(), ended));
    }
    (lines, lives)
}

fn prices() -> Prices {
    let price = |text: &str| Price::parse(text).unwrap();
    let on_demand =
        BTreeMap::from([("m7i".to_owned(), price("0.1008")), ("c7g".to_owned(), price("0.0725"))]);
    let region = RegionPrices { on_demand, volume: price("0.08"), ..RegionPrices::default() };
    let mut prices = Prices {
        regions: BTreeMap::from([("us-east-1".to_owned(), region)]),
        volume_gib: 40,
        github_fee: price("0.002"),
        ..Prices::default()
    };
    for (step, text) in [(0, "0.03171"), (1_790_003_000, "0.0391"), (1_790_007_777, "0.028777")] {
        prices.spot.add("us-east-1a", "m7i.large", SpotPrice { from: step, price: price(text) });
    }
    prices
}

fn by_repository(entry: &Entry) -> String {
    entry.repository().map(ToString::to_string).unwrap_or_default()
}

/// Checks a law over many histories; a failure names its seed.
fn over_histories(law: impl Fn(&mut Chance, Vec<MachineLine>, Vec<(u64, bool)>) -> Result<(), String>) {
    for seed in 0..1500 {
        let mut chance = Chance(seed);
        let (lines, lives) = history(&mut chance);
        law(&mut chance, lines, lives).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

fn holds(truth: bool, why: &str) -> Result<(), String> {
    truth.then_some(()).ok_or_else(|| why.to_owned())
}

#[test]
fn every_second_of_every_machine_is_in_exactly_one_entry() {
    over_histories(|_, lines, lives| {
        let all = entries(&lines, Period::ALL);
        let lived: u64 = lives.iter().map(|(lived, _)| lived).sum();
        let minimum: u64 =
            lives.iter().map(|(lived, ended)| if *ended { 60u64.saturating_sub(*lived) } else { 0 }).sum();
        holds(all.iter().map(Entry::seconds).sum::<u64>() == lived, "the seconds are the machines' lives")?;
        holds(
            all.iter().map(|entry| entry.minimum).sum::<u64>() == minimum,
            "short lives are billed a minute",
        )?;
        let mut seen: BTreeMap<&InstanceArn, i64> = BTreeMap::new();
        for entry in &all {
            let until = seen.insert(&entry.machine.instance_arn, entry.to);
            holds(until.is_none_or(|until| until == entry.from), "no gap and no overlap")?;
        }
        Ok(())
    });
}

#[test]
fn lines_in_any_order_and_read_twice_make_the_same_entries() {
    over_histories(|chance, lines, _| {
        let once = entries(&lines, Period::ALL);
        let mut twice = [lines.clone(), lines].concat();
        chance.shuffle(&mut twice);
        holds(entries(&twice, Period::ALL) == once, "reading twice, in another order")
    });
}

#[test]
fn a_stretch_that_is_told_before_it_is_over_adds_nothing() {
    over_histories(|chance, lines, _| {
        let prices = prices();
        let sum = |lines: &[MachineLine]| {
            account(&entries(lines, Period::ALL), &prices, IdleShare::WarmClaims, by_repository)
        };
        let mut both = lines.clone();
        for line in &lines {
            let keep = 1 + chance.below(line.spans.len().max(1) as u64) as usize;
            let mut early = MachineLine { ended: None, ..line.clone() };
            early.spans.truncate(keep);
            if let Some(last) = early.spans.last_mut() {
                let length = u64::try_from(last.to.as_millisecond() - last.from.as_millisecond()).unwrap();
                last.to = last.from + jiff::SignedDuration::from_millis(chance.below(length + 1) as i64);
            }
            both.push(early);
        }
        chance.shuffle(&mut both);
        holds(sum(&both) == sum(&lines), "a part of what is told in whole")
    });
}

#[test]
fn the_money_of_rows_and_pools_is_the_money_of_all_by_every_rule() {
    over_histories(|_, lines, _| {
        let (all, prices) = (entries(&lines, Period::ALL), prices());
        let whole: Money =
            all.iter().filter_map(|entry| prices.of(entry).ok()).map(|p| p.cost + p.volume).sum();
        for rule in IdleShare::ALL {
            let made = account(&all, &prices, *rule, by_repository);
            let own: Money = made.rows.values().map(|row| row.own.cost()).sum();
            let idle: Money = made.rows.values().map(|row| row.idle).sum();
            let unshared: Money = made.unshared.values().copied().sum();
            let pools: Money = made.pools.values().map(Sum::cost).sum();
            holds(own + idle + unshared == whole && made.all.cost() == whole, "rows and rest are all")?;
            holds(idle + unshared == pools, "shared and unshared are what the pools had idle")?;
        }
        Ok(())
    });
}

#[test]
fn a_life_cut_into_periods_costs_what_it_costs_whole() {
    over_histories(|_, lines, _| {
        let prices = prices();
        let sum = |period| {
            let mut sum = Sum::default();
            for entry in entries(&lines, period) {
                sum.add(&entry, &prices);
            }
            sum
        };
        let mut parts = Sum::default();
        let (first, last) = (1_790_000_000 / 3600 * 3600, 1_790_000_000 + 40 * 3600);
        for from in (first..last).step_by(3600) {
            parts += &sum(Period { from, to: from + 3600 });
        }
        holds(parts == sum(Period::ALL), "hours add up to the whole")
    });
}

#[test]
fn closed_hours_have_all_seconds_and_a_correction_makes_up_for_what_came_late() {
    over_histories(|chance, lines, lives| {
        let prices = prices();
        let mut late = lines.clone();
        late.remove(chance.below(lines.len() as u64) as usize);
        let (early, now) = (entries(&late, Period::ALL), entries(&lines, Period::ALL));
        let mut seconds = 0;
        for hour in 0..40 {
            let hour = Timestamp::from_second((1_790_000_000 / 3600 + hour) * 3600).unwrap();
            let mut written = close(&early, hour, &prices);
            for line in close(&now, hour, &prices) {
                let of_class: Vec<HourLine> =
                    written.iter().filter(|old| old.resource_class == line.resource_class).cloned().collect();
                if of_class.is_empty() {
                    written.push(line);
                } else if let Some(more) = correction(&of_class, &line) {
                    let both = [of_class, vec![more.clone()]].concat();
                    holds(correction(&both, &line).is_none(), "a corrected hour needs no correction")?;
                    written.push(more);
                }
            }
            seconds += written.iter().flat_map(|line| &line.parts).map(HourPart::lived).sum::<i64>();
        }
        // The gap of a lost line counted as the pool's time and is moved, not lost.
        holds(
            seconds == lives.iter().map(|(lived, _)| *lived as i64).sum::<i64>(),
            "every second is in an hour",
        )
    });
}

#[test]
fn a_line_of_an_hour_names_two_hundred_repositories_and_sums_the_rest() {
    let at = 1_790_000_000 / 3600 * 3600 + 3600;
    let base = (at - 1_790_000_000) as u64 * 1000;
    let lines: Vec<MachineLine> = (0..230)
        .map(|n| {
            let (from, request) = (base + 1000 * n as u64, request(&format!("acme/r{n:03}"), 1));
            let to = from + 100_000 + 1000 * n as u64;
            line(3 * n, "m7i.large", moment(from), vec![span(Activity::Running, from, to, Some(&request))])
        })
        .collect();
    let hour = Timestamp::from_second(at).unwrap();
    let made = close(&entries(&lines, Period::ALL), hour, &prices());
    let [line] = made.as_slice() else { panic!("one class, one line: {}", made.len()) };
    assert_eq!(line.parts.len(), MOST_REPOSITORIES + 1);
    let other = line.parts.iter().find(|part| part.repository.as_deref() == Some(OTHER)).unwrap();
    assert_eq!(other.lived(), (0..30).map(|n| 100 + n).sum::<i64>(), "those with fewest seconds");
    let all: i64 = line.parts.iter().map(HourPart::lived).sum();
    assert_eq!(all, (0..230).map(|n| 100 + n).sum::<i64>());
    assert!(serde_json::to_string(line).unwrap().len() < 60_000, "far below what an item holds");
}

#[test]
fn a_machine_that_lived_ten_seconds_is_billed_a_minute_by_whom_it_served() {
    let request = request("acme/web", 1);
    let mut short = line(
        1,
        "m7i.large",
        moment(0),
        vec![span(Activity::Starting, 0, 4_000, Some(&request)), span(Activity::Ending, 4_000, 10_000, None)],
    );
    short.ended = Some(Ended { at: moment(10_000), reason: Reason::Surplus });
    let made = account(&entries([&short], Period::ALL), &prices(), IdleShare::None, by_repository);
    let row = &made.rows["acme/web"].own;
    assert_eq!((row.lived(), row.minimum, made.all.lived()), (4, 50, 10));
    let minute = Money::hourly(Price::parse("0.1008").unwrap(), 60);
    assert_eq!(made.all.money.cost, minute);
}

#[test]
fn idle_time_goes_to_those_who_took_machines_out_of_the_pool() {
    let (web, api) = (request("acme/web", 1), request("acme/api", 2));
    let lines = [
        line(1, "m7i.large", moment(0), vec![span(Activity::Starting, 0, 60_000, None)]),
        line(
            1,
            "m7i.large",
            moment(0),
            vec![
                span(Activity::Idle, 60_000, 360_000, None),
                span(Activity::Claimed, 360_000, 361_000, Some(&web)),
                span(Activity::Running, 361_000, 461_000, Some(&web)),
            ],
        ),
        line(
            5,
            "m7i.large",
            moment(0),
            vec![
                span(Activity::Starting, 0, 60_000, Some(&api)),
                span(Activity::Running, 60_000, 363_000, Some(&api)),
            ],
        ),
    ];
    let all = entries(&lines, Period::ALL);
    let idle = |rule| {
        let made = account(&all, &prices(), rule, by_repository);
        let of = |name: &str| made.rows[name].idle;
        (of("acme/web"), of("acme/api"), made.unshared.values().copied().sum::<Money>())
    };
    let whole = idle(IdleShare::None).2;
    assert_eq!(idle(IdleShare::None), (Money::ZERO, Money::ZERO, whole));
    assert_eq!(idle(IdleShare::WarmClaims), (whole, Money::ZERO, Money::ZERO));
    let (web, api, rest) = idle(IdleShare::BusySeconds);
    assert!(rest.is_zero() && web + api == whole && api > web && !web.is_zero(), "by 101 and 303 seconds");
}

#[test]
fn a_held_machine_costs_its_holder_and_no_request_and_no_pool() {
    let web = request("acme/web", 1);
    let spans = vec![
        span(Activity::Running, 0, 100_000, Some(&web)),
        span(Activity::Held, 100_000, 400_000, None),
        span(Activity::Ending, 400_000, 410_000, None),
    ];
    let held = MachineLine { held_by: Some("ada".into()), ..line(1, "m7i.large", moment(0), spans) };
    let by = |entry: &Entry| entry.holder.as_ref().map_or_else(|| by_repository(entry), ToString::to_string);
    let made = account(&entries([&held], Period::ALL), &prices(), IdleShare::WarmClaims, by);
    assert_eq!((made.rows["ada"].own.lived(), made.rows["ada"].requests), (300, 0));
    assert_eq!(made.rows["acme/web"].own.lived(), 100);
    assert_eq!(made.pools.values().map(Sum::lived).sum::<u64>(), 10, "what nobody held is the pool's");
    let nobody = MachineLine { held_by: None, ..held };
    let made = account(&entries([&nobody], Period::ALL), &prices(), IdleShare::None, by_repository);
    assert_eq!(made.pools.values().map(Sum::lived).sum::<u64>(), 310, "an old line does not say who");
}

#[test]
fn a_type_without_a_price_is_named_and_its_seconds_are_kept_apart() {
    let odd = line(1, "x9.large", moment(0), vec![span(Activity::Idle, 0, 100_000, None)]);
    let made = account(&entries([&odd], Period::ALL), &prices(), IdleShare::None, by_repository);
    assert_eq!((made.all.unpriced, made.all.lived()), (100, 100));
    let named: Vec<String> =
        made.unpriced.iter().map(|one| format!("{} {}", one.region, one.instance_type)).collect();
    assert_eq!(named, ["us-east-1 x9.large"]);
}

#[test]
fn a_closed_hour_survives_its_way_through_the_table() {
    let request = request("acme/web", 1);
    let lines = [line(
        3,
        "m7i.large",
        moment(0),
        vec![span(Activity::Idle, 0, 60_000, None), span(Activity::Running, 60_000, 90_000, Some(&request))],
    )];
    let hour = Timestamp::from_second(1_790_000_000 / 3600 * 3600).unwrap();
    let made = close(&entries(&lines, Period::ALL), hour, &prices());
    let item = made[0].to_item(86_400);
    assert_eq!(HourLine::of_item(&item).unwrap(), made[0]);
    assert_eq!(made[0].key().key().pk, "ledger#2026-09-21");
    assert_eq!(made[0].key().key().sk, "14#gpu#0");
    assert_eq!(made[0].parts.len(), 2);
}
