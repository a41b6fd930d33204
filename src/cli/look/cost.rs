//! `runyard cost`: the cost of the machines at list prices, grouped by the users they served. Every second of every
//! machine is in exactly one row; [`runyard_core::ledger`] has the rules.

mod focus;
mod report;
mod sources;
mod spot;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use jiff::Timestamp;

use self::sources::Lines;
use crate::common::duration;
use crate::common::failure::{CliFailure, CliResult};
use crate::input::usage;
use crate::session::configured;
use crate::session::context::CliContext;
use crate::session::verb::{Start, Verb};
use runyard_core::ledger;
use runyard_core::ledger::{IdleShare, Period, Prices};
use runyard_operator::prices;

/// What the machines cost.
#[derive(Debug, Args)]
#[command(after_help = "\
Costs are list prices in US dollars, before discounts, savings plans and taxes: not a bill. What idle machines cost is \
shared among those who used their pool, as --share-idle says; what nobody bears is a row of its own. `-o csv` has a line \
for each row, `-o focus` a line for each machine, request and day with the columns of FOCUS 1.2.

Examples:
  runyard cost
  runyard cost --since 30d --by pool --spot
  runyard cost --since 24h --by run -o wide
  runyard cost --since 31d --prices prices.toml -o focus > focus.csv
  runyard cost --from history.jsonl --since 90d --share-idle none")]
pub(crate) struct CostArgs {
    /// Start of the period, as a duration before now
    #[arg(long, value_name = "DURATION", default_value = "7d", value_parser = duration::past, allow_negative_numbers = true)]
    since: Duration,
    /// End of the period, as a duration before now [default: now]
    #[arg(long, value_name = "DURATION", value_parser = duration::past, allow_negative_numbers = true)]
    until: Option<Duration>,
    /// Group by
    #[arg(long, value_name = "WHAT", default_value = "repository")]
    by: By,
    /// How to distribute idle costs: none, busy-seconds or warm-claims
    #[arg(long, value_name = "RULE", default_value = "warm-claims",
        value_parser = usage::one_of::<IdleShare>(IdleShare::ALL, IdleShare::as_str))]
    share_idle: IdleShare,
    /// Price list that overrides the built-in prices, as config/prices.toml [default: that of --config]
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Read spot prices from EC2 (needs ec2:DescribeSpotPriceHistory)
    #[arg(long)]
    spot: bool,
    /// Read an exported history instead of the table
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Operator configuration, for --by team
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Verb for CostArgs {
    type Input = Asked;

    fn check(&self, start: &Start<'_>) -> CliResult<Self::Input> {
        if self.until.is_some_and(|until| until >= self.since) {
            let until = self.until.map(duration::show).unwrap_or_default();
            let fix = "end nearer to now than it begins, such as --since 14d --until 7d";
            return Err(CliFailure::usage(runyard_core::model::FieldError::new(
                "--until",
                until,
                "leaves no time between --since and --until",
                fix,
            )));
        }
        let config = self.config.as_deref().map(|file| configured::load(start.table, file)).transpose()?;
        if self.by == By::Team && config.is_none() {
            let fix = "name the operator's configuration: --config FILE";
            let problem =
                runyard_core::model::FieldError::new("--by", "team", "needs the teams of repositories", fix);
            return Err(CliFailure::usage(problem));
        }
        let prices = match self.prices.as_deref() {
            Some(file) => prices::load(file).map_err(CliFailure::all_usage)?,
            None => config.as_ref().map_or_else(prices::shipped, |config| config.prices.clone()),
        };
        let lines = self.from.as_deref().map(sources::of_file).transpose()?;
        let teams = config.map(|config| config.sharing.teams).unwrap_or_default();
        Ok(Asked { prices, teams, lines })
    }

    async fn run(&self, context: &mut CliContext, asked: Self::Input) -> CliResult {
        let now = context.clock.now();
        let ago = |length: Duration| now.saturating_sub(length).unwrap_or(Timestamp::MIN);
        let (from, to) = (ago(self.since), self.until.map_or(now, ago));
        let mut prices = asked.prices;
        let lines = match asked.lines {
            Some(lines) => lines,
            None => sources::of_table(context, now, from, &mut prices).await?,
        };
        let entries = ledger::entries(&lines.machines, Period::between(from, to));
        if self.spot {
            prices.spot = spot::ask(context, &entries, from, to).await?;
        }
        if context.screen.wants_focus() {
            let document = focus::document(&entries, &prices, &lines, from, to);
            context.screen.document(&document);
            return Ok(());
        }
        let names = report::Names { by: self.by, teams: &asked.teams, lines: &lines };
        let made = report::Report::of(&entries, &prices, self.share_idle, &names, from, to);
        context.screen.document(&made.document());
        if entries.is_empty() {
            context.screen.remark("no machine was there in that time");
        } else if !context.screen.format.for_programs() {
            let text = made.text(&context.screen);
            context.screen.text(&text);
        }
        Ok(())
    }
}

/// By what is added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// The repository whose workflow asked.
    Repository,
    /// The workflow, as far as it is known.
    Workflow,
    /// The team, by `[sharing] teams` of the operator's configuration.
    Team,
    /// The pool. Its idle machines are its own.
    Pool,
    /// The workflow run.
    Run,
}

/// The checked arguments.
pub(crate) struct Asked {
    prices: Prices,
    teams: BTreeMap<String, String>,
    lines: Option<Lines>,
}
