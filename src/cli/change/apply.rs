//! `runyard apply`: writes pools from a file of specs. The whole file is checked before the first write; each record is
//! written on the version that was read, and only the attributes that people own.

mod change;
mod edit;
mod plan;
mod set;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use crate::common::failure::{CliFailure, CliResult, Exit};
use crate::output::json as documents;
use crate::pools;
use crate::session::context::CliContext;
use crate::session::stack::StackArgs;
use crate::session::verb::{Start, Verb};
use crate::session::{configured, launch_templates};
use runyard_core::model::{ClassName, PoolSpec, TIMEOUT_SECONDS, TableName};
use runyard_core::ports::QueueError;
use runyard_operator::config::Config;

use plan::{Planned, Wanted};

pub(crate) use edit::EditArgs;
pub(crate) use set::{PauseArgs, SetArgs, retire, with_field};

/// Creates and changes pools.
#[derive(Debug, Args)]
#[command(after_help = "\
The file is a list of pool specs, or {\"pools\": [...]}; YAML (.yaml, .yml) or JSON (.json), `-` for YAML or JSON on \
standard input. What a spec leaves out has its default; an override made with `runyard scale` stays. \
A change that lets more in (repositories, reuseWithin, registrationMode, labelMode, queue) or drops launch, and any field of an \
existing class that the file leaves out and that would fall back to its default, needs --allow-widening; on a terminal \
it asks. To change single fields: runyard set pool.

Examples:
  runyard apply -f pools.yaml --dry-run
  runyard apply -f pools.yaml
  runyard apply -f - <<'END'
  pools:
    - resourceClass: linux-x64
      cpu: 4
      mmem: 16384
      desired: 2
      max: 20
      reuseWithin: repository
      schedules:
        - {cron: '0 8 * * 1-5', timeZone: Europe/Berlin, desired: 10}
        - {cron: '0 19 * * *', timeZone: Europe/Berlin, desired: 0}
  END")]
pub(crate) struct ApplyArgs {
    /// File of pool specs
    #[arg(long, short, value_name = "FILE")]
    file: PathBuf,
    /// Operator configuration: checks `[sharing]`, and with compute.kind = "ec2" updates launch templates now [default:
    /// the operator updates them when it launches]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) stack: StackArgs,
    #[command(flatten)]
    how: How,
}

impl Verb for ApplyArgs {
    type Input = ApplyInput;

    fn check(&self, start: &Start<'_>) -> CliResult<Self::Input> {
        let config = self.config.as_ref().map(|file| configured::load(start.table, file)).transpose()?;
        let askable = self.file != Path::new("-");
        let wanted = wanted(&self.file, &self.stack.of_yard(start.environment), start.table)?;
        let created = configured::policy(self.config.as_ref(), start.table)?.timing.created;
        Ok(ApplyInput { config, wanted, how: self.how, created, askable })
    }

    async fn run(&self, context: &mut CliContext, input: Self::Input) -> CliResult {
        let input = &input;
        let plans = plans(context, &input.wanted).await?;
        plan::say_concerned(context, &plans).await?;
        plan::apart(context, &plans).await?;
        if input.how.dry_run {
            show(context, &plans);
            return plan::allowed(&plans, input.how.allow_widening);
        }
        let allowed = input.how.allow_widening || agreed(context, &plans, input.askable);
        plan::allowed(&plans, allowed)?;
        for warning in input.wanted.iter().flat_map(|wanted| input.remarks(wanted)) {
            context.screen.remark(warning);
        }
        // A class exists once its record does, so its launch template and its queue come first.
        let specs: Vec<PoolSpec> = input.wanted.iter().map(|wanted| wanted.spec.clone()).collect();
        for line in launch_templates::keep(&context.environment, input.config.as_ref(), &specs).await? {
            context.screen.say(line);
        }
        let mut records = Vec::new();
        for wanted in &input.wanted {
            ensure_queue(context, &wanted.spec.resource_class).await?;
            records
                .push(plan::carry_out(context, &wanted.key(), allowed, |before| wanted.plan(before)).await?);
        }
        context.screen.document(&documents::list(&records));
        Ok(())
    }
}

/// How a change of pools is made.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct How {
    /// Print what would change, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Allow changes that widen access, and reset fields that the file omits
    #[arg(long)]
    allow_widening: bool,
}

/// Shows what `apply` would change.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit code 0 when the pools are as the file says, 1 when something differs. A line marked with ! is a change that \
`runyard apply` makes only with --allow-widening.

Examples:
  runyard diff -f pools.yaml
  runyard diff -f pools.yaml -o json")]
pub(crate) struct DiffArgs {
    /// File of pool specs, as for `apply`
    #[arg(long, short, value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    pub(crate) stack: StackArgs,
}

impl Verb for DiffArgs {
    type Input = Vec<Wanted>;

    fn check(&self, start: &Start<'_>) -> CliResult<Self::Input> {
        wanted(&self.file, &self.stack.of_yard(start.environment), start.table)
    }

