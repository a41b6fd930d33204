//! `runyard top`: the users of the yard, by repository or by class: running and waiting machines now, and the
//! machine-minutes of requests until seven days after their end, from the table and from the history.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use serde_json::json;

use crate::common::duration;
use crate::common::failure::CliResult;
use crate::look::history;
use crate::output::table::columns;
use crate::session::context::CliContext;
use crate::session::verb::{Start, Verb};
use runyard_core::model::history::HistoryLine;
use runyard_core::model::kind_of;
use runyard_core::model::{Instance, Item, Kind, Phase, Reading, RecordId, Request, State, read};

/// How long the records of ended requests are kept, in the table or in the history.
const KEPT: Duration = Duration::from_hours(7 * 24);

/// Who uses the yard.
#[derive(Debug, Args)]
#[command(after_help = "\
MACHINE-MINUTES are those of requests: their machines from ready (else accepted) to the end, or until now; records go \
seven days after the end. For money see docs/costs.md.

Examples:
  runyard top
  runyard top --by class --since 24h
  runyard top -o json | jq '.items[0]'")]
pub(crate) struct TopArgs {
    /// Group by
    #[arg(long, value_name = "WHAT", default_value = "repository")]
    by: By,
    /// Period to sum up [default: all stored, at most 7 days]
    #[arg(long, value_name = "DURATION", value_parser = duration::past, allow_negative_numbers = true)]
    since: Option<Duration>,
}

impl Verb for TopArgs {
    type Input = ();

    fn check(&self, _start: &Start<'_>) -> CliResult {
        Ok(())
    }

    async fn run(&self, context: &mut CliContext, (): ()) -> CliResult {
        let items =
            context.all_that(|item| matches!(kind_of(item), Some(Kind::Request | Kind::Instance))).await?;
        let now = context.clock.now();
        let since = self.since.and_then(|length| now.saturating_sub(length).ok()).unwrap_or(Timestamp::MIN);
        let mut all = usage(&items, self.by, since, now);
        left_the_table(context, &items, (self.by, since, now), &mut all).await?;
        let mut all: Vec<(String, Usage)> = all.into_iter().collect();
        all.sort_by(|(a, left), (b, right)| (right.seconds, a).cmp(&(left.seconds, b)));
        let head = match self.by {
            By::Repository => "REPOSITORY",
            By::Class => "CLASS",
        };
        let row = |(name, usage): &(String, Usage)| {
            let numbers =
                [usage.machines, usage.waiting, usage.requests, usage.failed].map(|n| n.to_string());
            [vec![name.clone()], numbers.to_vec(), vec![(usage.seconds / 60).to_string()]].concat()
        };
        let field = match self.by {
            By::Repository => "repository",
            By::Class => "resourceClass",
        };
        let document = |(name, usage): &(String, Usage)| {
            json!({field: name, "machines": usage.machines, "waiting": usage.waiting, "requests": usage.requests,
            "failed": usage.failed, "machineSeconds": usage.seconds})
        };
        let items: Vec<_> = all.iter().map(document).collect();
        context.screen.document(&json!({"items": items}));
        if all.is_empty() {
            context.screen.remark("nobody asked for machines");
        } else if !context.screen.format.for_programs() {
            let heads = [head, "MACHINES", "WAITING", "REQUESTS", "FAILED", "MACHINE-MINUTES"];
            let text = columns(&context.screen, &heads, all.iter().map(row).collect());
            context.screen.text(&text);
        }
        Ok(())
    }
}

/// By what is added up.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    /// The repository whose workflows asked.
    Repository,
    /// The resource class.
    Class,
}

/// The usage of one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Usage {
    /// Machines that serve it now.
    machines: u32,
    /// Machines that it waits for now.
    waiting: u32,
    requests: u32,
    failed: u32,
    seconds: u64,
}

/// Adds the requests of the last seven days that left the table for the history.
async fn left_the_table(
    context: &CliContext,
    items: &[Item],
    (by, since, now): (By, Timestamp, Timestamp),
    all: &mut BTreeMap<String, Usage>,
) -> CliResult {
    if !history::is_there(context).await? {
        return Ok(());
    }
    let known: BTreeSet<RecordId> = items.iter().filter_map(RecordId::of).collect();
    let from = since.max(now.saturating_sub(KEPT).unwrap_or(Timestamp::MIN));
    history::each(context, from, now, false, |line| {
        let HistoryLine::Request(line) = line else { return Ok(()) };
        if known.contains(&line.request) {
            return Ok(());
        }
        let name = match by {
            By::Repository => line.repository.folded().to_string(),
            By::Class => line.resource_class.clone(),
        };
        let usage = all.entry(name).or_default();
        usage.requests += 1;
        usage.failed += u32::from(line.phase == Phase::Failed);
        let from = line.ready_at.or(line.accepted_at).or(line.created_at).unwrap_or(line.ended_at);
        let length = line.ended_at.duration_since(from.max(since)).as_secs();
        let machines = line.machines.len().min(line.count as usize) as u64;
        usage.seconds += u64::try_from(length).unwrap_or_default() * machines;
        Ok(())
    })
    .await
}

