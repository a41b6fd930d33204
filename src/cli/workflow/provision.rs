//! `runyard provision`: requests machines by one write of the intent. With `--wait` the command follows the request and
//! releases it if the wait ends without machines.

use std::time::Duration;

use clap::Args;

use super::fallback::Fallback;
use super::{fallback, follow, github_output};
use crate::common::duration;
use crate::common::environment::Environment;
use crate::common::failure::{CliFailure, CliResult, Problems};
use crate::input::run::{RunArgs, in_field};
use crate::input::{completion, selector, usage};
use crate::output::screen::Screen;
use crate::session::context;
use crate::session::context::CliContext;
use crate::session::verb::{Start, Verb};
use runyard_core::model::{
    ClassName, FieldError, InstanceTypes, Item, MOST_MACHINES, Request, RequestKey, RunId, UsageClass,
};

mod by_class;
mod submit;

pub(crate) use submit::submit;
use submit::{NotSubmitted, intent};

/// Asks for machines.
#[derive(Debug, Args)]
#[command(after_help = "\
The machines' only label is the run's id (and -NAME unless the name is `default`): use it as
  runs-on: ${{ github.run_id }}
With --secret-label 8 characters that nobody can guess follow it: take the label from the step's output `label`.
With --fallback LABEL the output `label` is LABEL where no machine is ready within --timeout, the request fails, or the \
table does not answer: the request is released, the output `fallback` is true, and the exit code is 0.

Examples:
  runyard provision --class linux-x64 --count 3 --wait    # in a workflow
  runyard provision --run-id 42 --repository acme/web \\
      --class linux-x64 --count 1
  runyard provision --class gpu --name gpu --count 4 --min-count 2 --wait \\
      --usage-class spot --on-demand-fallback --timeout 20m \\
      --allowed-instance-types 'g5.* g6.*'
  runyard provision --class linux-x64 --count 1 --wait --timeout 2m \\
      --fallback ubuntu-latest")]
pub(crate) struct ProvisionArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Resource class; see `runyard get pools`
    #[arg(long, value_name = "CLASS", add = completion::classes())]
    class: ClassName,
    /// Number of machines, 1 to 500
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    count: u32,
    /// Attempt of the run [default: $GITHUB_RUN_ATTEMPT, else 1]
    #[arg(long, value_name = "N", value_parser = selector::attempt, allow_negative_numbers = true)]
    attempt: Option<u32>,
    /// Number of machines that suffices at the timeout [default: --count]
    #[arg(long, value_name = "N", value_parser = count, allow_negative_numbers = true)]
    min_count: Option<u32>,
    /// Usage class: spot or on-demand
    #[arg(long, value_name = "CLASS", value_parser = usage::one_of::<UsageClass>(UsageClass::ALL, UsageClass::as_str))]
    usage_class: Option<UsageClass>,
    /// Fall back to on-demand machines without spot capacity
    #[arg(long)]
    on_demand_fallback: bool,
    /// EC2 instance types to allow instead of the pool's, such as 'c* m*'
    #[arg(long, value_name = "GLOBS", value_parser = types)]
    allowed_instance_types: Option<InstanceTypes>,
    /// Maximum runtime of a machine for this request [default: the class's, else 6h; 30m where the operator does not
    /// watch runs]
    #[arg(long, value_name = "DURATION", value_parser = duration::run, allow_negative_numbers = true)]
    max_runtime: Option<Duration>,
    /// How long the request waits for machines [default: 10m]
    #[arg(long, value_name = "DURATION", value_parser = duration::wait, allow_negative_numbers = true)]
    timeout: Option<Duration>,
    /// Request priority; must be allowed for the repository [default: the yard's default]
    #[arg(long, value_name = "NAME", value_parser = priority)]
    priority: Option<String>,
    /// Add a random suffix to the runner label (required by classes with labelMode: secret)
    #[arg(long)]
    secret_label: bool,
    /// Wait until the machines run (up to 30 s past the timeout); release the request if they do not
    #[arg(long)]
    wait: bool,
    /// Keep the request when the wait times out or is interrupted
    #[arg(long, requires = "wait")]
    keep: bool,
    /// Label of other runners, such as hosted ones, for the jobs where no machine is ready in time
    #[arg(long, value_name = "LABEL", requires = "wait", conflicts_with = "keep", value_parser = Fallback::parse)]
    fallback: Option<Fallback>,
    /// Whether a person tries the class.
    #[arg(skip)]
    trial: bool,
}

