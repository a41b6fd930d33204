//! `runyard simulate` and `runyard recommend`: replay recorded demand under other pools, and compute the counts that
//! keep a target. Both use the operator's own decisions and change nothing.

mod input;
mod shown;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use jiff::tz::TimeZone;
use runyard_replay::{Comparison, Outcome, Scenario, compare, picture, play, recommend};
use serde_json::json;

use self::input::Input;
pub(crate) use self::input::{InputArgs, Recorded};
use crate::change::apply;
use crate::common::duration;
use crate::common::failure::{CliFailure, CliResult};
use crate::input::what::class_of;
use crate::output::screen::Screen;
use crate::pools;
use crate::session::stack::StackArgs;
use runyard_core::model::{ClassName, Money, PoolSpec, TableName, WaitTarget};

/// Tells what would have happened.
#[derive(Debug, Args)]
#[command(after_help = "\
First the pools as they are configured are played and compared with what truly happened; the difference is printed as the \
error. With --set or -f the same demand is played under the changed pools, with the same luck. A change whose effect on \
the 95th percentile is within that error, or whose sign differs between seeds, is not called better or worse.

Requests come and hold machines as they did: nobody cancels or asks again because it is faster. A cost is simulated from \
list prices or the prices given, and no bill.

Examples:
  runyard simulate
  runyard simulate --since 14d --set pool.linux-x64.desired=5
  runyard history export --since 30d --file history.jsonl
  runyard simulate --from history.jsonl --svg idle.svg \\
      --set pool.linux-x64.desired=5
  runyard simulate --from history.jsonl --pools now.yaml -f planned.yaml")]
pub(crate) struct SimulateArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// Field to change, as pool.CLASS.FIELD=VALUE; repeatable
    #[arg(long, value_name = "FIELD=VALUE")]
    set: Vec<String>,
    /// File of the pool specs to try; other pools stay as they are
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Number of random seeds, 1 to 100
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
    /// Wait after which a request counts as late
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration::wait)]
    late: Duration,
    /// Write a chart of idle machines and waits to this file, replacing it
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Recommends counts for a pool.
#[derive(Debug, Args)]
#[command(after_help = "\
For each hour of the week it is learned how many idle machines past requests would have needed; the next machine goes to \
the hours where it saves most late requests, until 95 of 100 are in time or the cap is spent. The result is printed as \
`schedules` for a file of pools, with a replay of the same demand as it is and as it would be. Nothing is changed.

Examples:
  runyard recommend linux-x64 --wait-p95 20s
  runyard recommend linux-x64 --from history.jsonl --wait-p95 20s \\
      --max-cost 40/day --price linux-x64=0.2016")]
pub(crate) struct RecommendArgs {
    /// The resource class
    #[arg(value_name = "POOL", value_parser = class_of)]
    class: ClassName,
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// Target: 95th percentile of the wait
    #[arg(long, value_name = "DURATION")]
    wait_p95: WaitTarget,
    /// Maximum cost of idle machines, as AMOUNT/day
    #[arg(long, value_name = "AMOUNT/day", value_parser = cost)]
    max_cost: Option<Money>,
    /// Time zone of the hours [default: that of the pool's first schedule, else UTC]
    #[arg(long, value_name = "ZONE")]
    time_zone: Option<String>,
}

fn cost(text: &str) -> Result<Money, runyard_core::model::FieldError> {
    let amount = text.strip_suffix("/day").unwrap_or(text).parse().unwrap_or(f64::NAN);
    Money::try_from(amount).map_err(|error| {
        let fix = "write an amount a day, such as 40/day";
        runyard_core::model::FieldError::new("--max-cost", text, error.message, fix)
    })
}

/// Runs `runyard simulate` with the data from the yard's tables that the files do not contain.
pub(crate) fn simulate(
    screen: &mut Screen,
    args: &SimulateArgs,
    table: &TableName,
    recorded: Recorded,
) -> CliResult {
    let input = input::read(&args.input, table, recorded)?;
    let changed = changed(args, &input, table)?;
    let play_all = |pools: &[PoolSpec]| -> Vec<Outcome> {
        (1..=args.seeds).map(|seed| play(&input.trace, &scenario(&input, pools, seed))).collect()
    };
    let base = play_all(&input.pools);
    let change = changed.as_deref().map(play_all).unwrap_or_default();
    let comparison = compare(&input.trace, &base, &change, args.late, &input.prices);
    if let (Some(file), Some(first)) = (&args.svg, base.first()) {
        std::fs::write(file, picture(first, change.first())).map_err(|error| {
            let fix = "name a file that you may write to";
            CliFailure::error("--svg", file.display().to_string(), error.to_string(), fix)
        })?;
    }
    tell(screen, &input, &comparison);
    Ok(())
}