    async fn run(&self, context: &mut CliContext, wanted: Self::Input) -> CliResult {
        let wanted = wanted.as_slice();
        let plans = plans(context, wanted).await?;
        show(context, &plans);
        let same = plans.iter().all(|plan| !plan.writes());
        if same { Ok(()) } else { Err(CliFailure { exit: Exit::Error, problems: Vec::new() }) }
    }
}

/// The checked arguments.
pub(crate) struct ApplyInput {
    config: Option<Config>,
    wanted: Vec<Wanted>,
    how: How,
    /// The time that the operator allows a machine to boot.
    created: Duration,
    /// Whether a person can be asked, which needs a standard input that is not the file.
    askable: bool,
}

impl ApplyInput {
    /// Returns remarks about an accepted spec. They are not errors, since the operator's file may be changed after it.
    fn remarks(&self, wanted: &Wanted) -> Vec<String> {
        let path = wanted.path.trim_end_matches('.');
        let shares = self.config.iter().flat_map(|config| {
            let found = crate::pools::sharing::beside_the_yard(path, &wanted.spec, &config.sharing);
            found
                .into_iter()
                .map(|one| format!("warning: {}: {} {}; {}", one.field, one.value, one.message, one.fix))
        });
        hung_boot(&wanted.spec, self.created).into_iter().chain(shares).collect()
    }
}

fn wanted(file: &Path, stack: &StackArgs, table: &TableName) -> CliResult<Vec<Wanted>> {
    let entries = pools::entries(file, stack, table)?.into_iter().enumerate();
    let wanted = |(i, (spec, entry)): (usize, (PoolSpec, Value))| Wanted {
        spec,
        says: change::Says::of(&entry),
        path: format!("pools[{i}]."),
    };
    Ok(entries.map(wanted).collect())
}

/// Returns a warning if a machine that hangs at its first boot would block a class that has no room for a second one.
fn hung_boot(spec: &PoolSpec, created: Duration) -> Option<String> {
    let patience = Duration::from_secs(TIMEOUT_SECONDS);
    (spec.max == 1 && created > patience).then(|| {
        format!(
            "warning: class {} has room for one machine, and one that hangs at its first boot holds it for timing.created \
             ({}), longer than requests wait by default ({}); set max to 2, or timing.created to less",
            spec.resource_class,
            crate::common::duration::show(created),
            crate::common::duration::show(patience),
        )
    })
}

async fn plans(context: &CliContext, wanted: &[Wanted]) -> CliResult<Vec<Planned>> {
    let mut plans = Vec::new();
    for one in wanted {
        plans.push(one.plan(context.item(&one.key()).await?.as_ref())?);
    }
    Ok(plans)
}

fn show(context: &mut CliContext, plans: &[Planned]) {
    for line in plans.iter().flat_map(|plan| plan.told(true)) {
        context.screen.say(line);
    }
    let items: Vec<Value> = plans.iter().map(Planned::document).collect();
    context.screen.document(&json!({"items": items}));
}

/// Asks the person at the terminal about changes that widen access, and returns the answer.
fn agreed(context: &mut CliContext, plans: &[Planned], askable: bool) -> bool {
    if !askable || plans.iter().all(|plan| !plan.widens()) || !context.screen.can_ask() {
        return false;
    }
    for line in plans.iter().filter(|plan| plan.widens()).flat_map(|plan| plan.told(true)) {
        context.screen.say(line);
    }
    context.screen.ask("The lines marked with ! let more in or drop what was said. Write them?")
}

