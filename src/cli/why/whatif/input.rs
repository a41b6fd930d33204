//! The input of a replay: the history or an export of it, the pools of that time, and the hourly prices of machines.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use runyard_replay::{Trace, load};

use crate::common::duration;
use crate::common::environment::Environment;
use crate::common::failure::{CliFailure, CliResult};
use crate::look::history;
use crate::output::format::Format;
use crate::output::screen::Screen;
use crate::pools;
use crate::session::stack::StackArgs;
use crate::session::{configured, connect};
use runyard_core::ledger::Prices;
use runyard_core::model::history::HistoryLine;
use runyard_core::model::{
    ClassName, FieldError, Item, Pool, PoolSpec, Reading, TableName, YardSharing, read as record,
};

/// Where demand and pools come from.
#[derive(Debug, Args)]
pub(crate) struct InputArgs {
    /// `history` for the history table, or a file of `runyard history export`
    #[arg(long, value_name = "FILE", default_value = HISTORY)]
    from: PathBuf,
    /// Only the last period of the history [default: 30d of the table, all of a file]
    #[arg(long, value_name = "DURATION", value_parser = duration::past)]
    since: Option<Duration>,
    /// File of the past pool specs [default: the table's current pools]
    #[arg(long, value_name = "FILE")]
    pools: Option<PathBuf>,
    /// Price of a machine hour, as CLASS=DOLLARS; repeatable [default: from the price list]
    #[arg(long, value_name = "CLASS=DOLLARS", value_parser = price)]
    price: Vec<(ClassName, f64)>,
    /// Price list that overrides the built-in prices, as config/prices.toml [default: that of --config]
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Operator configuration, for teams, priorities, yard-wide quotas and prices
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The argument that names the yard's history table.
const HISTORY: &str = "history";
/// The default period to read from the table.
const USUALLY: Duration = Duration::from_secs(30 * 86_400);

/// The data from the yard's tables.
#[derive(Default)]
pub(crate) struct Recorded {
    items: Vec<Item>,
    lines: Option<Vec<HistoryLine>>,
}

impl InputArgs {
    fn plays_the_table(&self) -> bool {
        self.from.as_os_str() == HISTORY
    }