fn usage(items: &[Item], by: By, since: Timestamp, now: Timestamp) -> BTreeMap<String, Usage> {
    let mut all: BTreeMap<String, Usage> = BTreeMap::new();
    for item in items {
        match kind_of(item) {
            Some(Kind::Request) => {
                let Reading::Record(request) = read::<Request>(item) else { continue };
                let (from, to) = span(&request, now);
                if to < since {
                    continue;
                }
                let name = match by {
                    By::Repository => request.id.repository.folded().to_string(),
                    By::Class => request.intent.resource_class.clone(),
                };
                let usage = all.entry(name).or_default();
                usage.requests += 1;
                let (phase, held) = (request.phase(), request.status.instances.len() as u32);
                match phase {
                    Phase::Pending | Phase::Fulfilling => {
                        usage.waiting += request.intent.count.saturating_sub(held);
                    }
                    Phase::Failed => usage.failed += 1,
                    Phase::Ready | Phase::Releasing | Phase::Released => {}
                }
                let length = to.duration_since(from.max(since)).as_secs();
                usage.seconds += u64::try_from(length).unwrap_or_default() * machines(&request);
            }
            Some(Kind::Instance) => {
                let Reading::Record(instance) = read::<Instance>(item) else { continue };
                let served = instance.claim.as_ref().filter(|_| instance.run().is_some());
                let name = match (by, served.and_then(|claim| claim.request.request())) {
                    (By::Repository, Some(id)) => id.repository.folded().to_string(),
                    (By::Class, Some(_)) => instance.facts.resource_class.to_string(),
                    (By::Repository | By::Class, None) => continue,
                };
                if instance.state() != State::Terminated {
                    all.entry(name).or_default().machines += 1;
                }
            }
            Some(Kind::Agent | Kind::Pool | Kind::Launch | Kind::Lease | Kind::Queue | Kind::Event)
            | None => {}
        }
    }
    all
}

/// Returns how many machines a request has or had.
fn machines(request: &Request) -> u64 {
    let status = &request.status;
    // A request whose machine was replaced had no more at a time than it asked for.
    let most = status.served.len().min(request.intent.count as usize);
    most.max(status.instances.len()) as u64
}

/// Returns the period in which a request had its machines.
fn span(request: &Request, now: Timestamp) -> (Timestamp, Timestamp) {
    let status = &request.status;
    let from = status.ready_at.or(status.accepted_at).or(request.intent.created_at).unwrap_or(now);
    let ended = status.expires_at.and_then(|at| Timestamp::from_second(at).ok()?.checked_sub(KEPT).ok());
    let to = ended.filter(|_| request.phase().is_final()).unwrap_or(now);
    (from, to.max(from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::context::{attributes, number, text};
    use runyard_core::model::AttributeValue;

    fn request(run: &str, more: &[(&str, AttributeValue)]) -> Item {
        let mut item = attributes([
            ("pk", text(format!("request#acme/web#{run}"))),
            ("sk", text("request#default#1")),
            ("kind", text("request")),
            ("version", number(1u64)),
            ("runId", text(run)),
            ("attempt", number(1u64)),
            ("repository", text("Acme/web")),
            ("name", text("default")),
            ("resourceClass", text("small")),
            ("count", number(3u64)),
            ("desired", text("provisioned")),
            ("generation", number(1u64)),
        ]);
        item.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        item
    }

    #[test]
    fn machine_minutes_count_from_ready_to_the_end_or_until_now() {
        let list = |ids: &[&str]| AttributeValue::L(ids.iter().map(text).collect());
        let ended = Timestamp::from_second(7 * 86_400 + 700).unwrap().as_second();
        let items = [
            request(
                "1",
                &[
                    ("phase", text("Released")),
                    ("readyAt", text("1970-01-01T00:01:40Z")),
                    ("served", list(&["i-1", "i-2"])),
                    ("instances", list(&[])),
                    ("expiresAt", AttributeValue::N(ended.to_string())),
                ],
            ),
            request(
                "2",
                &[
                    ("phase", text("Fulfilling")),
                    ("acceptedAt", text("1970-01-01T00:15:00Z")),
                    ("instances", list(&["i-3"])),
                ],
            ),
            request("3", &[("phase", text("Failed")), ("acceptedAt", text("1970-01-01T00:16:40Z"))]),
        ];
        let now = Timestamp::from_second(1000).unwrap();
        let all = usage(&items, By::Repository, Timestamp::MIN, now);
        let expected = Usage { machines: 0, waiting: 2, requests: 3, failed: 1, seconds: 600 * 2 + 100 };
        assert_eq!(all, BTreeMap::from([("acme/web".to_owned(), expected)]));
        let late = usage(&items, By::Class, Timestamp::from_second(800).unwrap(), now);
        let expected = Usage { machines: 0, waiting: 2, requests: 2, failed: 1, seconds: 100 };
        assert_eq!(late, BTreeMap::from([("small".to_owned(), expected)]));
    }
}