async fn ensure_queue(context: &CliContext, class: &ClassName) -> CliResult {
    let Some(queue) = &context.queue else { return Ok(()) };
    match queue.ensure(class).await {
        Ok(()) => Ok(()),
        // Queues are hints: without them, the records suffice.
        Err(QueueError::NoService(why)) => {
            tracing::warn!(%class, %why, "no queue for the class: no SQS there");
            Ok(())
        }
        Err(error) => {
            let fix = "check the permissions and the endpoint of SQS, then apply again";
            Err(CliFailure::error("queue", class.as_str(), error.to_string(), fix))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_taken_as_it_is() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/pools.yaml");
        let specs =
            pools::specs(&file, &StackArgs::default(), &TableName::parse("runyard").unwrap()).unwrap();
        let classes: Vec<&str> = specs.iter().map(|spec| spec.resource_class.as_str()).collect();
        assert_eq!(classes, ["linux-x64", "untrusted"]);
        assert_eq!(specs[0].launch, specs[1].launch);
        assert_eq!(specs[1].reuse_within, runyard_core::model::ReuseWithin::Never);
    }

    #[test]
    fn the_commented_class_of_the_example_has_a_scale_set() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/pools.yaml");
        let example = std::fs::read_to_string(file).unwrap();
        // A commented line of YAML has no space behind its `#`, or two.
        let line = |line: &str| match line.strip_prefix("  #") {
            Some(yaml) if yaml.starts_with('-') || yaml.starts_with("  ") => format!("  {yaml}\n"),
            Some(_) | None => format!("{line}\n"),
        };
        let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        std::io::Write::write_all(&mut file, example.lines().map(line).collect::<String>().as_bytes())
            .unwrap();
        let table = TableName::parse("runyard").unwrap();
        let specs = pools::specs(file.path(), &StackArgs::default(), &table).unwrap();
        let places: Vec<String> = specs[2].set_places().iter().map(ToString::to_string).collect();
        assert_eq!((specs[2].resource_class.as_str(), places), ("builds", vec!["acme".to_owned()]));
    }

    /// Runs `apply` on a restricted class with this typed answer; returns whether it succeeded, the question, and the
    /// repositories that may use the class afterwards.
    async fn widened(typed: &'static str) -> (bool, String, Vec<String>) {
        let (store, scratch) = (runyard_fakes::MemoryStore::new(), tempfile::tempdir().unwrap());
        let written = |repositories: &str| {
            let file = scratch.path().join("pools.json");
            let text = json!([{"resourceClass": "sec", "max": 3, "repositories": [repositories]}]);
            std::fs::write(&file, text.to_string()).unwrap();
            let how = How { dry_run: false, allow_widening: false };
            ApplyArgs { file, config: None, stack: StackArgs::default(), how }
        };
        let screen = || crate::output::screen::Screen::kept(crate::output::format::Format::Text);
        let mut context = CliContext::on(store.clone(), screen().0);
        written("acme/*").run_on(&mut context).await.unwrap();
        let (screen, said) = screen();
        let mut context = CliContext::on(store.clone(), screen.typed(typed));
        let done = written("*").run_on(&mut context).await.is_ok();
        let key = runyard_core::model::Pool::key_of(&ClassName::parse("sec").unwrap());
        let item = context.item(&key).await.unwrap().unwrap();
        let pool: runyard_core::model::Pool = crate::session::context::readable(&item).unwrap();
        (done, said(), pool.spec.repositories)
    }

    #[tokio::test]
    async fn a_person_at_a_terminal_is_asked_and_only_yes_widens() {
        for (typed, yes) in [("y\n", true), ("yes\n", true), ("n\n", false), ("\n", false), ("", false)] {
            let (done, said, repositories) = widened(typed).await;
            assert_eq!(done, yes, "{typed:?}");
            assert_eq!(repositories, [if yes { "*" } else { "acme/*" }], "{typed:?}");
            assert!(said.contains("! repositories acme/* → *"), "{said}");
            assert!(said.contains("Write them? [y/N]"), "{said}");
        }
    }

    /// Applies a class with a scale set of this label on a yard; returns the problems.
    async fn with_a_set(store: &runyard_fakes::MemoryStore, class: &str, label: &str) -> Vec<String> {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("pools.json");
        let queue = json!({"labels": [label, "linux"], "scope": "organization"});
        let spec = json!({"resourceClass": class, "max": 3, "repositories": ["acme/*"], "reuseWithin": "owner",
            "registrationMode": "job", "queue": queue});
        std::fs::write(&file, json!([spec]).to_string()).unwrap();
        let how = How { dry_run: false, allow_widening: true };
        let args = ApplyArgs { file, config: None, stack: StackArgs::default(), how };
        let mut context = CliContext::on(
            store.clone(),
            crate::output::screen::Screen::kept(crate::output::format::Format::Text).0,
        );
        let failed = args.run_on(&mut context).await.err();
        failed.into_iter().flat_map(|failure| failure.problems).map(|problem| problem.to_string()).collect()
    }

    #[tokio::test]
    async fn a_set_that_shares_a_label_with_another_class_of_the_yard_is_refused() {
        let store = runyard_fakes::MemoryStore::new();
        assert_eq!(with_a_set(&store, "small", "builds").await, [""; 0]);
        let refused = with_a_set(&store, "large", "Builds").await;
        assert_eq!(refused.len(), 1, "{refused:?}");
        for part in ["pools[0].queue.labels", "Builds", "class large and of class small", "another label"] {
            assert!(refused[0].contains(part), "{part}: {refused:?}");
        }
        assert_eq!(with_a_set(&store, "large", "large-builds").await, [""; 0]);
        assert_eq!(
            with_a_set(&store, "small", "builds").await,
            [""; 0],
            "a class does not clash with itself"
        );
        assert_eq!(with_a_set(&store, "large", "builds").await.len(), 1, "a label that is added later");
    }

    #[test]
    fn a_class_that_a_hung_boot_would_hold_longer_than_requests_wait_is_warned_of() {
        let spec = |max: u32| -> PoolSpec {
            serde_json::from_value(json!({"resourceClass": "linux", "max": max})).unwrap()
        };
        let told = hung_boot(&spec(1), Duration::from_secs(900)).unwrap();
        assert!(told.contains("timing.created (15m)") && told.contains("(10m)"), "{told}");
        assert_eq!(hung_boot(&spec(1), Duration::from_secs(600)), None);
        assert_eq!(hung_boot(&spec(2), Duration::from_secs(900)), None, "a second machine comes beside it");
    }
}
