//! `runyard set`: changes single fields of a pool by one write on the version that was read, with the same checks as
//! for a file and the same flag for changes that widen access.

use clap::{Args, ValueEnum};
use serde_json::{Map, Value};

use super::change::Says;
use super::plan::{self, Planned, Wanted};
use super::{How, agreed, show};
use crate::common::failure::{CliFailure, CliResult, Problems};
use crate::input::completion;
use crate::input::unique::Unique;
use crate::input::what::class_of;
use crate::output::json as documents;
use crate::pools::spec;
use crate::session::context::{CliContext, readable};
use crate::session::names;
use crate::session::verb::{Start, Verb};
use runyard_core::model::{ClassName, FieldError, Item, Pool, TableName};

/// Changes single fields of a pool.
#[derive(Debug, Args)]
#[command(after_help = "\
The fields are a spec's, as in `runyard apply`; of launch, replacement, sharing, sizing, jobs and queue by their path. A list is written with commas; a \
field with nothing after = goes back to its default. What `runyard scale` wrote stays.

Examples:
  runyard set pool linux-x64 max=20
  runyard set pool linux-x64 paused=true
  runyard set pool linux-x64 max=20 repositories='acme/web,acme/api' --dry-run
  runyard set pool linux-x64 launch.ami=ami-0123456789abcdef0")]
pub(crate) struct SetArgs {
    /// What it is
    #[arg(value_name = "KIND")]
    noun: Settable,
    /// The resource class
    #[arg(value_name = "NAME", add = completion::classes())]
    class: ClassName,
    /// Fields to set
    #[arg(value_name = "FIELD=VALUE", required = true, value_parser = Field::parse)]
    fields: Vec<Field>,
    #[command(flatten)]
    how: How,
}

impl Verb for SetArgs {
    type Input = ();

    fn check(&self, _start: &Start<'_>) -> CliResult {
        Ok(())
    }

    async fn run(&self, context: &mut CliContext, (): ()) -> CliResult {
        if let Some(item) = set(context, self).await? {
            context.screen.document(&documents::record(&item));
        }
        Ok(())
    }
}

/// Pauses pools, or lets them go on.
#[derive(Debug, Args)]
#[command(after_help = "\
A paused class claims and launches nothing: its requests wait, its busy machines finish and return. `runyard set pool \
CLASS paused=true` is the same.

Examples:
  runyard pause linux-x64
  runyard resume linux-x64 gpu")]
pub(crate) struct PauseArgs {
    /// The resource classes
    #[arg(value_name = "CLASS", required = true, value_parser = class_of, add = completion::classes())]
    classes: Vec<ClassName>,
    /// Print what would change, and write nothing
    #[arg(long)]
    dry_run: bool,
}

/// `pause` or `resume` of these classes.
pub(crate) struct Paused<'a> {
    args: &'a PauseArgs,
    paused: bool,
}

impl PauseArgs {
    /// Returns the verb that pauses or resumes these classes.
    pub(crate) const fn paused(&self, paused: bool) -> Paused<'_> {
        Paused { args: self, paused }
    }
}

impl Verb for Paused<'_> {
    type Input = ();

    fn check(&self, _start: &Start<'_>) -> CliResult {
        Ok(())
    }

    async fn run(&self, context: &mut CliContext, (): ()) -> CliResult {
        let mut items = Vec::new();
        for class in &self.args.classes {
            let field = Field { name: "paused".into(), value: Some(self.paused.into()) };
            items.extend(set_fields(context, class, vec![field], self.args.dry_run).await?);
        }
        if !self.args.dry_run {
            context.screen.document(&documents::list(&items));
        }
        Ok(())
    }
}

/// What can be set.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Settable {
    /// A resource class.
    #[value(alias = "pools")]
    Pool,
}

/// A field and its new value; `None` resets it to its default.
#[derive(Clone, Debug, PartialEq)]
struct Field {
    name: String,
    value: Option<Value>,
}

/// Fields whose value is always text.
const TEXT: &[&str] = &[
    "usageClass",
    "runnerGroup",
    "registrationMode",
    "labelMode",
    "reuseWithin",
    "launch.ami",
    "launch.architecture",
    "launch.instanceProfile",
    "launch.preRunnerScript",
    "launch.launchTemplateId",
    "launch.volume.kmsKeyId",
    "jobs.containers",
    "queue.scope",
    "replacement.hours",
    "replacement.timeZone",
    "sharing.by",
    "sharing.halfLife",
    "sizing.waitP95",
];

/// The path prefixes of tags and variables: their values are text too, and a tag's key may contain dots.
const TAGS: [&str; 2] = ["launch.tags.", "jobs.environment."];

/// Fields whose value is a list of texts.
const LISTS: &[&str] = &[
    "repositories",
    "labels",
    "queue.labels",
    "allowedInstanceTypes",
    "requestTypes",
    "launch.subnetIds",
    "launch.securityGroupIds",
];

