//! `runyard doctor`: compares the records with each other and with the queues, EC2 and GitHub. With `--fix` it repairs
//! whatever the operator's own conditional writes would repair.

#[cfg(feature = "ec2")]
mod account;
mod examine;
mod outside;
mod package;
mod preflight;
mod shares;

use std::path::PathBuf;
use std::sync::Arc;

use std::time::Duration;

use clap::Args;
use serde_json::json;

use crate::common::failure::{CliFailure, CliResult, Exit};
use crate::input::completion;
use crate::output::format::plain;
use crate::output::table::columns;
use crate::session::context::{AuditEvent, CliContext};
use crate::session::verb::{Start, Verb};
use crate::session::{configured, connect};
use runyard_core::model::kind_of;
use runyard_core::model::{ClassName, Event, EventType, FieldError, Item, Kind, Reading, Repository, read};
use runyard_core::ports::Compute;
use runyard_operator::config::{ComputeKind, ScopeKind};
use runyard_operator::signing::StatementKey;
use runyard_operator::{config, wire};

pub(crate) use examine::{Finding, examine};
use outside::Outside;
use preflight::{Asked, Checked};

/// Looks for what is wrong.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit code 0 when nothing is wrong (or all of it was mended), 1 when something is left.

Examples:
  runyard doctor
  runyard doctor --config /etc/runyard/runyard.toml
  runyard doctor --config runyard.toml --preflight linux-x64
  runyard doctor --fix -o json")]
pub(crate) struct DoctorArgs {
    /// Repair what can be repaired, with the operator's own conditional writes
    #[arg(long)]
    fix: bool,
    /// How far past its deadline a record must be to be reported
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = crate::common::duration::patience)]
    patience: Duration,
    /// Operator configuration: also check EC2 and GitHub with it [default: the table only]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check a class before its first launch: dry-run launches, image, packages, GitHub App [default without POOL: all
    /// classes]
    #[arg(long, value_name = "POOL", num_args = 0..=1, requires = "config", add = completion::classes())]
    preflight: Option<Option<ClassName>>,
    /// Repository to check at GitHub
    #[arg(long, value_name = "OWNER/REPO", value_parser = Repository::parse_at_github, requires = "preflight")]
    repository: Option<Repository>,
}

impl Verb for DoctorArgs {
    type Input = ();

    fn check(&self, _start: &Start<'_>) -> CliResult {
        Ok(())
    }

    async fn run(&self, context: &mut CliContext, (): ()) -> CliResult {
        let items = context.all_that(looked_at).await?;
        let outside = outside(context, self).await?;
        let mut findings = examine(&items, context.clock.now(), self.patience);
        if let Some(file) = &self.config {
            findings.extend(shares::look(&items, &configured::load(&context.table, file)?.sharing));
        }
        findings.extend(outside::look(context, &outside, &items, self.patience).await);
        findings.extend(outside::history(context).await);
        let (networks, problems) = outside::networks(&outside, &items).await;
        findings.extend(problems);
        let checked = preflight(context, self, &items).await?;
        findings.extend(preflight::findings(&checked));
        let mut rows = Vec::new();
        let mut left = 0;
        for finding in &findings {
            let outcome = if self.fix { mend(context, finding).await } else { Mended::NotTried };
            left += usize::from(finding.severity == EventType::Warning && outcome != Mended::Done);
            rows.push((finding, outcome));
        }
        show(context, &networks, &checked, &rows);
        if left == 0 {
            return Ok(());
        }
        let fix = match (self.fix, findings.iter().any(|finding| !finding.mend.is_empty())) {
            (false, true) => "run `runyard doctor --fix`, or do what each finding says",
            (true, _) | (false, false) => "do what each finding says",
        };
        let message = format!("{left} of {} findings need somebody", findings.len());
        let problem = FieldError::new("doctor", left.to_string(), message, fix);
        Err(CliFailure { exit: Exit::Error, problems: vec![problem] })
    }
}

/// Runs `--preflight`, if it was asked for.
async fn preflight(context: &CliContext, args: &DoctorArgs, items: &[Item]) -> CliResult<Vec<Checked>> {
    let (Some(named), Some(file)) = (&args.preflight, &args.config) else { return Ok(Vec::new()) };
    let config = configured::load(&context.table, file)?;
    let pools = preflight::pools(context, items, named.as_ref()).await?;
    let wrong = |error: String| {
        CliFailure::error("config", file.display().to_string(), error, "mend the configuration")
    };
    #[cfg(feature = "ec2")]
    let ec2 = match config.compute {
        ComputeKind::Ec2 => {
            let sdk = connect::sdk(&context.environment).await;
            let options = runyard_operator::aws::ec2::Ec2Options::of(&config).map_err(CliFailure::usage)?;
            Some(runyard_operator::aws::Ec2Compute::connect(options, &sdk))
        }
        ComputeKind::None | ComputeKind::Local => None,
    };
    let github = config.github.as_ref().map(|github| wire::rest_github(github, context.clock.clone()));
    let asked = Asked {
        #[cfg(feature = "ec2")]
        ec2,
        github: github.transpose().map_err(|error| wrong(error.to_string()))?,
    };
    Ok(preflight::look(&asked, &config, &pools, items, args.repository.as_ref()).await)
}