impl Verb for ProvisionArgs {
    type Input = RequestKey;

    fn check(&self, start: &Start<'_>) -> CliResult<Self::Input> {
        let mut problems = Problems::default();
        let run = self.run.resolve(start.environment, &mut problems);
        if let Some((_, run_id, _)) = &run {
            let field = if self.run.run_id.is_some() { "--run-id" } else { "GITHUB_RUN_ID" };
            problems.keep(in_field(field, of_a_run(run_id)));
        }
        let attempt = match (self.attempt, start.environment.get("GITHUB_RUN_ATTEMPT")) {
            (Some(attempt), _) => Some(attempt),
            (None, Some(value)) => problems.keep(in_field("GITHUB_RUN_ATTEMPT", selector::attempt(value))),
            (None, None) => Some(1),
        };
        if let Some(min) = self.min_count.filter(|min| *min > self.count) {
            problems.add(FieldError::new(
                "--min-count",
                min.to_string(),
                format!("must not be more than --count {}", self.count),
                format!("use 1 to {}, or leave it out", self.count),
            ));
        }
        if self.on_demand_fallback && self.usage_class == Some(UsageClass::OnDemand) {
            problems.add(FieldError::new(
                "--on-demand-fallback",
                "true",
                "only spot can fall back to on-demand",
                "use --usage-class spot, or leave the fallback out",
            ));
        }
        problems.keep(
            crate::pools::queue_name::fits_queue_name(start.table, &self.class)
                .map_err(|p| p.named("--class")),
        );
        problems.keep(start.environment.get("RUNYARD_PAGE").map_or(Ok(()), page));
        problems.check()?;
        let (repository, run_id, name) = run.expect("what is missing was refused above");
        Ok(RequestKey { repository, run_id, name, attempt: attempt.expect("refused above") })
    }

    async fn run(&self, context: &mut CliContext, id: Self::Input) -> CliResult {
        let id = &id;
        // Listens before the write: from here on an interruption must find the request and release it.
        let interrupts = self.wait.then(crate::session::polling::Interrupts::listen).transpose()?;
        if !id.run_id.as_str().bytes().all(|byte| byte.is_ascii_digit()) {
            context.screen.remark(format!(
                "warning: run id {} is not numeric; GitHub run ids are, so no job will match this label",
                id.run_id
            ));
        }
        by_class::refuse(context, self, id).await?;
        let item = match (submit(context, self, id).await, &self.fallback) {
            (Ok(item), _) => item,
            (Err(NotSubmitted::Unserved(failure)), Some(fallback)) => {
                let ours: Request = context::readable(&intent(context, self, id))?;
                return fallback.without_answer(context, None, Some(ours), &failure).await;
            }
            (Err(NotSubmitted::Mistake(failure) | NotSubmitted::Unserved(failure)), _) => {
                return Err(failure);
            }
        };
        let Some(interrupts) = interrupts else {
            return accepted(context, &item);
        };
        let longer = if self.fallback.is_some() { LONGER_WITH_FALLBACK } else { LONGER };
        let limit = self.timeout.unwrap_or(TIMEOUT) + longer;
        let (keep, fallback) = (self.keep, self.fallback.clone());
        follow::follow(context, follow::Following { item, limit, interrupts, keep, fallback }).await
    }
}

impl ProvisionArgs {
    /// Ends where the table cannot be reached: with the failure, unless other runners take the jobs.
    pub(crate) fn not_connected(
        &self,
        screen: &mut Screen,
        environment: &Environment,
        failure: CliFailure,
    ) -> CliResult {
        match &self.fallback {
            Some(other) => other.take(screen, environment, None, &fallback::said(&failure)),
            None => Err(failure),
        }
    }

