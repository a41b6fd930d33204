//! `runyard version`: the versions of this program, of the leading operator, and of the agents.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::json;

use crate::common::failure::CliResult;
use crate::output::format::plain;
use crate::output::screen::Screen;
use crate::session::context::CliContext;
use crate::session::verb::{Start, Verb};
use runyard_core::model::kind_of;
use runyard_core::model::{Agent, Item, Kind, Lease, Reading, RecordId, State, read, text_of};

/// Which versions there are.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  runyard version\n  runyard version --client")]
pub(crate) struct VersionArgs {
    /// Only this program's version, without reading the table
    #[arg(long)]
    pub(crate) client: bool,
}

impl Verb for VersionArgs {
    type Input = ();

    fn check(&self, _start: &Start<'_>) -> CliResult {
        Ok(())
    }

    async fn run(&self, context: &mut CliContext, (): ()) -> CliResult {
        let items = context
            .all_that(|item| matches!(kind_of(item), Some(Kind::Agent | Kind::Instance | Kind::Lease)))
            .await?;
        let lease = items.iter().find(|item| RecordId::of(item) == Some(Lease::key_of(Lease::OPERATOR)));
        let lease = lease.and_then(|item| match read::<Lease>(item) {
            Reading::Record(lease) => Some(lease),
            Reading::Newer { .. } | Reading::Unreadable(_) => None,
        });
        let lease = lease.filter(|lease| !lease.holder.is_empty());
        let operator = lease.as_ref().map(|lease| {
            (lease.holder.clone(), lease.operator_version.clone().unwrap_or_else(|| "unknown".into()))
        });
        let agents = agents(&items);
        context.screen.say(format!("client    {OURS}"));
        context.screen.say(match &operator {
            Some((holder, version)) => format!("operator  {}  ({})", plain(version), plain(holder)),
            None => "operator  none leads".into(),
        });
        if agents.is_empty() {
            context.screen.say("agents    none");
        }
        for (version, count) in &agents {
            let machines = if *count == 1 { "machine" } else { "machines" };
            context.screen.say(format!("agents    {}  ({count} {machines})", plain(version)));
        }
        let operator = operator.map(|(holder, version)| json!({"holder": holder, "version": version}));
        context.screen.document(&json!({"client": OURS, "operator": operator, "agents": agents}));
        Ok(())
    }
}

const OURS: &str = env!("CARGO_PKG_VERSION");

/// Prints only this program's version.
pub(crate) fn client(screen: &mut Screen) {
    screen.say(format!("client    {OURS}"));
    screen.document(&json!({"client": OURS}));
}

/// Counts the live machines by agent version.
fn agents(items: &[Item]) -> BTreeMap<String, u32> {
    let live = |item: &Item| {
        text_of(item, "state").and_then(|state| state.parse::<State>().ok()).is_some_and(State::live)
    };
    let live: Vec<String> = items
        .iter()
        .filter(|item| kind_of(item) == Some(Kind::Instance) && live(item))
        .filter_map(|item| Some(RecordId::of(item)?.machine()?.to_owned()))
        .collect();
    let mut agents = BTreeMap::new();
    for item in items.iter().filter(|item| kind_of(item) == Some(Kind::Agent)) {
        let of_live =
            RecordId::of(item).is_some_and(|id| live.iter().any(|one| id.machine() == Some(one.as_str())));
        if let (true, Reading::Record(agent)) = (of_live, read::<Agent>(item)) {
            *agents.entry(agent.agent_version.unwrap_or_else(|| "unknown".into())).or_insert(0) += 1;
        }
    }
    agents
}
