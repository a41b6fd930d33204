//! The verbs and options of the command line, as a person types them and reads them in `--help`.

pub(crate) mod step;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use clap_complete::Shell;

use crate::change::{apply, delete, drain, expire, fail, hold, refresh, scale, ssh};
use crate::input::common::Common;
use crate::look::{cost, describe, events, get, history, logs, top, version};
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
  runyard provision --class linux-x64 --count 3 --wait     # then: runs-on: ${{ github.run_id }}
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
    /// Ask for machines; with --wait follow the request until they run
    Provision(Box<provision::ProvisionArgs>),
    /// Give machines back
    Release(release::ReleaseArgs),
    /// List instances, requests, pools, launches or shares
    Get(get::GetArgs),
    /// Show all details of one instance, request, pool or launch
    Describe(describe::DescribeArgs),
    /// Tell what happened, to one record or to all
    Events(events::EventsArgs),
    /// Export what is over: requests, machines' lives, failed launches
    History(history::HistoryArgs),
    /// Keep more or fewer idle machines for a while
    Scale(scale::ScaleArgs),
    /// Create and change pools from a file
    Apply(apply::ApplyArgs),
    /// Show what `apply` would change
    Diff(apply::DiffArgs),
    /// Change single fields of a pool
    Set(apply::SetArgs),
    /// Change a pool's spec in an editor
    Edit(apply::EditArgs),
    /// Let a class claim and launch nothing for a while
    Pause(apply::PauseArgs),
    /// Let a paused class go on
    Resume(apply::PauseArgs),
    /// Drain a pool, wait, and delete it with its queue and template
    Delete(delete::DeleteArgs),
    /// Let a machine serve its run to the end and be claimed no more
    Drain(drain::DrainArgs),
    /// Keep a machine for a person to look at; it serves nobody again
    Hold(hold::HoldArgs),
    /// End machines that are held
    ReleaseHold(hold::ReleaseHoldArgs),
    /// Show what the agent, the first boot and the runner of a machine wrote
    Logs(logs::LogsArgs),
    /// End a machine, or the idle ones of a class
    Expire(expire::ExpireArgs),
    /// Let a request keep its machines for longer
    Extend(extend::ExtendArgs),
    /// End a stuck request
    Fail(fail::FailArgs),
    /// Wait until a record is as it should be
    Wait(wait::WaitArgs),
    /// Show who uses the yard, by repository or class
    Top(top::TopArgs),
    /// Tell what the machines cost, by repository, workflow, team, pool or run
    Cost(Box<cost::CostArgs>),
    /// Open a shell on a machine by Session Manager
    Ssh(ssh::SshArgs),
    /// Have the operator look at everything now, and wait until it did
    Refresh(refresh::RefreshArgs),
    /// Compare the records with each other and say what is wrong
    Doctor(doctor::DoctorArgs),
    /// Take one machine of a class through its life, with its console and the time of each step
    Try(trial::TryArgs),
    /// Create, complete or check the table, the queues and the launch templates
    Init(init::InitArgs),
    /// Set up what the yard needs elsewhere: the GitHub App
    Setup(github_app::SetupArgs),
    /// Tell what the operator would do now, and why not more
    Plan(plan_explain::PlanArgs),
    /// Tell why one record is where it is, and what comes next
    Explain(plan_explain::ExplainArgs),
    /// Tell what would have happened under other pools, by playing recorded demand
    Simulate(Box<whatif::SimulateArgs>),
    /// Recommend counts of idle machines by the hour for a promised wait
    Recommend(whatif::RecommendArgs),
    /// Name yards: tables, regions and profiles, or local directories
    Config(config::ConfigArgs),
    /// Show the versions of this program, the operator and the agents
    Version(version::VersionArgs),
    /// Tell the probable cause of a failure, with all that was said about it
    Debug(debug::DebugArgs),
    /// Tell what to write in the `runs-on` of a workflow's jobs, and what of them does not work on a class
    CheckWorkflow(check_workflow::CheckWorkflowArgs),
    /// Write the man pages into a directory
    #[command(after_help = "Example:\n  runyard man ~/.local/share/man/man1")]
    Man {
        /// The directory, which is made if it is not there
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Write the completions of a shell to standard output
    #[command(
        after_help = "Names of classes, machines and requests come from the table, when TAB is pressed.\n\nExample:\n  source <(runyard completions bash)"
    )]
    Completions {
        /// Which shell
        shell: Shell,
    },
}

impl Once {
    /// Whether it is a step of a workflow.
    pub(crate) const fn is_step(&self) -> bool {
        matches!(self, Self::Provision(_) | Self::Release(_))
    }
}

/// Verbs that are programs of their own.
#[derive(Debug, Subcommand)]
pub(crate) enum Process {
    /// Run everything on this machine: table, operator, machines, and a stand-in GitHub
    #[cfg(feature = "local")]
    Up(local_mode::UpArgs),
    /// Play three workflow runs through the whole life of their machines, with a timeline
    #[cfg(feature = "local")]
    #[command(after_help = "Example:\n  runyard demo")]
    Demo,
    /// Run the operator
    Operator(daemon::OperatorArgs),
}

/// The form in which errors are wanted, as far as it can be told before everything is parsed.
pub(crate) fn format_asked(arguments: &[OsString]) -> Format {
    let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    let pairs = words.windows(2).any(|pair| matches!(pair, ["-o" | "--output", "json"]));
    let joined = words.iter().any(|word| matches!(*word, "-ojson" | "-o=json" | "--output=json"));
    if pairs || joined { Format::Json } else { Format::Text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_form_of_errors_is_known_although_the_rest_is_wrong() {
        let asked = |words: &[&str]| format_asked(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(asked(&["runyard", "provision", "-o", "json"]), Format::Json);
        assert_eq!(asked(&["runyard", "--output=json", "x"]), Format::Json);
        assert_eq!(asked(&["runyard", "get", "-o", "yaml"]), Format::Text);
    }
}