    /// Reads from the yard's tables what files do not contain; tables are not queried if the files contain everything.
    pub(crate) async fn recorded(&self, table: &TableName, environment: &Environment) -> CliResult<Recorded> {
        if self.pools.is_some() && !self.plays_the_table() {
            return Ok(Recorded::default());
        }
        let screen = Screen::nowhere(Format::Text);
        let context = connect::connect(table.clone(), environment.clone(), screen).await?.0;
        let items = if self.pools.is_some() { Vec::new() } else { context.everything().await? };
        if !self.plays_the_table() {
            return Ok(Recorded { items, lines: None });
        }
        let (mut lines, now) = (Vec::new(), context.clock.now());
        let since = now.saturating_sub(self.since.unwrap_or(USUALLY)).unwrap_or(Timestamp::MIN);
        let mut take = |line| {
            lines.push(line);
            Ok(())
        };
        history::each(&context, since, now, false, &mut take).await?;
        Ok(Recorded { items, lines: Some(lines) })
    }
}

fn price(text: &str) -> Result<(ClassName, f64), FieldError> {
    let refused = || {
        let fix = "write CLASS=DOLLARS, such as linux-x64=0.2016";
        FieldError::new("--price", text, "is no price of a class", fix)
    };
    let (class, amount) = text.split_once('=').ok_or_else(refused)?;
    let amount: f64 = amount.parse().map_err(|_| refused())?;
    if !(amount.is_finite() && amount > 0.0) {
        return Err(refused());
    }
    Ok((ClassName::parse(class)?, amount))
}

/// The input of a replay.
pub(super) struct Input {
    pub(super) trace: Trace,
    pub(super) pools: Vec<PoolSpec>,
    pub(super) prices: BTreeMap<ClassName, f64>,
    /// Teams, priorities and yard-wide quotas.
    pub(super) sharing: YardSharing,
    /// Number of unreadable lines.
    pub(super) unread: usize,
}

/// Reads the whole input.
pub(super) fn read(args: &InputArgs, table: &TableName, recorded: Recorded) -> CliResult<Input> {
    let config = args.config.as_deref().map(|file| configured::load(table, file)).transpose()?;
    let list = match args.prices.as_deref() {
        Some(file) => runyard_operator::prices::load(file).map_err(CliFailure::all_usage)?,
        None => {
            config.as_ref().map_or_else(runyard_operator::prices::shipped, |config| config.prices.clone())
        }
    };
    let (lines, unread) = match recorded.lines {
        Some(lines) => (lines, 0),
        None => lines(args)?,
    };
    let last = lines.iter().map(HistoryLine::at).max().unwrap_or(Timestamp::MIN);
    let from =
        args.since.map_or(Timestamp::MIN, |since| last.saturating_sub(since).unwrap_or(Timestamp::MIN));
    let mut prices = by_class(&lines, &list);
    prices.extend(args.price.iter().cloned());
    let trace = load(lines, from, last).ok_or_else(|| {
        let fix = "take a longer part of the history, or leave --since out";
        CliFailure::error("--from", args.from.display().to_string(), "has no request in that time", fix)
    })?;
    let pools = match &args.pools {
        Some(file) => pools::specs(file, &StackArgs::default(), table)?,
        None => recorded.items.iter().filter_map(spec_of).collect(),
    };
    let sharing = config.map(|config| config.sharing).unwrap_or_default();
    Ok(Input { trace, pools, prices, sharing, unread })
}

/// Returns the average hourly cost of each class's machines in the history; classes with an unpriced machine are
/// omitted.
fn by_class(lines: &[HistoryLine], list: &Prices) -> BTreeMap<ClassName, f64> {
    let mut sums: BTreeMap<&ClassName, Option<(f64, f64)>> = BTreeMap::new();
    for line in lines {
        let HistoryLine::Machine(line) = line else { continue };
        let class = &line.resource_class;
        let hour = list.hour(class.as_str(), &line.instance_type, &line.availability_zone, line.usage_class);
        let lived = line.to().duration_since(line.from()).as_secs_f64();
        let sum = sums.entry(class).or_insert(Some((0.0, 0.0)));
        *sum = sum.zip(hour.ok()).map(|((cost, time), hour)| (cost + hour.dollars() * lived, time + lived));
    }
    let mean = |(class, sum): (&ClassName, Option<(f64, f64)>)| {
        sum.filter(|(_, time)| *time > 0.0).map(|(cost, time)| (class.clone(), cost / time))
    };
    sums.into_iter().filter_map(mean).collect()
}

fn spec_of(item: &Item) -> Option<PoolSpec> {
    match record::<Pool>(item) {
        Reading::Record(pool) => Some(pool.spec),
        Reading::Unreadable(_) | Reading::Newer { .. } => None,
    }
}

fn lines(args: &InputArgs) -> CliResult<(Vec<HistoryLine>, usize)> {
    let failed = |error: std::io::Error| {
        let fix = "name a file that `runyard history export` wrote";
        CliFailure::error("--from", args.from.display().to_string(), error.to_string(), fix)
    };
    let (mut lines, mut unread) = (Vec::new(), 0);
    for line in BufReader::new(std::fs::File::open(&args.from).map_err(failed)?).lines() {
        let line = line.map_err(failed)?;
        if line.trim().is_empty() {
            continue;
        }
        match serde_json::from_str(&line) {
            Ok(line) => lines.push(line),
            Err(_) => unread += 1,
        }
    }
    Ok((lines, unread))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::json;

    use super::*;
    use crate::verbs::{AnyVerb, Cli, Once};

    fn args(line: &str) -> InputArgs {
        let AnyVerb::Once(Once::Simulate(args)) = Cli::try_parse_from(line.split(' ')).unwrap().verb else {
            panic!("{line} is not simulate")
        };
        args.input
    }

    fn lines() -> Vec<HistoryLine> {
        let request = json!({"pk": "request#acme/web#42", "sk": "request#default#1"});
        let asked = json!({
            "line": "request", "request": request, "repository": "acme/web", "runId": "42", "name": "default",
            "attempt": 1, "resourceClass": "small", "count": 1, "minCount": 1, "acceptedAt": "2026-11-20T12:00:00Z",
            "readyAt": "2026-11-20T12:01:00Z", "releasedAt": "2026-11-20T12:05:00Z",
            "endedAt": "2026-11-20T12:06:00Z", "phase": "Released", "timeoutSeconds": 600,
        });
        let machine = |class: &str, kind: &str| {
            json!({
                "line": "machine", "instanceId": format!("i-{class}"),
                "instanceArn": format!("arn:aws:ec2:us-east-1:123456789012:instance/i-{class}"),
                "resourceClass": class, "instanceType": kind, "availabilityZone": "us-east-1a",
                "usageClass": "on-demand", "launchedAt": "2026-11-20T12:00:00Z",
                "spans": [{"activity": "starting", "from": "2026-11-20T12:00:00Z", "to": "2026-11-20T13:00:00Z"}],
            })
        };
        let all = [asked, machine("small", "m7i.xlarge"), machine("odd", "x9.large")];
        all.into_iter().map(|line| serde_json::from_value(line).unwrap()).collect()
    }

    #[test]
    fn without_a_file_the_history_is_played_at_the_prices_of_its_machines() {
        let table = TableName::parse("runyard").unwrap();
        assert!(
            args("runyard simulate").plays_the_table()
                && args("runyard simulate --from history").plays_the_table()
        );
        assert!(!args("runyard simulate --from ./history").plays_the_table());
        let recorded = || Recorded { items: Vec::new(), lines: Some(lines()) };
        let input = read(&args("runyard simulate"), &table, recorded());
        let input = input.unwrap_or_else(|failure| panic!("{failure:?}"));
        assert_eq!(input.trace.arrivals.len(), 1);
        let prices: Vec<_> = input.prices.iter().map(|(class, price)| (class.as_str(), *price)).collect();
        assert_eq!(prices, [("small", 0.2016)], "a type without a price gives its class none");
        let given = read(&args("runyard simulate --price small=1.5"), &table, recorded());
        assert_eq!(given.unwrap_or_else(|failure| panic!("{failure:?}")).prices.values().next(), Some(&1.5));
    }
}
