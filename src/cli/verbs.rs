//! The verbs and options of the command line, as a person types them and reads them in `--help`.

pub(crate) mod step;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::Result;
use clap::{Command, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell;

use crate::change::{apply, delete, drain, expire, fail, hold, refresh, scale, ssh};
use crate::input::common::Common;
use crate::look::{cost, describe, events, get, history, logs, top, verify, version};
use crate::machine::daemon;
#[cfg(feature = "local")]
use crate::machine::local_mode;
use crate::output::format::Format;
use crate::setup::{config, github_app, init, trial};
use crate::why::{debug, doctor, plan_explain, whatif};
use crate::workflow::{check_workflow, extend, provision, release, wait};

/// Keeps a yard of reusable EC2 machines and lends them to GitHub Actions workflows as self-hosted runners.
#[derive(Debug, Parser)]
#[command(
    name = "runyard",
    version,
    propagate_version = true,
    max_term_width = 110,
    after_help = "\
Exit codes: 0 done, 1 error, 2 wrong usage, 3 the request failed, 4 the wait timed out, 128 + N ended by signal N.
AWS is reached by its own environment: AWS_REGION, AWS_PROFILE, AWS_ENDPOINT_URL and so on.

In a workflow:
  runyard provision --class linux-x64 --count 3 --wait
  # then, in other jobs: runs-on: ${{ github.run_id }}
  runyard release

By a person:
  runyard init && runyard apply -f pools.yaml
  runyard get requests --watch
  runyard explain request 1234567890"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) verb: AnyVerb,
}

/// The verbs as `--help` groups them: a heading and its verbs. Each group is a folder of this package; `completions` and
/// `man` alone are in its root.
const GROUPS: [(&str, &[&str]); 6] = [
    ("In a workflow", &["provision", "release", "extend", "wait", "check-workflow"]),
    ("Look", &["get", "describe", "events", "logs", "top", "cost", "history", "verify", "version"]),
    ("Ask why", &["explain", "plan", "debug", "doctor", "simulate", "recommend"]),
    (
        "Change",
        &[
            "apply",
            "diff",
            "set",
            "edit",
            "pause",
            "resume",
            "scale",
            "drain",
            "hold",
            "release-hold",
            "expire",
            "fail",
            "delete",
            "refresh",
            "ssh",
        ],
    ),
    ("Set up", &["init", "setup", "try", "config", "completions", "man"]),
    ("On this machine", &["up", "demo", "operator"]),
];

/// Returns the whole command line, with its verbs in groups.
pub(crate) fn command() -> Command {
    let command = Cli::command();
    let mut groups = String::new();
    for (heading, verbs) in GROUPS {
        groups.push_str(&format!("{heading}:\n"));
        for verb in verbs.iter().filter_map(|name| command.find_subcommand(name)) {
            let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
            groups.push_str(&format!("  {:15} {about}\n", verb.get_name()));
        }
        groups.push('\n');
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
    ))
}

