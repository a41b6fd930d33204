//! `runyard ssh`: opens a shell on a machine with AWS's Session Manager by running the program `aws`; missing
//! prerequisites are reported.

use std::process::Command;

use clap::Args;

use crate::common::failure::{CliFailure, CliResult};
use crate::input::completion;
use crate::input::selector::{Noun, Selector};
use crate::session::context::{CliContext, readable};
use crate::session::verb::{Start, Verb};
use runyard_core::model::{Instance, State};

/// Opens a shell on a machine.
#[derive(Debug, Args)]
#[command(after_help = "\
The program `aws` with its session-manager-plugin opens the session. You need ssm:StartSession on the machine; the machine \
needs Session Manager's agent. Its role must allow ssm:UpdateInstanceInformation, ssmmessages:CreateControlChannel, \
ssmmessages:CreateDataChannel, ssmmessages:OpenControlChannel and ssmmessages:OpenDataChannel, and name the five in \
NotAction of its statement NothingElse, which denies the rest: a policy that is only attached has no effect. Whoever was \
on a machine can change it: drain it afterwards (runyard drain INSTANCE).

Examples:
  runyard ssh i-0123456789abcdef0
  runyard ssh i-0123 --dry-run")]
pub(crate) struct SshArgs {
    /// Instance ID or prefix
    #[arg(value_name = "INSTANCE", add = completion::machines_or_classes())]
    name: String,
    /// Print the command without running it
    #[arg(long)]
    dry_run: bool,
}

impl Verb for SshArgs {
    type Input = Selector;

    fn check(&self, _start: &Start<'_>) -> CliResult<Self::Input> {
        Selector::parse(Noun::Instances, &self.name).map_err(|p| CliFailure::usage(p.named("INSTANCE")))
    }

    async fn run(&self, context: &mut CliContext, machine: Self::Input) -> CliResult {
        let machine = &machine;
        let item = machine.find(context, None).await?;
        let instance: Instance = readable(&item)?;
        let (id, arn) = (instance.facts.instance_id.to_string(), instance.facts.instance_arn.to_string());
        let refused = |message: &str, fix: &str| Err(CliFailure::error("INSTANCE", &id, message, fix));
        if instance.state() == State::Terminated {
            return refused("has ended", "see `runyard describe instance` for its last words");
        }
        let region = arn.split(':').nth(3).unwrap_or_default().to_owned();
        if region == "local" || context.environment.endpoint().is_some_and(|url| url.contains("://127.")) {
            return refused("is a process of a local yard", "look in DIR/machines of `runyard up --dir DIR`");
        }
        let arguments = ["ssm", "start-session", "--target", &id, "--region", &region];
        if self.dry_run {
            context.screen.say(format!("aws {}", arguments.join(" ")));
            return Ok(());
        }
        let mut command = Command::new("aws");
        command.args(arguments);
        if let Some(profile) = context.environment.get("AWS_PROFILE") {
            command.args(["--profile", profile]);
        }
        let ended = command.status().map_err(|error| {
            let fix = "install the AWS command line and its session-manager-plugin";
            CliFailure::error("aws", "", format!("cannot be run: {error}"), fix)
        })?;
        if ended.success() {
            return Ok(());
        }
        refused(
            "the session was refused; see what aws said",
            "AccessDenied: you lack ssm:StartSession on it. TargetNotConnected: its image lacks Session Manager's agent, its \
         role the five rights of `runyard ssh --help`, or its subnet a way to SSM. Plugin not found: install \
         session-manager-plugin",
        )
    }
}
