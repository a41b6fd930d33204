//! The sums of `runyard cost`, for people and for programs.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::By;
use super::sources::Lines;
use crate::output::format::{Format, plain};
use crate::output::screen::Screen;
use crate::output::table::columns;
use runyard_core::ledger;
use runyard_core::ledger::{Account, Entry, IdleShare, Money, Prices, Row, Sum, region_of};
use runyard_core::model::history::Activity;
use runyard_core::model::{ClassName, ShareBy, Sharing};

/// The names by which entries are grouped.
pub(super) struct Names<'a> {
    pub(super) by: By,
    pub(super) teams: &'a BTreeMap<String, String>,
    pub(super) lines: &'a Lines,
}

impl Names<'_> {
    fn of(&self, entry: &Entry) -> String {
        let unknown = || "(unknown)".to_owned();
        if self.by == By::Pool {
            return entry.machine.class.to_string();
        }
        let Some(request) = &entry.request else {
            return entry.holder.as_ref().map_or_else(unknown, |holder| format!("(held for {holder})"));
        };
        let Some((repository, run)) = self.lines.served(request) else { return unknown() };
        match self.by {
            By::Repository => repository.to_string(),
            By::Workflow => {
                let workflow = self.lines.workflow(request).map_or_else(unknown, str::to_owned);
                format!("{repository} {workflow}")
            }
            By::Team => {
                let sharing = Sharing { by: ShareBy::Team, ..Sharing::default() };
                sharing.share(&repository, self.teams)
            }
            By::Pool => entry.machine.class.to_string(),
            By::Run => format!("{repository} {run}"),
        }
    }

    const fn head(&self) -> (&'static str, &'static str) {
        match self.by {
            By::Repository => ("REPOSITORY", "repository"),
            By::Workflow => ("WORKFLOW", "workflow"),
            By::Team => ("TEAM", "team"),
            By::Pool => ("POOL", "resourceClass"),
            By::Run => ("RUN", "run"),
        }
    }
}

/// The output of `runyard cost`.
pub(super) struct Report {
    account: Account,
    head: (&'static str, &'static str),
    by: By,
    rule: IdleShare,
    from: Timestamp,
    to: Timestamp,
    sources: BTreeMap<String, String>,
    fee: bool,
}

/// Converts an amount to dollars for programs, to the nano-dollar.
pub(super) fn dollars(money: Money) -> Value {
    // A decimal with nine places has the same value for every reader.
    money.decimal(9).parse::<f64>().map_or(Value::Null, Value::from)
}

impl Report {
    pub(super) fn of(
        entries: &[Entry],
        prices: &Prices,
        rule: IdleShare,
        names: &Names<'_>,
        from: Timestamp,
        to: Timestamp,
    ) -> Self {
        let rule = if names.by == By::Pool { IdleShare::None } else { rule };
        let mut account = ledger::account(entries, prices, rule, |entry| names.of(entry));
        if names.by == By::Pool {
            // A pool's idle machines are its own under every rule.
            let unknown = std::mem::take(&mut account.unshared_unpriced);
            for (class, left) in std::mem::take(&mut account.unshared) {
                let row = account.rows.entry(class.to_string()).or_default();
                row.idle += left;
                row.idle_unpriced |= unknown.contains(&class);
            }
        }
        let mut sources = BTreeMap::new();
        for entry in entries {
            let region = region_of(&entry.machine.zone);
            if let Some(prices) = prices.regions.get(region) {
                sources.insert(region.to_owned(), prices.source.clone());
            }
        }
        let fee = prices.github_fee != ledger::Price::ZERO;
        Self { account, head: names.head(), by: names.by, rule, from, to, sources, fee }
    }

    /// Returns the rows, most expensive first.
    fn rows(&self) -> Vec<(&String, &Row)> {
        let mut rows: Vec<_> = self.account.rows.iter().collect();
        rows.sort_by(|(a, left), (b, right)| (total(right), a).cmp(&(total(left), b)));
        rows
    }