/// Returns the adapters that the operator's configuration selects.
async fn outside(context: &CliContext, args: &DoctorArgs) -> CliResult<Outside> {
    let Some(file) = &args.config else { return Ok(Outside::default()) };
    let config = configured::load(&context.table, file)?;
    let key = config.signing_key_file.as_deref().map(StatementKey::read);
    key.transpose().map_err(CliFailure::usage)?;
    match config.compute {
        ComputeKind::Ec2 | ComputeKind::None => {}
        // Local machines are children of their operator, which checks them every second.
        ComputeKind::Local => return Ok(Outside::default()),
    }
    let sdk = connect::sdk(&context.environment).await;
    #[cfg(feature = "ec2")]
    let ec2 = match config.compute {
        ComputeKind::Ec2 => {
            let options = runyard_operator::aws::ec2::Ec2Options::of(&config).map_err(CliFailure::usage)?;
            Some(runyard_operator::aws::Ec2Compute::connect(options, &sdk))
        }
        ComputeKind::None | ComputeKind::Local => None,
    };
    let wired = wire::build(&config, &sdk, &config::environment().collect(), "doctor".to_owned());
    let ports = wired
        .map_err(|error| {
            CliFailure::error(
                "config",
                file.display().to_string(),
                error.to_string(),
                "mend the configuration",
            )
        })?
        .ports;
    let organization = config.github.as_ref().is_some_and(|github| match github.scope {
        ScopeKind::Organization => true,
        ScopeKind::Repository => false,
    });
    let compute: Arc<dyn Compute> = ports.compute;
    Ok(Outside {
        compute: Some(compute),
        #[cfg(feature = "ec2")]
        ec2,
        github: ports.github.map(|github| (github, organization)),
        // Pools determine the runner version of machines that follow GitHub's list.
        runner_version: config
            .agent
            .runner
            .any()
            .filter(|_| config.agent.following().is_empty())
            .map(|runner| runner.version.clone()),
        announced: Some(config.timing.announced()),
    })
}

/// Returns whether a record is kept for examination; of events, which are compared with nothing, only unreadable ones.
fn looked_at(item: &Item) -> bool {
    match kind_of(item) {
        Some(
            Kind::Instance
            | Kind::Agent
            | Kind::Request
            | Kind::Pool
            | Kind::Launch
            | Kind::Lease
            | Kind::Queue,
        ) => true,
        Some(Kind::Event) => match read::<Event>(item) {
            Reading::Record(_) => false,
            Reading::Newer { .. } | Reading::Unreadable(_) => true,
        },
        None => false,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mended {
    Done,
    Overtaken,
    NotTried,
}

impl Mended {
    const fn said(self) -> &'static str {
        match self {
            Self::Done => "mended",
            Self::Overtaken => "changed meanwhile",
            Self::NotTried => "",
        }
    }
}

async fn mend(context: &CliContext, finding: &Finding) -> Mended {
    let Some(first) = finding.mend.first() else { return Mended::NotTried };
    match context.store.transact(&finding.mend).await {
        Ok(()) => {
            let message = format!("mended by doctor: {}", finding.problem);
            let event = AuditEvent { key: &first.key, reason: "Mended", message, change: None };
            context.record_event(event).await;
            Mended::Done
        }
        Err(error) => {
            tracing::warn!(record = %first.key, %error, "not mended");
            Mended::Overtaken
        }
    }
}

fn show(context: &mut CliContext, networks: &[String], checked: &[Checked], rows: &[(&Finding, Mended)]) {
    let items: Vec<_> = rows
        .iter()
        .map(|(finding, mended)| {
            json!({
                "type": finding.severity, "reason": finding.reason, "record": finding.record,
                "message": finding.problem, "fix": finding.fix, "mendable": !finding.mend.is_empty(),
                "mended": *mended == Mended::Done,
            })
        })
        .collect();
    let mut document = json!({"items": items, "networks": networks});
    if !checked.is_empty() {
        document["checks"] = preflight::document(checked).into();
    }
    context.screen.document(&document);
    if context.screen.format.for_programs() {
        return;
    }
    networks.iter().for_each(|line| context.screen.say(line));
    preflight::lines(checked).iter().for_each(|line| context.screen.say(line));
    if rows.is_empty() {
        context.screen.say("nothing is wrong");
        return;
    }
    let cells = |(finding, mended): &(&Finding, Mended)| {
        [
            finding.severity.as_str(),
            finding.reason,
            &finding.record,
            &finding.problem,
            &finding.fix,
            mended.said(),
        ]
        .map(plain)
        .to_vec()
    };
    let heads = ["TYPE", "REASON", "RECORD", "PROBLEM", "FIX", ""];
    let text = columns(&context.screen, &heads, rows.iter().map(cells).collect());
    context.screen.text(&text);
}
