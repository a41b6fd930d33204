//! `runyard check-workflow`: the `runs-on` that each job of a workflow needs, and the parts of the job that do not work
//! on a class. It reads only files: no table, no account, no network.

mod class;
mod document;
mod findings;
mod rules;
mod runs_on;
mod tables;
#[cfg(test)]
mod tests;
mod told;
mod workflow;

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use self::class::Class;
use self::document::Refusal;
use self::findings::{Finding, Level};
use self::runs_on::Verdict;
use crate::common::failure::{CliFailure, CliResult, Exit, Problems};
use crate::input::what::class_of;
use crate::output::screen::Screen;
use crate::output::table::columns;
use crate::pools;
use crate::session::stack::StackArgs;
use runyard_core::model::{ClassName, FieldError, TableName};

/// Maximum size of a file, in bytes.
const LONGEST: u64 = 1 << 20;

/// Checks workflows.
#[derive(Debug, Args)]
#[command(after_help = "\
Each job is told with what to write in its `runs-on`, and each finding with its line and the way out. A finding `fails` on \
the class, depends on the machine `image`, or is a `note`. The exit code is 0 if nothing fails, 1 if something does, and 2 \
if a file cannot be read. Actions of the repository and workflows that it calls are not followed.

With -o json each file is an item: file, class, fails, and jobs, each with job, line, runsOn, verdict (moves, \
moves-partly, stays, borrows, calls, unknown), write, and findings (level, rule, line, what, fix).

Examples:
  runyard check-workflow .github/workflows/*.yml
  runyard check-workflow test.yml --pool pools.yaml --class linux-arm64
  runyard check-workflow - -o json <test.yml")]
pub(crate) struct CheckWorkflowArgs {
    /// Workflow files; - for standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// File of pool specs [default: class linux-x64 of config/pools.yaml]
    #[arg(long, value_name = "FILE")]
    pool: Option<PathBuf>,
    /// Resource class to check against [default: the first of --pool]
    #[arg(long, value_name = "CLASS", value_parser = class_of, requires = "pool")]
    class: Option<ClassName>,
}

/// The report about a file.
struct Report {
    file: String,
    jobs: Vec<JobReport>,
}

/// The report about a job.
struct JobReport {
    name: String,
    line: usize,
    now: String,
    verdict: Verdict,
    write: Option<String>,
    findings: Vec<Finding>,
}

impl Report {
    /// Returns whether something would not work.
    fn fails(&self) -> bool {
        self.jobs.iter().flat_map(|job| &job.findings).any(|one| one.level == Level::Fails)
    }
}

/// Runs `runyard check-workflow`.
pub(crate) fn run(screen: &mut Screen, args: &CheckWorkflowArgs, table: &TableName) -> CliResult {
    let class = class(args, table)?;
    let mut problems = Problems::default();
    let read = args.files.iter().filter_map(|file| problems.keep(checked(file, &class)));
    let reports: Vec<Report> = read.collect();
    tell(screen, &reports, &class, args.pool.is_none());
    problems.check()?;
    if reports.iter().any(Report::fails) {
        return Err(CliFailure { exit: Exit::Error, problems: Vec::new() });
    }
    Ok(())
}

/// Returns the class to check against.
fn class(args: &CheckWorkflowArgs, table: &TableName) -> CliResult<Class> {
    let Some(file) = &args.pool else { return Ok(Class::assumed()) };
    let specs = pools::specs(file, &StackArgs::default(), table).map_err(|failure| {
        let named = |problem: FieldError| {
            if problem.field == "--file" { problem.named("--pool") } else { problem }
        };
        CliFailure { problems: failure.problems.into_iter().map(named).collect(), ..failure }
    })?;
    let wanted = |name: &ClassName| specs.iter().find(|spec| spec.resource_class == *name);
    match (&args.class, specs.first()) {
        (Some(name), _) => wanted(name).map(Class::of).ok_or_else(|| {
            let known: Vec<String> = specs.iter().map(|spec| spec.resource_class.to_string()).collect();
            let fix = format!("use one of {}", known.join(", "));
            let message = format!("is no class of {}", file.display());
            CliFailure::usage(FieldError::new("--class", name.to_string(), message, fix))
        }),
        (None, first) => Ok(first.map_or_else(Class::assumed, Class::of)),
    }
}

fn tell(screen: &mut Screen, reports: &[Report], class: &Class, assumed: bool) {
    if reports.is_empty() {
        return;
    }
    let items: Vec<Value> = reports.iter().map(|report| told::document(report, class)).collect();
    screen.document(&json!({"items": items}));
    if screen.format.for_programs() {
        return;
    }
    let remark = if assumed { "; assumed: name yours with --pool FILE" } else { "" };
    screen.say(format!("{}{remark}", class.told()));
    for report in reports {
        screen.say(format!("\n{}", report.file));
        let table = columns(screen, told::HEADS, told::rows(report));
        screen.text(&table);
        told::findings(report).into_iter().for_each(|line| screen.say(line));
    }
    screen.say("");
    told::summary(reports, class, assumed).into_iter().for_each(|line| screen.say(line));
}

/// Checks the workflow in a file.
fn checked(path: &Path, class: &Class) -> Result<Report, FieldError> {
    let text = text(path)?;
    let file = path.display().to_string();
    report(&file, &text, class).map_err(|refusal| {
        FieldError::new(format!("{file}:{}", refusal.line), refusal.value, refusal.message, refusal.fix)
    })
}

/// Checks a workflow.
fn report(file: &str, text: &str, class: &Class) -> Result<Report, Refusal> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let jobs = workflow::jobs(&*document::read(text)?)?;
    let askers: Vec<&str> =
        jobs.iter().filter(|job| job.asks_for_machines()).map(|job| job.name.as_str()).collect();
    let told = jobs.iter().map(|job| {
        let answer = runs_on::answer(job, class, &askers);
        let mut findings = answer.findings;
        if answer.verdict.reaches_the_class() {
            findings.extend(rules::of_job(job, class, text));
        }
        findings.sort_by_key(|one| one.line);
        let (now, verdict, write) = (answer.now, answer.verdict, answer.write);
        JobReport { name: job.name.clone(), line: job.line, now, verdict, write, findings }
    });
    Ok(Report { file: file.to_owned(), jobs: told.collect() })
}

/// Reads the text of a file; `-` is standard input.
fn text(path: &Path) -> Result<String, FieldError> {
    let shown = path.display().to_string();
    let refused = |message: String, fix: &str| FieldError::new("FILE", shown.clone(), message, fix);
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(LONGEST + 1).read_to_end(&mut bytes)
    } else if path.is_dir() {
        return Err(refused(
            "is a directory".into(),
            "name the files in it, such as .github/workflows/*.yml",
        ));
    } else {
        std::fs::File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes))
    };
    if let Err(error) = read {
        let glob = shown.contains(['*', '?', '[']) && error.kind() == std::io::ErrorKind::NotFound;
        return Err(if glob {
            refused("is a pattern that no file fits".into(), "check the pattern, and leave it without quotes")
        } else {
            refused(error.to_string(), "check the path and its permissions")
        });
    }
    if bytes.len() as u64 > LONGEST {
        return Err(refused(format!("is longer than {LONGEST} bytes"), "name a workflow file"));
    }
    let text = String::from_utf8(bytes);
    text.map_err(|_| refused("is not UTF-8 text".into(), "name a workflow file, and save it as UTF-8"))
}
