//! `runyard provision`: requests machines by one write of the intent. With `--wait` the command follows the request and
//! releases it if the wait ends without machines.

use std::time::Duration;

use clap::Args;

use super::{follow, github_output};
use crate::common::duration;
use crate::common::failure::{CliFailure, CliResult, Problems};
use crate::input::run::{RunArgs, in_field};
use crate::input::{completion, selector, usage};
use crate::session::context;
use crate::session::context::CliContext;
use crate::session::verb::{Start, Verb};
use runyard_core::model::{
    Asked, ClassName, FieldError, InstanceTypes, Item, LabelSuffix, MOST_MACHINES, NewIntent, Phase, Request,
    RequestKey, RunId, UNWATCHED_RUNTIME_MINUTES, Uid, UsageClass, WATCHED_RUNTIME_MINUTES, Write,
};
use runyard_core::ports::StoreError;

mod by_class;

/// Asks for machines.
#[derive(Debug, Args)]
#[command(after_help = "\
The machines' only label is the run's id (and -NAME unless the name is `default`): use it as
  runs-on: ${{ github.run_id }}
With --secret-label 8 characters that nobody can guess follow it: take the label from the step's output `label`.

Examples:
  runyard provision --class linux-x64 --count 3 --wait    # in a workflow
  runyard provision --run-id 42 --repository acme/web \\
      --class linux-x64 --count 1
  runyard provision --class gpu --name gpu --count 4 --min-count 2 --wait \\
      --usage-class spot --on-demand-fallback --timeout 20m \\
      --allowed-instance-types 'g5.* g6.*'")]
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
            problems.keep(in_field(field, without_dot(run_id)));
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
        let item = submit(context, self, id).await?;
        let Some(interrupts) = interrupts else {
            return accepted(context, &item);
        };
        let limit = self.timeout.unwrap_or(TIMEOUT) + LONGER;
        follow::follow(context, follow::Following { item, limit, interrupts, keep: self.keep }).await
    }
}

impl ProvisionArgs {
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
            trial: true,
        }
    }
}

/// The default wait.
const TIMEOUT: Duration = Duration::from_secs(600);

/// How much longer than the request the command waits, so that the operator's result comes first.
const LONGER: Duration = Duration::from_secs(30);