    fn unshared(&self) -> Figure {
        let known = self.account.unshared.values().copied().sum();
        Figure { known, lacks: !self.account.unshared_unpriced.is_empty() }
    }

    /// Returns the idle time of a row's pool, if rows are pools.
    fn idle_of(&self, row: &str) -> Option<&Sum> {
        let is = |class: &&ClassName| class.as_str() == row;
        let class = self.account.pools.keys().find(is).filter(|_| self.by == By::Pool)?;
        self.account.pools.get(class)
    }

    pub(super) fn document(&self) -> Value {
        let items: Vec<Value> = self
            .rows()
            .into_iter()
            .map(|(name, row)| {
                let mut item = sums(&row.own);
                item[self.head.1] = json!(name);
                item["requests"] = json!(row.requests);
                if let Some(idle) = self.idle_of(name) {
                    item["poolSeconds"] = json!(idle.lived());
                }
                item["idleCost"] = Figure::idle(row).value();
                item["totalCost"] = Figure::total(row).value();
                item
            })
            .collect();
        let pools: Vec<Value> = self
            .account
            .pools
            .iter()
            .map(|(class, sum)| {
                let mut item = sums(sum);
                item["resourceClass"] = json!(class);
                let known = self.account.unshared.get(class).copied().unwrap_or(Money::ZERO);
                let lacks = self.account.unshared_unpriced.contains(class);
                item["unsharedCost"] = Figure { known, lacks }.value();
                item
            })
            .collect();
        let unpriced: Vec<Value> = self
            .account
            .unpriced
            .iter()
            .map(|one| json!({"region": one.region, "instanceType": one.instance_type}))
            .collect();
        json!({
            "from": self.from, "to": self.to, "currency": "USD", "shareIdle": self.rule.as_str(),
            "items": items, "idle": pools, "unsharedIdleCost": self.unshared().value(),
            "total": sums(&self.account.all), "unpriced": unpriced, "prices": self.sources,
        })
    }

    pub(super) fn text(&self, screen: &Screen) -> String {
        let wide = screen.format == Format::Wide;
        let mut heads = vec![self.head.0, "REQUESTS", "HOURS", "BUSY", "COST", "IDLE", "TOTAL"];
        if wide {
            heads.extend(["STARTING", "CLEANING", "VOLUMES", "AT LIST", "HOSTED"]);
        }
        if self.fee {
            heads.push("FEE");
        }
        let row = |name: &str, requests: String, own: &Sum, figures: [Figure; 3], lived: u64| {
            self.cells(wide, name, requests, own, figures, lived)
        };
        let each = |(name, one): (&String, &Row)| {
            let lived = one.own.lived() + self.idle_of(name).map_or(0, Sum::lived);
            let figures = [Figure::own(&one.own), Figure::idle(one), Figure::total(one)];
            row(name, one.requests.to_string(), &one.own, figures, lived)
        };
        let mut rows: Vec<Vec<String>> = self.rows().into_iter().map(each).collect();
        let requests: usize = self.account.rows.values().map(|row| row.requests).sum();
        let mut idle = Sum::default();
        self.account.pools.values().for_each(|sum| idle += sum);
        let unshared = self.unshared();
        // Idle hours belong to the pool under every rule for their cost, so that the rows add up.
        if self.by != By::Pool && (idle.lived() > 0 || !unshared.is_zero()) {
            let none = Figure { known: Money::ZERO, lacks: false };
            rows.push(row(
                "(idle)",
                String::new(),
                &Sum::default(),
                [none, unshared, unshared],
                idle.lived(),
            ));
        }
        let all = &self.account.all;
        let busy = Figure { known: all.cost() - idle.cost(), lacks: all.unpriced > idle.unpriced };
        let figures = [busy, Figure::own(&idle), Figure::own(all)];
        rows.push(row("all", requests.to_string(), all, figures, all.lived()));
        let mut text = columns(screen, &heads, rows);
        for note in self.notes() {
            text.push_str(&note);
            text.push('\n');
        }
        text
    }

