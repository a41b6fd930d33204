//! `runyard history statements`: the signed statements about the claims of a run's request, one on each line, byte for
//! byte as the operator signed them.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{failed, read, table, under};
use crate::common::duration;
use crate::common::failure::{CliFailure, CliResult, Exit, Problems};
use crate::input::run::RunArgs;
use crate::session::context::{CliContext, readable};
use crate::session::polling::{Interrupts, Waited, until};
use crate::session::verb::Start;
use runyard_core::model::history::{HistoryLine, StatementLine, statements_of_run};
use runyard_core::model::{Repository, Request, RequestName, RunId};

/// Whose statements, and where to.
#[derive(Debug, Args)]
#[command(after_help = "\
A statement follows some seconds after its machine entered the pool, and where the machine ended, once it was gone. The \
operator signs statements where history.signing_key_file names a key. `runyard verify` checks the file.

Examples:
  runyard history statements --wait -f claims.intoto.jsonl    # in a workflow
  runyard history statements --run-id 42 --repository acme/web")]
pub(crate) struct StatementsArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Wait until the request is over and each of its machines has a statement
    #[arg(long)]
    wait: bool,
    /// Maximum wait
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::patience, allow_negative_numbers = true)]
    timeout: Duration,
    /// Write to this file, replacing it [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// The request whose statements are wanted.
pub(crate) struct Asked {
    repository: Repository,
    run_id: RunId,
    name: RequestName,
}

impl StatementsArgs {
    pub(super) fn check(&self, start: &Start<'_>) -> CliResult<Asked> {
        let mut problems = Problems::default();
        let run = self.run.resolve(start.environment, &mut problems);
        problems.check()?;
        let (repository, run_id, name) = run.expect("what is missing was refused above");
        Ok(Asked { repository, run_id, name })
    }

    pub(super) async fn run(&self, context: &mut CliContext, asked: &Asked) -> CliResult {
        let told = if self.wait { self.awaited(context, asked).await? } else { None };
        let (found, late) = match told {
            Some(found) => (found, false),
            None => (statements(context, asked).await?, self.wait),
        };
        let text: String = found.iter().map(|line| format!("{}\n", line.envelope)).collect();
        match &self.file {
            Some(file) => std::fs::write(file, text).map_err(|error| {
                let fix = "name a file that you may write to";
                CliFailure::error("--file", file.display().to_string(), error.to_string(), fix)
            })?,
            None => context.screen.text(&text),
        }
        if late {
            let message = format!("{} statements by now, and not one for each machine yet", found.len());
            let fix = "wait longer; a machine that ended has its statement once EC2 has ended it";
            let failure = CliFailure::error("--timeout", duration::show(self.timeout), message, fix);
            return Err(CliFailure { exit: Exit::TimedOut, ..failure });
        }
        if found.is_empty() {
            let run = format!("{} run {}/{}", asked.repository, asked.run_id, asked.name);
            let fix = "wait until its machines are given back; statements need history.signing_key_file at the operator";
            return Err(CliFailure::error("--run-id", run, "there is no statement about a claim of it", fix));
        }
        Ok(())
    }

    /// Waits for all statements; `None` where they did not come in time.
    async fn awaited(&self, context: &CliContext, asked: &Asked) -> CliResult<Option<Vec<StatementLine>>> {
        let mut interrupts = Interrupts::listen()?;
        let waited = until(self.timeout, &mut interrupts, async || {
            let prefix = format!("request#{}#", asked.name);
            let mut machines = 0;
            for item in context.of_run(&asked.repository, &asked.run_id, &prefix).await? {
                let request: Request = readable(&item)?;
                if !request.phase().is_final() {
                    return Ok(None);
                }
                machines += request.status.served.len();
            }
            let found = statements(context, asked).await?;
            Ok((machines > 0 && found.len() >= machines).then_some(found))
        });
        match waited.await? {
            Waited::Done(found) => Ok(Some(found)),
            Waited::TimedOut => Ok(None),
            Waited::Interrupted(caught) => {
                let message = format!("interrupted by {}", caught.name());
                let fix = "ask again; statements are kept as long as the history";
                let failure = CliFailure::error("history statements", "", message, fix);
                Err(CliFailure { exit: Exit::Signal(caught), ..failure })
            }
        }
    }
}

/// Reads the statements about the claims of a request, of all its attempts.
async fn statements(context: &CliContext, asked: &Asked) -> CliResult<Vec<StatementLine>> {
    let partition = statements_of_run(&asked.repository, &asked.run_id);
    let items = under(table(context)?, &partition, &format!("request#{}#", asked.name)).await;
    let lines = read(&items.map_err(|error| failed(context, &error))?);
    let statement = |line| match line {
        HistoryLine::Statement(line) => Some(line),
        HistoryLine::Request(_)
        | HistoryLine::Machine(_)
        | HistoryLine::LaunchFailure(_)
        | HistoryLine::Event(_) => None,
    };
    Ok(lines.into_iter().filter_map(statement).collect())
}
