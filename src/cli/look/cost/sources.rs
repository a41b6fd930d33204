//! Reads the lives of machines from an export of the history or from the table's records.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::Path;

use jiff::Timestamp;

use crate::common::failure::{CliFailure, CliResult};
use crate::look::history;
use crate::session::context::CliContext;
use runyard_core::ledger::Prices;
use runyard_core::model::history::{HistoryLine, MachineLine, RequestLine};
use runyard_core::model::kind_of;
use runyard_core::model::{
    Instance, JobReport, Kind, Pool, Reading, RecordId, Repository, Request, RunId, read,
};

/// The known lives of machines and the requests they served.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Periods of machines' lives, in any order, possibly with duplicates.
    pub(super) machines: Vec<MachineLine>,
    /// The workflows of requests, by the partition and sort keys of their records, if they are known.
    pub(super) workflows: BTreeMap<(String, String), String>,
    /// The jobs of slots, by the same keys.
    jobs: BTreeMap<(String, String), JobReport>,
}

impl Lines {
    fn add(&mut self, line: HistoryLine) {
        match line {
            HistoryLine::Machine(line) => self.machines.push(line),
            HistoryLine::Request(line) => self.request(line),
            HistoryLine::LaunchFailure(_) | HistoryLine::Statement(_) | HistoryLine::Event(_) => {}
        }
    }

    fn request(&mut self, line: RequestLine) {
        let key = (line.request.pk(), line.request.sk());
        self.jobs.extend(line.job.map(|job| (key.clone(), job)));
        self.workflows.extend(line.workflow.map(|workflow| (key, workflow)));
    }

    /// Returns which repository, in lower case, and which run a request served: those of its key, or of the job that a
    /// slot had.
    pub(super) fn served<'a>(&'a self, request: &'a RecordId) -> Option<(Repository, &'a RunId)> {
        let key = request.request()?;
        let job = self.jobs.get(&(request.pk(), request.sk()));
        let (repository, run) =
            job.map_or((&key.repository, &key.run_id), |job| (&job.repository, &job.run_id));
        Some((repository.folded(), run))
    }

    /// Returns the workflow of a request.
    pub(super) fn workflow(&self, request: &RecordId) -> Option<&str> {
        self.workflows.get(&(request.pk(), request.sk())).map(String::as_str)
    }
}

/// Reads the lines of an export.
pub(super) fn of_file(file: &Path) -> CliResult<Lines> {
    let shown = file.display().to_string();
    let unread = |error: std::io::Error| {
        let fix = "name a file that `runyard history export` wrote";
        CliFailure::error("--from", shown.as_str(), format!("cannot be read: {error}"), fix)
    };
    let mut lines = Lines::default();
    let opened = std::fs::File::open(file).map_err(unread)?;
    for (at, line) in std::io::BufReader::new(opened).lines().enumerate() {
        let line = line.map_err(unread)?;
        if line.trim().is_empty() {
            continue;
        }
        let read: HistoryLine = serde_json::from_str(&line).map_err(|error| {
            let fix = "export the history again: `runyard history export`";
            let message = format!("line {} is no line of the history: {error}", at + 1);
            CliFailure::error("--from", shown.as_str(), message, fix)
        })?;
        lines.add(read);
    }
    Ok(lines)
}

/// Reads the lives from both tables: the records of machines contain what the history does not have yet. The volumes
/// that pools give their machines are added to the prices.
pub(super) async fn of_table(
    context: &CliContext,
    now: Timestamp,
    from: Timestamp,
    prices: &mut Prices,
) -> CliResult<Lines> {
    let mut lines = Lines::default();
    if history::is_there(context).await? {
        let mut take = |line| {
            lines.add(line);
            Ok(())
        };
        // A period is stored on the day on which it ended, so one that begins in the range may be stored later.
        history::each(context, from, now, false, &mut take).await?;
    }
    let wanted = |kind| matches!(kind, Some(Kind::Instance | Kind::Request | Kind::Pool));
    for item in context.all_that(|item| wanted(kind_of(item))).await? {
        match kind_of(&item) {
            Some(Kind::Instance) => {
                if let Reading::Record(instance) = read::<Instance>(&item) {
                    lines.machines.extend(MachineLine::over(&instance));
                    lines.machines.extend(MachineLine::so_far(&instance, now));
                }
            }
            Some(Kind::Request) => {
                if let Reading::Record(request) = read::<Request>(&item)
                    && let Some(line) = RequestLine::of(&request)
                {
                    lines.request(line);
                }
            }
            Some(Kind::Pool) => {
                if let Reading::Record(pool) = read::<Pool>(&item) {
                    volume(&pool, prices);
                }
            }
            Some(Kind::Agent | Kind::Launch | Kind::Lease | Kind::Queue | Kind::Event) | None => {}
        }
    }
    Ok(lines)
}

/// Adds the volume of a pool's machines, unless the price file has it.
fn volume(pool: &Pool, prices: &mut Prices) {
    if let Some(gib) = pool.spec.launch.root_volume().gib {
        prices.volumes.entry(pool.spec.resource_class.to_string()).or_insert(gib);
    }
}