    fn cells(
        &self,
        wide: bool,
        name: &str,
        requests: String,
        own: &Sum,
        [cost, idle, total]: [Figure; 3],
        lived: u64,
    ) -> Vec<String> {
        let known = |money: Money| Figure { known: money, lacks: own.unpriced > 0 }.to_string();
        let of = |activity| own.seconds.get(&activity).copied().unwrap_or_default();
        let mut cells = vec![
            plain(name),
            requests,
            hours(lived),
            hours(own.busy()),
            cost.to_string(),
            idle.to_string(),
            total.to_string(),
        ];
        if wide {
            cells.extend([
                hours(of(Activity::Starting)),
                hours(of(Activity::Cleaning)),
                known(own.money.volume),
                known(own.money.list + own.money.volume),
                known(own.money.hosted),
            ]);
        }
        if self.fee {
            cells.push(known(own.money.fee));
        }
        cells
    }

    /// Returns the notes that a reader of the figures needs.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for one in &self.account.unpriced {
            let name = if one.instance_type.is_empty() { "(type not known)" } else { &one.instance_type };
            let region = if one.region.is_empty() { "(region not known)" } else { &one.region };
            notes.push(format!(
                "no price: {} in {}; its hours are counted, what they cost is not known: add it with --prices FILE",
                plain(name),
                plain(region)
            ));
        }
        if self.account.all.spot_at_list > 0 {
            let hours = hours(self.account.all.spot_at_list);
            notes.push(format!(
                "{hours} hours of spot machines are at on-demand prices: add --spot, or their prices"
            ));
        }
        if let Some((region, source)) = self.sources.first_key_value() {
            let more = self.sources.len() - 1;
            let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
            notes.push(format!("prices: {}{more}: {}; not a bill", plain(region), plain(source)));
        }
        notes
    }
}

fn total(row: &Row) -> Money {
    row.own.cost() + row.idle
}

/// An amount as far as it is known: a part without a price is never shown as free.
#[derive(Clone, Copy)]
struct Figure {
    known: Money,
    /// Whether a part of it has no price.
    lacks: bool,
}

impl Figure {
    fn own(sum: &Sum) -> Self {
        Self { known: sum.cost(), lacks: sum.unpriced > 0 }
    }

    const fn idle(row: &Row) -> Self {
        Self { known: row.idle, lacks: row.idle_unpriced }
    }

    fn total(row: &Row) -> Self {
        Self { known: total(row), lacks: row.own.unpriced > 0 || row.idle_unpriced }
    }

    fn is_zero(self) -> bool {
        self.known.is_zero() && !self.lacks
    }

    /// Returns the amount for programs; null if no part of it is known.
    fn value(self) -> Value {
        if self.lacks && self.known.is_zero() { Value::Null } else { dollars(self.known) }
    }
}

impl std::fmt::Display for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.lacks, self.known.is_zero()) {
            (true, true) => f.pad("?"),
            (true, false) => f.pad(&format!("at least {}", self.known)),
            (false, _) => f.pad(&self.known.to_string()),
        }
    }
}

/// Formats hours with one decimal.
fn hours(seconds: u64) -> String {
    let tenths = (seconds + 180) / 360;
    format!("{}.{}", tenths / 10, tenths % 10)
}

fn sums(sum: &Sum) -> Value {
    let known = |money: Money| Figure { known: money, lacks: sum.unpriced > 0 }.value();
    let mut item = json!({
        "machineSeconds": sum.lived(),
        "minimumSeconds": sum.minimum,
        "warmClaims": sum.warm_claims,
        "cost": known(sum.cost()),
        "volumeCost": known(sum.money.volume),
        "listCost": known(sum.money.list + sum.money.volume),
        "hostedCost": known(sum.money.hosted),
        "githubFee": known(sum.money.fee),
        "unpricedSeconds": sum.unpriced,
        "spotAtListSeconds": sum.spot_at_list,
    });
    for activity in Activity::ALL {
        let seconds = sum.seconds.get(activity).copied().unwrap_or_default();
        item[format!("{activity}Seconds")] = json!(seconds);
    }
    item
}
