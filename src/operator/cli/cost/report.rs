//! The sums of `runyard cost`, for people and for programs.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::By;
use super::sources::Lines;
use crate::cli::screen::{Format, Screen};
use crate::cli::table::columns;
use crate::ledger::{self, Account, Entry, IdleShare, Money, Prices, Row, Sum, region_of};
use crate::model::history::Activity;
use crate::model::{ShareBy, Sharing};

/// By which names entries are added up.
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
        let Some(key) = request.request() else { return unknown() };
        match self.by {
            By::Repository => key.repository.to_string(),
            By::Workflow => {
                let workflow = self.lines.workflow(request).map_or_else(unknown, str::to_owned);
                format!("{} {workflow}", key.repository)
            }
            By::Team => {
                let sharing = Sharing { by: ShareBy::Team, ..Sharing::default() };
                sharing.share(&key.repository, self.teams)
            }
            By::Pool => entry.machine.class.to_string(),
            By::Run => format!("{} {}", key.repository, key.run_id),
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

/// What `runyard cost` tells.
pub(super) struct Report {
    account: Account,
    head: (&'static str, &'static str),
    rule: IdleShare,
    from: Timestamp,
    to: Timestamp,
    sources: BTreeMap<String, String>,
    fee: bool,
}

/// Dollars for a program, to the nano-dollar.
pub(super) fn dollars(money: Money) -> Value {
    // A decimal of nine places is the same number however it is read.
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
            // A pool's idle machines are its own, whatever the rule.
            for (class, left) in std::mem::take(&mut account.unshared) {
                account.rows.entry(class.to_string()).or_default().idle += left;
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
        Self { account, head: names.head(), rule, from, to, sources, fee }
    }

    /// The rows, dearest first.
    fn rows(&self) -> Vec<(&String, &Row)> {
        let mut rows: Vec<_> = self.account.rows.iter().collect();
        rows.sort_by(|(a, left), (b, right)| (total(right), a).cmp(&(total(left), b)));
        rows
    }

    fn unshared(&self) -> Money {
        self.account.unshared.values().copied().sum()
    }

    pub(super) fn document(&self) -> Value {
        let items: Vec<Value> = self
            .rows()
            .into_iter()
            .map(|(name, row)| {
                let mut item = sums(&row.own);
                item[self.head.1] = json!(name);
                item["requests"] = json!(row.requests);
                item["idleCost"] = dollars(row.idle);
                item["totalCost"] = dollars(total(row));
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
                item["unsharedCost"] = self.account.unshared.get(class).copied().map_or(json!(0.0), dollars);
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
            "items": items, "idle": pools, "unsharedIdleCost": dollars(self.unshared()),
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
        let row = |name: &str, requests: String, own: &Sum, idle: Money, total: Money| {
            self.cells(wide, name, requests, own, [idle, total])
        };
        let each = |(name, one): (&String, &Row)| {
            row(name, one.requests.to_string(), &one.own, one.idle, total(one))
        };
        let mut rows: Vec<Vec<String>> = self.rows().into_iter().map(each).collect();
        let requests: usize = self.account.rows.values().map(|row| row.requests).sum();
        let unshared = self.unshared();
        if !unshared.is_zero() {
            rows.push(row("(idle)", String::new(), &Sum::default(), unshared, unshared));
        }
        let pools: Money = self.account.pools.values().map(Sum::cost).sum();
        let all = &self.account.all;
        let mut last = row("all", requests.to_string(), all, pools, all.cost());
        last[4] = (all.cost() - pools).to_string();
        rows.push(last);
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
        [idle, total]: [Money; 2],
    ) -> Vec<String> {
        let of = |activity| own.seconds.get(&activity).copied().unwrap_or_default();
        let mut cells = vec![
            name.to_owned(),
            requests,
            hours(own.lived()),
            hours(own.busy()),
            own.cost().to_string(),
            idle.to_string(),
            total.to_string(),
        ];
        if wide {
            cells.extend([
                hours(of(Activity::Starting)),
                hours(of(Activity::Cleaning)),
                own.money.volume.to_string(),
                (own.money.list + own.money.volume).to_string(),
                own.money.hosted.to_string(),
            ]);
        }
        if self.fee {
            cells.push(own.money.fee.to_string());
        }
        cells
    }

    /// What a reader must know of the figures.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for one in &self.account.unpriced {
            let name = if one.instance_type.is_empty() { "(type not known)" } else { &one.instance_type };
            let region = if one.region.is_empty() { "(region not known)" } else { &one.region };
            notes.push(format!(
                "no price: {name} in {region}; its hours are counted and cost nothing here: add it with --prices FILE"
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
            notes.push(format!("prices: {region}{more}: {source}; not a bill"));
        }
        notes
    }
}

fn total(row: &Row) -> Money {
    row.own.cost() + row.idle
}

/// Hours with one decimal.
fn hours(seconds: u64) -> String {
    let tenths = (seconds + 180) / 360;
    format!("{}.{}", tenths / 10, tenths % 10)
}

fn sums(sum: &Sum) -> Value {
    let mut item = json!({
        "machineSeconds": sum.lived(),
        "minimumSeconds": sum.minimum,
        "warmClaims": sum.warm_claims,
        "cost": dollars(sum.cost()),
        "volumeCost": dollars(sum.money.volume),
        "listCost": dollars(sum.money.list + sum.money.volume),
        "hostedCost": dollars(sum.money.hosted),
        "githubFee": dollars(sum.money.fee),
        "unpricedSeconds": sum.unpriced,
        "spotAtListSeconds": sum.spot_at_list,
    });
    for activity in Activity::ALL {
        let seconds = sum.seconds.get(activity).copied().unwrap_or_default();
        item[format!("{activity}Seconds")] = json!(seconds);
    }
    item
}