fn tell(screen: &mut Screen, input: &Input, comparison: &Comparison) {
    let document = json!({
        "requests": input.trace.arrivals.len(),
        "from": input.trace.begin.to_string(),
        "until": input.trace.end.to_string(),
        "comparison": comparison,
    });
    screen.document(&document);
    shown::comparison(input, comparison).into_iter().for_each(|line| screen.say(line));
}

fn scenario(input: &Input, pools: &[PoolSpec], seed: u64) -> Scenario {
    let (demand, by_hour) = Default::default();
    Scenario { pools: pools.to_vec(), sharing: input.sharing.clone(), demand, by_hour, seed }
}

/// Returns the changed pools; `None` if nothing is to be changed.
fn changed(args: &SimulateArgs, input: &Input, table: &TableName) -> CliResult<Option<Vec<PoolSpec>>> {
    if args.set.is_empty() && args.file.is_none() {
        return Ok(None);
    }
    let mut pools = input.pools.clone();
    if let Some(file) = &args.file {
        for spec in pools::specs(file, &StackArgs::default(), table)? {
            match pools.iter_mut().find(|pool| pool.resource_class == spec.resource_class) {
                Some(pool) => *pool = spec,
                None => pools.push(spec),
            }
        }
    }
    for text in &args.set {
        let refused = |message: &str| {
            let fix = "write pool.CLASS.FIELD=VALUE, such as pool.linux-x64.desired=5";
            CliFailure::usage(runyard_core::model::FieldError::new("--set", text, message, fix))
        };
        let path = text.strip_prefix("pool.").ok_or_else(|| refused("does not begin with pool."))?;
        let found = pools.iter_mut().find_map(|pool| {
            let field = path.strip_prefix(pool.resource_class.as_str())?.strip_prefix('.')?;
            Some((pool, field))
        });
        let (pool, field) = found.ok_or_else(|| refused("names no pool that there is"))?;
        *pool = apply::with_field(pool, field, table)?;
    }
    Ok(Some(pools))
}

/// Runs `runyard recommend`.
pub(crate) fn recommended(
    screen: &mut Screen,
    args: &RecommendArgs,
    table: &TableName,
    recorded: Recorded,
) -> CliResult {
    let input = input::read(&args.input, table, recorded)?;
    let refused = |field: &str, value: &str, message: &str, fix: &str| {
        CliFailure::usage(runyard_core::model::FieldError::new(field, value, message, fix))
    };
    let spec = input.pools.iter().find(|pool| pool.resource_class == args.class);
    let spec = spec.ok_or_else(|| {
        refused("POOL", args.class.as_str(), "there is no such pool", "name one of --pools")
    })?;
    let zone = match &args.time_zone {
        None => runyard_core::decide::sizing::zone_of(spec),
        Some(name) => TimeZone::get(name).map_err(|error| {
            refused("--time-zone", name, &error.to_string(), "use an IANA name such as Europe/Berlin or UTC")
        })?,
    };
    let price = input.prices.get(&args.class);
    let most_hours = match (args.max_cost, price) {
        (None, _) => None,
        (Some(cost), Some(price)) => Some(cost.get() / price * 7.0),
        (Some(cost), None) => {
            let fix = format!("add --price {}=DOLLARS: what an hour of its machines costs", args.class);
            return Err(refused("--max-cost", &cost.to_string(), "cannot be kept without a price", &fix));
        }
    };
    let wait = args.wait_p95.get();
    let found =
        recommend(&input.trace, &scenario(&input, &input.pools, 1), &args.class, wait, most_hours, &zone);
    let found = found.ok_or_else(|| {
        refused(
            "--from",
            "",
            "has no whole hour of requests of the class",
            "export a longer part of the history",
        )
    })?;
    screen.document(&json!({
        "resourceClass": args.class.as_str(),
        "schedules": found.schedules,
        "capped": found.capped,
        "doubt": found.doubt,
        "requests": found.learned.0,
        "days": found.learned.1,
        "asItIs": shown::evidence_json(&found.evidence.0),
        "asRecommended": shown::evidence_json(&found.evidence.1),
    }));
    shown::recommendation(args.class.as_str(), args.wait_p95, &found)
        .into_iter()
        .for_each(|line| screen.say(line));
    Ok(())
}
