//! Formats the result of a check, for programs and for people.

use serde_json::{Value, json};

use super::class::Class;
use super::findings::Level;
use super::runs_on::{Verdict, words};
use super::{JobReport, Report};

/// Formats a file's report as an object.
pub(super) fn document(report: &Report, class: &Class) -> Value {
    let job = |job: &JobReport| {
        let findings = job.findings.iter().map(|one| {
            json!({
                "level": one.level.word(), "rule": one.rule, "line": one.line, "what": one.what, "fix": one.fix,
            })
        });
        json!({
            "job": job.name, "line": job.line, "runsOn": job.now, "verdict": job.verdict.word(),
            "write": job.write, "findings": findings.collect::<Vec<_>>(),
        })
    };
    json!({
        "file": report.file, "class": class.name, "fails": report.fails(),
        "jobs": report.jobs.iter().map(job).collect::<Vec<_>>(),
    })
}

/// The headings of the table of jobs.
pub(super) const HEADS: &[&str] = &["JOB", "LINE", "RUNS-ON NOW", "WRITE"];

/// Returns the rows of the table of jobs.
pub(super) fn rows(report: &Report) -> Vec<Vec<String>> {
    let row = |job: &JobReport| {
        let write = match (job.verdict, &job.write) {
            (Verdict::Unknown, Some(write)) => format!("if it is a Linux runner: runs-on: {write}"),
            (_, Some(write)) => format!("runs-on: {write}"),
            (Verdict::Borrows, None) => "nothing: it borrows machines".into(),
            (Verdict::Calls, None) => "nothing: it calls a workflow".into(),
            (_, None) => "nothing: it stays where it is".into(),
        };
        vec![job.name.clone(), job.line.to_string(), job.now.clone(), write]
    };
    report.jobs.iter().map(row).collect()
}

/// Formats the findings of a file, each with its position and fix.
pub(super) fn findings(report: &Report) -> Vec<String> {
    let of_job = |job: &JobReport| {
        let each = job.findings.iter().map(|one| {
            let place = format!("{}:{}", report.file, one.line);
            format!("{place}: {}: job {}: {}\n  fix: {}", one.level.word(), job.name, one.what, one.fix)
        });
        each.collect::<Vec<_>>()
    };
    report.jobs.iter().flat_map(of_job).collect()
}

/// Summarises all files, with the other changes that the workflows need; `assumed` means that no file named
/// the class.
pub(super) fn summary(reports: &[Report], class: &Class, assumed: bool) -> Vec<String> {
    let jobs = || reports.iter().flat_map(|report| &report.jobs);
    let with = |level| jobs().flat_map(|job| &job.findings).filter(|one| one.level == level).count();
    let moving = jobs().filter(|job| matches!(job.verdict, Verdict::Moves | Verdict::MovesPartly)).count();
    let mut lines = vec![format!(
        "{} jobs, {moving} to move; {} would not work, {} depend on the image, {} notes",
        jobs().count(),
        with(Level::Fails),
        with(Level::Image),
        with(Level::Note)
    )];
    if moving > 0 {
        lines.extend(words(class).beside.map(str::to_owned));
        if class.secret_label {
            lines.push(format!("The class {} requires `secret-label: true` beside `class`.", class.name));
        }
        lines.extend(by_label(class, assumed));
    }
    lines
}

/// Returns on what the label alone rests, if the class is served by it.
fn by_label(class: &Class, assumed: bool) -> Option<String> {
    let name = &class.name;
    let why = if assumed {
        format!(
            "Nothing else changes where the class has `queue: {{runLabels: true}}`, as class {name} of config/pools.yaml \
             has it; name a class of yours by --pool and --class."
        )
    } else {
        format!("Nothing else changes: class {name} has `queue: {{runLabels: true}}`.")
    };
    class.run_labels.then_some(why)
}