impl Field {
    fn parse(text: &str) -> Result<Self, FieldError> {
        let refused = |message: &str| {
            let fix = "write FIELD=VALUE, such as max=20 or launch.ami=ami-0123456789abcdef0";
            Err(FieldError::new("FIELD=VALUE", text, message, fix))
        };
        let Some((name, value)) = text.split_once('=') else { return refused("has no =") };
        let top = name.split('.').next().unwrap_or_default();
        if !spec::NAMES.contains(&top) {
            let near = names::near(top, spec::NAMES.iter().copied());
            let near = near.map_or_else(String::new, |near| format!("did you mean {near}? "));
            let fix = format!("{near}use one of {}", spec::NAMES.join(", "));
            return Err(FieldError::new("FIELD=VALUE", name, "is no field of a pool", fix));
        }
        if name == "resourceClass" {
            return refused("is the pool's name, which stays");
        }
        let value = value.trim();
        let parsed = if value.is_empty() {
            None
        } else if TEXT.contains(&name) || TAGS.iter().any(|tag| name.starts_with(tag)) {
            Some(value.into())
        } else if LISTS.contains(&name) && !value.starts_with('[') {
            Some(value.split([',', ' ']).filter(|one| !one.is_empty()).collect())
        } else {
            let Ok(Unique(value)) = serde_norway::from_str(value) else {
                return refused("cannot be read, or names a key twice");
            };
            Some(value).filter(|value| !value.is_null())
        };
        Ok(Self { name: name.to_owned(), value: parsed })
    }

    /// Sets the field in a spec.
    fn put(&self, spec: &mut Map<String, Value>) -> Result<(), FieldError> {
        // At most two levels deep: `launch.volume.gib`, and `launch.tags.` or `sharing.weights.` with a key.
        let mut path: Vec<&str> = self.name.splitn(3, '.').collect();
        let name = path.pop().unwrap_or_default();
        let mut map = spec;
        for outer in path {
            let within = map.entry(outer).or_insert_with(|| Value::Object(Map::new()));
            let Value::Object(inner) = within else {
                let fix = format!("write {outer}=VALUE");
                return Err(FieldError::new(&self.name, "", format!("{outer} has no fields"), fix));
            };
            map = inner;
        }
        match &self.value {
            Some(value) => map.insert(name.to_owned(), value.clone()),
            None => map.remove(name),
        };
        Ok(())
    }
}

/// Returns a spec with one field changed as by `runyard set`: `desired=5`.
pub(crate) fn with_field(
    spec: &runyard_core::model::PoolSpec,
    text: &str,
    table: &TableName,
) -> CliResult<runyard_core::model::PoolSpec> {
    let field = Field::parse(text).map_err(CliFailure::usage)?;
    let Ok(Value::Object(old)) = serde_json::to_value(spec) else {
        unreachable!("a spec is an object of JSON values");
    };
    let mut new = old.clone();
    field.put(&mut new).map_err(CliFailure::usage)?;
    checked(old, new, table)
}

/// Prepares the deletion of a class: it keeps no machines and starts none.
pub(crate) async fn retire(context: &mut CliContext, class: &ClassName) -> CliResult {
    let fields = ["paused=true", "desired=0", "min=0", "schedules="].map(Field::parse);
    let fields = fields.into_iter().collect::<Result<_, _>>().map_err(CliFailure::usage)?;
    set_fields(context, class, fields, false).await.map(drop)
}

async fn set_fields(
    context: &mut CliContext,
    class: &ClassName,
    fields: Vec<Field>,
    dry_run: bool,
) -> CliResult<Option<Item>> {
    let how = How { dry_run, allow_widening: false };
    set(context, &SetArgs { noun: Settable::Pool, class: class.clone(), fields, how }).await
}

/// Sets the fields; returns the record unless nothing changed.
async fn set(context: &mut CliContext, args: &SetArgs) -> CliResult<Option<Item>> {
    let Settable::Pool = args.noun;
    let key = Pool::key_of(&args.class);
    let table = context.table.clone();
    let Some(before) = context.item(&key).await? else {
        return Err(names::no_such_pool(context, "NAME", &args.class).await);
    };
    let plan = |before: Option<&Item>| changed(args, before, &table);
    let planned = plan(Some(&before))?;
    plan::say_concerned(context, std::slice::from_ref(&planned)).await?;
    plan::apart(context, std::slice::from_ref(&planned)).await?;
    if args.how.dry_run {
        show(context, std::slice::from_ref(&planned));
        plan::allowed(&[planned], args.how.allow_widening)?;
        return Ok(None);
    }
    let may_widen = args.how.allow_widening || agreed(context, &[planned], true);
    plan::carry_out(context, &key, may_widen, plan).await.map(Some)
}

