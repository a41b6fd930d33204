//! `runyard edit`: opens a pool's spec in an editor and writes the edited spec, with the same checks as for a file.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use serde_json::{Map, Value};

use super::change::Says;
use super::plan::{self, Planned, Wanted};
use super::set::checked;
use super::{How, agreed, show};
use crate::common::failure::{CliFailure, CliResult};
use crate::input::completion;
use crate::input::unique::Unique;
use crate::input::what::class_of;
use crate::output::json as documents;
use crate::session::context::{CliContext, readable};
use crate::session::names;
use crate::session::verb::{Start, Verb};
use runyard_core::model::{ClassName, Item, Pool, PoolSpec, TableName};

/// Edits a pool.
#[derive(Debug, Args)]
#[command(after_help = "\
The editor is $VISUAL, else $EDITOR, else vi. What was taken out has its default. A file that is left as it was changes \
nothing; one that is refused is kept, and its name is told.

Examples:
  runyard edit pool/linux-x64
  EDITOR=nano runyard edit linux-x64")]
pub(crate) struct EditArgs {
    /// The resource class
    #[arg(value_name = "CLASS", value_parser = class_of, add = completion::classes())]
    class: ClassName,
    #[command(flatten)]
    how: How,
}

impl Verb for EditArgs {
    type Input = ();

    fn check(&self, _start: &Start<'_>) -> CliResult {
        Ok(())
    }

    async fn run(&self, context: &mut CliContext, (): ()) -> CliResult {
        let key = Pool::key_of(&self.class);
        let Some(before) = context.item(&key).await? else {
            return Err(names::no_such_pool(context, "CLASS", &self.class).await);
        };
        let pool: Pool = readable(&before)?;
        let old = text_of(&pool.spec);
        let file = Edited::write(context, &self.class, &old)?;
        file.open(context)?;
        let new = file.read()?;
        if new == old {
            context.screen.say(format!("pool {}: unchanged", self.class));
            return file.remove();
        }
        let table = context.table.clone();
        let spec_before = pool.spec.clone();
        let plan = |before: Option<&Item>| changed(&new, &spec_before, before, &table);
        let written = async {
            let planned = plan(Some(&before))?;
            plan::say_concerned(context, std::slice::from_ref(&planned)).await?;
            plan::apart(context, std::slice::from_ref(&planned)).await?;
            if self.how.dry_run {
                show(context, std::slice::from_ref(&planned));
                return plan::allowed(&[planned], self.how.allow_widening);
            }
            let may_widen = self.how.allow_widening || agreed(context, &[planned], true);
            let item = plan::carry_out(context, &key, may_widen, plan).await?;
            context.screen.document(&documents::record(&item));
            Ok(())
        };
        match written.await {
            Ok(()) => file.remove(),
            Err(mut failure) => {
                let kept =
                    format!("; the edit is kept: mend it and run runyard apply -f {}", file.path.display());
                failure.problems.iter_mut().for_each(|problem| problem.fix.push_str(&kept));
                Err(failure)
            }
        }
    }
}

/// Formats a spec as YAML.
fn text_of(spec: &PoolSpec) -> String {
    serde_norway::to_string(spec).expect("a spec can be written as YAML")
}

/// Plans the change from the edited text; the record must not have changed meanwhile.
fn changed(text: &str, seen: &PoolSpec, before: Option<&Item>, table: &TableName) -> CliResult<Planned> {
    let class = seen.resource_class.as_str();
    let refused = |message: &str, fix: &str| Err(CliFailure::error("pool", class, message, fix));
    let Some(before) = before else { return refused("was deleted meanwhile", "apply the edit as a file") };
    let pool: Pool = readable(before)?;
    if pool.spec != *seen {
        return refused("was changed by somebody else meanwhile", "edit it again");
    }
    let new = match serde_norway::from_str::<Unique>(text).map(|Unique(new)| new) {
        Ok(Value::Object(map)) => map,
        Ok(_) => return refused("is no longer a spec", "leave one FIELD: VALUE a line"),
        Err(error) => return refused(&format!("cannot be read: {error}"), "mend the YAML"),
    };
    if new.get("resourceClass").and_then(Value::as_str) != Some(class) {
        return refused(
            "has another name now, or none",
            "leave resourceClass as it is; a new class is applied",
        );
    }
    let says = Says::all(new.contains_key("max"));
    let old = match serde_json::to_value(&pool.spec) {
        Ok(Value::Object(map)) => map,
        Ok(_) | Err(_) => Map::new(),
    };
    let spec = checked(old, new, table)?;
    Wanted { spec, says, path: String::new() }.plan(Some(before))
}

/// The temporary file to edit.
struct Edited {
    path: PathBuf,
}

impl Edited {
    fn write(context: &CliContext, class: &ClassName, text: &str) -> CliResult<Self> {
        let path = std::env::temp_dir().join(format!("runyard-{class}-{}.yaml", context.entropy.hex()));
        let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| wrong(&path, &error))?;
        Ok(Self { path })
    }

    /// Runs the editor as a shell would: its name may contain options.
    fn open(&self, context: &CliContext) -> CliResult {
        let editor = ["VISUAL", "EDITOR"].into_iter().find_map(|name| context.environment.get(name));
        let editor = editor.unwrap_or("vi");
        let ended =
            Command::new("sh").args(["-c", &format!("{editor} \"$1\""), "sh"]).arg(&self.path).status();
        match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(_) | Err(_) => {
                let fix = "set EDITOR to one that runs here, or use `runyard set pool`";
                let _ = std::fs::remove_file(&self.path);
                Err(CliFailure::error("EDITOR", editor, "the editor failed; nothing was changed", fix))
            }
        }
    }

    fn read(&self) -> CliResult<String> {
        std::fs::read_to_string(&self.path).map_err(|error| wrong(&self.path, &error))
    }

    fn remove(&self) -> CliResult {
        // A file that remains in a directory for temporary files does no harm.
        let _ = std::fs::remove_file(&self.path);
        Ok(())
    }
}

fn wrong(path: &Path, error: &std::io::Error) -> CliFailure {
    let fix = "check that path, or set TMPDIR to a directory that you may write to";
    CliFailure::error("file", path.display().to_string(), error.to_string(), fix)
}