fn count(text: &str) -> Result<u32, FieldError> {
    let number = text.parse::<u32>().ok().filter(|n| (1..=MOST_MACHINES).contains(n));
    number.ok_or_else(|| {
        let message = format!("must be a whole number from 1 to {MOST_MACHINES}");
        FieldError::new("count", text, message, format!("ask for 1 to {MOST_MACHINES} machines"))
    })
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

/// Refuses a run id with a dot: a dot separates a run's label from a class's extra ones.
fn without_dot(run_id: &RunId) -> Result<(), FieldError> {
    if run_id.as_str().contains('.') {
        let fix = "use 1 to 64 of A-Z, a-z, 0-9, _ and -, as in GITHUB_RUN_ID";
        return Err(FieldError::new("runId", run_id.as_str(), "must not contain a dot", fix));
    }
    Ok(())
}

fn accepted(context: &mut CliContext, item: &Item) -> CliResult {
    let request: Request = context::readable(item)?;
    github_output::publish(&context.environment, &request);
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
    Ok(())
}

/// Writes the intent, or finds the same one already written; returns the record.
pub(crate) async fn submit(context: &CliContext, args: &ProvisionArgs, id: &RequestKey) -> CliResult<Item> {
    let ours = intent(context, args, id);
    // A record that an older version stored under the repository as spelled is the same request.
    let former = Request::key_of(id);
    let id = &RequestKey { repository: id.repository.folded(), ..id.clone() };
    let key = Request::key_of(id);
    if former != key {
        match context.store.get(&former).await {
            Ok(Some(theirs)) => return same_request(&theirs, &ours).map(|()| theirs),
            // The role may be limited to today's keys.
            Ok(None) | Err(StoreError::Denied(_)) => {}
            Err(error) => return Err(context.failed(&error)),
        }
    }
    let create = Write::create(key.clone(), ours.clone());
    let written = crate::session::polling::again(async || match context.store.write(&create).await {
        Err(StoreError::Refused { .. }) => Ok(None),
        Ok(item) => Ok(Some(item)),
        Err(error) => Err(error),
    });
    // No event: a workflow's credential may only write intents, and the operator writes the events.
    if let Some(item) = written.await.map_err(|error| context.failed(&error))? {
        return Ok(item);
    }
    let Some(theirs) = context.item(&key).await? else {
        return Err(CliFailure::error(
            "request",
            id.to_string(),
            "was deleted at this moment",
            "run the command again",
        ));
    };
    same_request(&theirs, &ours)?;
    Ok(theirs)
}

/// Returns the new record.
fn intent(context: &CliContext, args: &ProvisionArgs, id: &RequestKey) -> Item {
    let uid = Uid::parse(&context.entropy.hex()).expect("hexadecimal digits make a uid");
    let drawn = || LabelSuffix::draw(|buffer| context.entropy.fill(buffer));
    let given = NewIntent {
        resource_class: args.class.clone(),
        count: args.count,
        min_count: args.min_count,
        usage_class: args.usage_class,
        on_demand_fallback: args.on_demand_fallback,
        allowed_instance_types: args.allowed_instance_types.clone(),
        max_runtime_minutes: args.max_runtime.map(|length| length.as_secs() / 60),
        timeout_seconds: args.timeout.map(|length| length.as_secs()),
        asked: Asked::Verb,
        trial: args.trial,
        label_suffix: args.secret_label.then(drawn),
        priority: args.priority.clone(),
    };
    given.item(id, uid, context.clock.now())
}

/// Checks whether the existing record is the same request and still open.
fn same_request(theirs: &Item, ours: &Item) -> CliResult {
    let (there, asked): (Request, Request) = (context::readable(theirs)?, context::readable(ours)?);
    let id = &there.id;
    if there.is_released() || there.phase().is_final() {
        let phase = match there.phase() {
            Phase::Released => "already released",
            Phase::Failed => "already failed",
            Phase::Pending | Phase::Fulfilling | Phase::Ready | Phase::Releasing => "being released",
        };
        let fix = "use another name or a new attempt";
        return Err(CliFailure::error("request", id.to_string(), format!("is {phase}"), fix));
    }
    // A request for a secret label must not get one that can be guessed.
    if asked.intent.label_suffix.is_some() && there.intent.label_suffix.is_none() {
        let fix = "release it and ask again under another --name, or leave --secret-label out";
        let message = "exists without a secret label: jobs of others could ask for its machines";
        return Err(CliFailure::error("request", id.to_string(), message, fix));
    }
    // The operator created the request first, for jobs that were re-run.
    if there.status.derived_from.is_some() && there.intent.resource_class == asked.intent.resource_class {
        return Ok(());
    }
    let (there, asked) = (described(&there, &asked), described(&asked, &there));
    let differing: Vec<String> = there
        .iter()
        .zip(&asked)
        .filter(|(there, asked)| there != asked)
        .map(|((name, there), (_, asked))| format!("{name} is {there}, asked for {asked}"))
        .collect();
    if differing.is_empty() {
        return Ok(());
    }
    let all = |intent: &[(&str, String)]| {
        intent.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    };
    Err(CliFailure::error(
        "request",
        id.to_string(),
        format!(
            "exists with a different intent: {}\n  there: {}\n  asked: {}",
            differing.join("; "),
            all(&there),
            all(&asked)
        ),
        "ask for the same, or use another name or a new attempt",
    ))
}

/// Formats a maximum runtime for the comparison with another. If one is omitted, either of the contract's defaults is
/// equal to it: whether one of them applies, or the class's own, depends on records and files that workflows may not
/// read.
fn runtime(minutes: Option<u64>, other: Option<u64>) -> String {
    let defaults = [UNWATCHED_RUNTIME_MINUTES, WATCHED_RUNTIME_MINUTES];
    let said = minutes.filter(|minutes| other.is_some() || !defaults.contains(minutes));
    said.map_or_else(|| "the default".to_owned(), |minutes| minutes.to_string())
}

/// Describes an intent with its defaults, for comparison and display.
fn described(request: &Request, other: &Request) -> Vec<(&'static str, String)> {
    let intent = &request.intent;
    let types = intent.allowed_instance_types.as_ref().map(|types| types.0.join(" "));
    vec![
        ("resourceClass", intent.resource_class.clone()),
        ("count", intent.count.to_string()),
        ("minCount", intent.min_count.to_string()),
        ("usageClass", intent.usage_class.map_or("any", UsageClass::as_str).to_owned()),
        ("onDemandFallback", intent.on_demand_fallback.to_string()),
        ("allowedInstanceTypes", types.unwrap_or_else(|| "the pool's".into())),
        ("maxRuntimeMinutes", runtime(intent.max_runtime_minutes, other.intent.max_runtime_minutes)),
        ("timeoutSeconds", intent.timeout_seconds.to_string()),
        ("priority", intent.priority.clone().unwrap_or_else(|| "the usual one".into())),
    ]
}