/// Plans the change of these fields in the stored record.
fn changed(args: &SetArgs, before: Option<&Item>, table: &TableName) -> CliResult<Planned> {
    let Some(before) = before else {
        let fix = "`runyard apply -f FILE` creates one";
        return Err(CliFailure::error("NAME", args.class.as_str(), "was deleted meanwhile", fix));
    };
    let pool: Pool = readable(before)?;
    let Ok(Value::Object(old)) = serde_json::to_value(&pool.spec) else {
        unreachable!("a spec is an object of JSON values");
    };
    let mut new = old.clone();
    let mut problems = Problems::default();
    for field in &args.fields {
        problems.keep(field.put(&mut new));
    }
    problems.check()?;
    let said_max = args.fields.iter().any(|field| field.name == "max" && field.value.is_none());
    let spec = checked(old, new, table)?;
    Wanted { spec, says: Says::all(!said_max), path: String::new() }.plan(Some(before))
}

/// Checks the new spec; only problems that the old one did not have are errors.
pub(super) fn checked(
    old: Map<String, Value>,
    new: Map<String, Value>,
    table: &TableName,
) -> CliResult<runyard_core::model::PoolSpec> {
    let found = |map: Map<String, Value>| {
        let mut problems = Problems::default();
        let specs = spec::all(&[Value::Object(map)], table, &mut problems);
        (specs, problems.check().err().map(|failure| failure.problems).unwrap_or_default())
    };
    let (_, before) = found(old);
    let (specs, mut problems) = found(new);
    problems.retain(|problem| !before.contains(problem));
    let named = |problem: FieldError| {
        let field = problem.field.trim_start_matches("pools[0].").to_owned();
        problem.named(field)
    };
    match (specs.into_iter().next(), problems.is_empty()) {
        (Some(spec), true) => Ok(spec),
        (_, false) => Err(CliFailure::all_usage(problems.into_iter().map(named).collect())),
        (None, true) => Err(CliFailure::all_usage(before.into_iter().map(named).collect())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_field_is_read_as_what_its_spec_wants() {
        for (text, value) in [
            ("max=20", json!(20)),
            ("paused=true", json!(true)),
            ("reuseWithin=none", json!("none")),
            ("repositories=*", json!(["*"])),
            ("repositories=acme/*,acme/web", json!(["acme/*", "acme/web"])),
            ("labels=[gpu]", json!(["gpu"])),
            ("queue.labels=runyard-small,linux", json!(["runyard-small", "linux"])),
            ("queue.scope=organization", json!("organization")),
            ("queue.standing=2", json!(2)),
            ("launch.ami=ami-0123456789abcdef0", json!("ami-0123456789abcdef0")),
            ("schedules=[{cron: '0 8 * * *', desired: 2}]", json!([{"cron": "0 8 * * *", "desired": 2}])),
        ] {
            assert_eq!(Field::parse(text).unwrap().value, Some(value), "{text}");
        }
        assert_eq!(Field::parse("labels=").unwrap().value, None);
        for bad in ["max", "maxx=3", "resourceClass=b", "schedules=[", "=3"] {
            let refused = Field::parse(bad).unwrap_err();
            assert!(!refused.fix.is_empty(), "{bad}");
        }
        let unknown = Field::parse("maxx=3").unwrap_err();
        assert_eq!(unknown.value, "maxx", "the name is wrong, not the value");
        assert!(unknown.fix.contains("did you mean max?"));
    }

    #[test]
    fn a_field_within_a_field_is_set_by_its_path() {
        let set = |texts: &[&str]| {
            let mut spec = Map::new();
            texts.iter().for_each(|text| Field::parse(text).unwrap().put(&mut spec).unwrap());
            Value::Object(spec)
        };
        assert_eq!(
            set(&[
                "launch.volume.gib=60",
                "launch.volume.kmsKeyId=alias/yard",
                "launch.tags.cost.center=4711"
            ]),
            json!({"launch": {"volume": {"gib": 60, "kmsKeyId": "alias/yard"}, "tags": {"cost.center": "4711"}}})
        );
        assert_eq!(
            set(&["launch.volume.gib=60", "launch.volume.gib="]),
            json!({"launch": {"volume": {}}}),
            "which says as much as none"
        );
    }

    #[test]
    fn only_what_a_change_makes_wrong_is_held_against_it() {
        let table = TableName::parse("runyard").unwrap();
        let spec = |value: Value| value.as_object().unwrap().clone();
        let stored = spec(json!({"resourceClass": "a", "max": 5, "desired": 2, "idleSeconds": 5}));
        let more = spec(json!({"resourceClass": "a", "max": 9, "desired": 2, "idleSeconds": 5}));
        assert_eq!(checked(stored.clone(), more, &table).unwrap().max, 9);
        let over = spec(json!({"resourceClass": "a", "max": 1, "desired": 2, "idleSeconds": 5}));
        let refused = checked(stored, over, &table).unwrap_err();
        assert_eq!(refused.problems.len(), 1, "{refused:?}");
        assert_eq!(refused.problems[0].field, "desired");
    }
}