    /// Returns a request of one machine for a person who tries a class: for at most `lent`, and within `timeout`.
    pub(crate) fn trial(
        id: &RequestKey,
        class: &ClassName,
        usage_class: Option<UsageClass>,
        timeout: Duration,
        lent: Duration,
    ) -> Self {
        let run = RunArgs {
            run_id: Some(id.run_id.clone()),
            repository: Some(id.repository.clone()),
            name: id.name.clone(),
        };
        Self {
            run,
            class: class.clone(),
            count: 1,
            attempt: Some(id.attempt),
            min_count: None,
            usage_class,
            on_demand_fallback: false,
            allowed_instance_types: None,
            max_runtime: Some(lent),
            timeout: Some(timeout),
            priority: None,
            // So that a class that requires a secret label can be tried too.
            secret_label: true,
            wait: true,
            keep: false,
            fallback: None,
            trial: true,
        }
    }
}

/// The default wait.
const TIMEOUT: Duration = Duration::from_secs(600);

/// How much longer than the request the command waits, so that the operator's result comes first.
const LONGER: Duration = Duration::from_secs(30);

/// The same where jobs wait for the other runners.
const LONGER_WITH_FALLBACK: Duration = Duration::from_secs(10);

fn count(text: &str) -> Result<u32, FieldError> {
    let number = text.parse::<u32>().ok().filter(|n| (1..=MOST_MACHINES).contains(n));
    number.ok_or_else(|| {
        let message = format!("must be a whole number from 1 to {MOST_MACHINES}");
        FieldError::new("count", text, message, format!("ask for 1 to {MOST_MACHINES} machines"))
    })
}

/// Refuses an address that is none, or that would end a link.
fn page(address: &str) -> Result<(), FieldError> {
    let web = address.starts_with("https://") || address.starts_with("http://");
    if web && address.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>|`".contains(&byte)) {
        return Ok(());
    }
    let fix =
        "write the address of the yard's status page, such as https://runyard.example.com, or leave it out";
    Err(FieldError::new("RUNYARD_PAGE", address, "is no web address", fix))
}

/// Parses the name of a priority; only the operator can check that it exists.
fn priority(text: &str) -> Result<String, FieldError> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=40).contains(&text.len()) && text.bytes().all(good) {
        return Ok(text.to_owned());
    }
    let fix = "use 1 to 40 of a-z, 0-9 and -, as the yard's owner named it";
    Err(FieldError::new("priority", text, "is not the name of a priority", fix))
}

/// Parses globs of instance types, separated by spaces or commas.
fn types(text: &str) -> Result<InstanceTypes, FieldError> {
    let globs: Vec<String> =
        text.split([' ', ',', '\t']).filter(|glob| !glob.is_empty()).map(str::to_owned).collect();
    let good = |glob: &String| crate::pools::checks::is_type_glob(glob);
    if globs.is_empty() || !globs.iter().all(good) {
        let fix = "write EC2 types with * for any characters, such as 'c* m7i.*'";
        return Err(FieldError::new("allowedInstanceTypes", text, "not a list of instance types", fix));
    }
    let types = InstanceTypes(globs);
    if let Some(why) = types.out_of_bounds() {
        let fix = "name at most 40 EC2 types or globs of 1 to 30 characters; use * to name many at once";
        return Err(FieldError::new("allowedInstanceTypes", text, why, fix));
    }
    Ok(types)
}

/// Refuses a run id with a dot, which separates a run's label from a class's extra ones, and the id under which the
/// operator writes slots.
fn of_a_run(run_id: &RunId) -> Result<(), FieldError> {
    let refused = |message: &'static str| {
        let fix = "use 1 to 64 of A-Z, a-z, 0-9, _ and -, as in GITHUB_RUN_ID";
        Err(FieldError::new("runId", run_id.as_str(), message, fix))
    };
    if run_id.as_str().contains('.') {
        return refused("must not contain a dot");
    }
    if run_id.set().is_some() {
        return refused("is kept for slots of runner scale sets, which the operator alone writes");
    }
    Ok(())
}

fn accepted(context: &mut CliContext, item: &Item) -> CliResult {
    let request: Request = context::readable(item)?;
    let published = github_output::publish(&context.environment, &request);
    let id = &request.id;
    context
        .screen
        .say(format!("{id}: asked for {} of {}", request.intent.count, request.intent.resource_class));
    context.screen.say(format!(
        "its machines will have the label {}",
        github_output::shown_label(&context.environment, &request)
    ));
    context
        .screen
        .say(format!("follow it with: runyard describe request {}/{}/{}", id.run_id, id.name, id.attempt));
    context.screen.document(&github_output::document(item, &request));
    published
}