impl Cli {
    /// Parses the process's arguments.
    ///
    /// # Errors
    /// Arguments that cannot be parsed; help and versions too.
    pub(crate) fn read(arguments: &[OsString]) -> Result<Self> {
        Self::from_arg_matches(&command().try_get_matches_from(arguments)?)
    }
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum AnyVerb {
    #[command(flatten)]
    Once(Once),
    #[command(flatten)]
    Process(Process),
}

/// Verbs that look or write, and end.
#[derive(Debug, Subcommand)]
pub(crate) enum Once {
    /// Request machines for a run; --wait follows the request until they run
    Provision(Box<provision::ProvisionArgs>),
    /// Release the machines of a run
    Release(release::ReleaseArgs),
    /// List instances, requests, pools, launches or shares
    #[command(visible_aliases = ["ls", "ps"])]
    Get(get::GetArgs),
    /// Show one instance, request, pool or launch in detail
    Describe(describe::DescribeArgs),
    /// Show events, of one record or of all
    Events(events::EventsArgs),
    /// Verify signed statements about claims, offline
    Verify(verify::VerifyArgs),
    /// Export the history: ended requests, machines, failed launches, statements
    History(history::HistoryArgs),
    /// Override a pool's number of idle machines for a while
    Scale(scale::ScaleArgs),
    /// Create or update pools from a file
    Apply(apply::ApplyArgs),
    /// Show what `apply` would change
    Diff(apply::DiffArgs),
    /// Set single fields of a pool
    Set(apply::SetArgs),
    /// Edit a pool's spec in an editor
    Edit(apply::EditArgs),
    /// Pause a class: it claims and launches nothing
    Pause(apply::PauseArgs),
    /// Resume a paused class
    Resume(apply::PauseArgs),
    /// Drain a pool, then delete it with its queue and launch template
    #[command(visible_alias = "rm")]
    Delete(delete::DeleteArgs),
    /// Drain a machine: it finishes its run and is not claimed again
    Drain(drain::DrainArgs),
    /// Hold a machine for debugging; it serves no further run
    Hold(hold::HoldArgs),
    /// Terminate held machines
    ReleaseHold(hold::ReleaseHoldArgs),
    /// Show the logs of a machine's agent, first boot and runner
    Logs(logs::LogsArgs),
    /// Terminate a machine, or the idle machines of a class
    Expire(expire::ExpireArgs),
    /// Extend the runtime of a request
    Extend(extend::ExtendArgs),
    /// Fail a stuck request
    Fail(fail::FailArgs),
    /// Wait for a condition of a record
    Wait(wait::WaitArgs),
    /// Show usage by repository or class
    Top(top::TopArgs),
    /// Show costs by repository, workflow, team, pool or run
    Cost(Box<cost::CostArgs>),
    /// Open a shell on a machine by Session Manager
    Ssh(ssh::SshArgs),
    /// Trigger a full resync and wait for it
    Refresh(refresh::RefreshArgs),
    /// Check the yard for inconsistencies; --fix repairs them
    Doctor(doctor::DoctorArgs),
    /// Smoke-test a class: launch, register and terminate one machine, with timings
    Try(trial::TryArgs),
    /// Create or update the table, queues and launch templates
    Init(init::InitArgs),
    /// Set up the GitHub App
    Setup(github_app::SetupArgs),
    /// Show what the operator would do now, and what it is waiting for
    Plan(plan_explain::PlanArgs),
    /// Explain the state of a record and what happens next
    Explain(plan_explain::ExplainArgs),
    /// Simulate recorded demand under other pools
    Simulate(Box<whatif::SimulateArgs>),
    /// Recommend idle machines per hour for a target wait
    Recommend(whatif::RecommendArgs),
    /// Manage named yards: tables, regions and profiles, or local directories
    Config(config::ConfigArgs),
    /// Show the versions of this program, the operator and the agents
    Version(version::VersionArgs),
    /// Diagnose a failure: probable cause and evidence
    Debug(debug::DebugArgs),
    /// Check workflow files: the `runs-on` for each job, and what would not work
    CheckWorkflow(check_workflow::CheckWorkflowArgs),
    /// Write man pages to a directory
    #[command(after_help = "Example:\n  runyard man ~/.local/share/man/man1")]
    Man {
        /// Directory; created if missing
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Print the completion script of a shell
    #[command(
        after_help = "Names of classes, machines and requests come from the table, when TAB is pressed.\n\nExample:\n  source <(runyard completions bash)"
    )]
    Completions {
        /// Shell
        shell: Shell,
    },
}

impl Once {
    /// Returns whether the verb is a step of a workflow.
    pub(crate) const fn is_step(&self) -> bool {
        matches!(self, Self::Provision(_) | Self::Release(_))
    }
}

/// Verbs that are programs of their own.
#[derive(Debug, Subcommand)]
pub(crate) enum Process {
    /// Run a whole yard on this machine, with a stand-in GitHub
    #[cfg(feature = "local")]
    Up(local_mode::UpArgs),
    /// Run a demonstration: three workflow runs, with a timeline
    #[cfg(feature = "local")]
    #[command(after_help = "Example:\n  runyard demo")]
    Demo,
    /// Run the operator
    Operator(daemon::OperatorArgs),
}

/// Returns the format for errors, as far as it can be determined before everything is parsed.
pub(crate) fn format_asked(arguments: &[OsString]) -> Format {
    let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    let pairs = words.windows(2).any(|pair| matches!(pair, ["-o" | "--output", "json"]));
    let joined = words.iter().any(|word| matches!(*word, "-ojson" | "-o=json" | "--output=json"));
    if pairs || joined { Format::Json } else { Format::Text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        command().debug_assert();
    }

    #[test]
    fn every_verb_is_in_one_group_of_the_help() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, verbs)| verbs.iter().copied()).collect();
        let command = command();
        let mut verbs: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
        grouped.sort_unstable();
        verbs.sort_unstable();
        assert_eq!(grouped, verbs);
    }

    /// Returns the command and all its subcommands.
    fn all(command: &Command) -> Vec<&Command> {
        std::iter::once(command).chain(command.get_subcommands().flat_map(all)).collect()
    }

    #[test]
    fn examples_can_be_copied_from_a_terminal_of_80_columns() {
        for command in all(&command()) {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let long = after.lines().find(|line| line.starts_with("  ") && line.chars().count() > 78);
            assert_eq!(long, None, "{}", command.get_name());
        }
    }

    #[test]
    fn the_form_of_errors_is_known_although_the_rest_is_wrong() {
        let asked = |words: &[&str]| format_asked(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(asked(&["runyard", "provision", "-o", "json"]), Format::Json);
        assert_eq!(asked(&["runyard", "--output=json", "x"]), Format::Json);
        assert_eq!(asked(&["runyard", "get", "-o", "yaml"]), Format::Text);
    }
}
