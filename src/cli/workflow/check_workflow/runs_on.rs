//! Where does a job run now, and which `runs-on` makes it run on a machine of the class?

use super::class::Class;
use super::document::Node;
use super::findings::{Finding, Level};
use super::workflow::Job;

/// The label that the job `provision` of a workflow hands on, as an expression.
const LABEL: &str = "needs.provision.outputs.label";

/// The text with which a workflow borrows machines of a class.
pub(super) struct Words {
    /// The whole `runs-on` of a job on borrowed machines.
    pub(super) runs_on: String,
    /// The same as a part of an expression, without its braces.
    pub(super) label: String,
    /// The other changes that the workflow needs; `None` if there are none.
    pub(super) beside: Option<&'static str>,
}

/// Returns the text with which a workflow borrows machines of a class: the label alone where the class serves labels.
pub(super) fn words(class: &Class) -> Words {
    if class.run_labels {
        let name = &class.name;
        return Words {
            runs_on: format!("${{{{ github.run_id }}}}-{name}"),
            label: format!("format('{{0}}-{name}', github.run_id)"),
            beside: None,
        };
    }
    Words {
        runs_on: format!("${{{{ {LABEL} }}}}"),
        label: LABEL.to_owned(),
        beside: Some(
            "A job that moves also needs `needs: provision`, and the workflow the jobs `provision` and `release`: \
             docs/workflows.md",
        ),
    }
}

/// The result for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The job moves to the class.
    Moves,
    /// Some jobs of its matrix move.
    MovesPartly,
    /// The job stays where it is.
    Stays,
    /// The job borrows machines already.
    Borrows,
    /// The job calls a workflow, which contains the jobs.
    Calls,
    /// The runner is known only in a run.
    Unknown,
}

impl Verdict {
    /// Returns the name of the verdict.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Moves => "moves",
            Self::MovesPartly => "moves-partly",
            Self::Stays => "stays",
            Self::Borrows => "borrows",
            Self::Calls => "calls",
            Self::Unknown => "unknown",
        }
    }

    /// Returns whether the job's steps would run on the class.
    pub(super) const fn reaches_the_class(self) -> bool {
        match self {
            Self::Moves | Self::MovesPartly | Self::Borrows | Self::Unknown => true,
            Self::Stays | Self::Calls => false,
        }
    }
}

/// The result for a job's `runs-on`.
pub(super) struct Answer {
    /// The current value.
    pub(super) now: String,
    /// The verdict.
    pub(super) verdict: Verdict,
    /// The new value; `None` if nothing is to be changed.
    pub(super) write: Option<String>,
    /// The labels that do not fit.
    pub(super) findings: Vec<Finding>,
}

/// The operating system that a label selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Linux,
    Windows,
    MacOs,
    /// The label is an expression.
    Unknown,
}

struct Label {
    line: usize,
    text: String,
    system: System,
}

/// Returns the system that a label names, by its words, since every provider has its own labels.
fn system(text: &str) -> System {
    let literal = text
        .split("${{")
        .enumerate()
        .map(|(at, part)| if at == 0 { part } else { part.split_once("}}").map_or("", |(_, rest)| rest) });
    let literal = literal.collect::<String>();
    let names =
        |prefixes: &[&str]| words_of(&literal).any(|word| prefixes.iter().any(|one| word.starts_with(one)));
    if names(&["windows", "win1", "win2"]) || words_of(&literal).any(|word| word == "win") {
        System::Windows
    } else if names(&["macos", "xcode", "osx"]) || words_of(&literal).any(|word| word == "mac") {
        System::MacOs
    } else if text.contains("${{") && !names(&["ubuntu", "linux"]) {
        System::Unknown
    } else {
        System::Linux
    }
}

fn words_of(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
}

/// Returns whether a label selects an ARM machine or one of another architecture; `None` if it selects neither.
fn arm(text: &str) -> Option<bool> {
    let arm = words_of(text)
        .any(|word| matches!(word.as_str(), "arm" | "arm32" | "arm64" | "armv7" | "armv8" | "aarch64"));
    // GitHub's own labels without `arm` are x64.
    let x64 = words_of(text).any(|word| matches!(word.as_str(), "x64" | "amd64" | "ubuntu"));
    if arm { Some(true) } else { x64.then_some(false) }
}

/// Returns the expression in braces, if the whole text is one.
fn expression(text: &str) -> Option<&str> {
    let inner = text.trim().strip_prefix("${{")?.strip_suffix("}}")?;
    (!inner.contains("${{")).then(|| inner.trim())
}

/// Returns the matrix path in a label, with the text before and after it.
fn matrix_path(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once("${{")?;
    let (inner, after) = rest.split_once("}}")?;
    let path = inner.trim().strip_prefix("matrix.")?;
    let plain = path.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
    (plain && !after.contains("${{")).then_some((before, path, after))
}

/// Returns the possible labels: one for each value of the matrix.
fn expanded(line: usize, text: &str, job: &Job) -> Vec<Label> {
    let values = matrix_path(text).and_then(|(before, path, after)| {
        let values = job.matrix(path)?.into_iter();
        Some(values.map(|(line, value)| (line, format!("{before}{value}{after}"))).collect())
    });
    let values: Vec<(usize, String)> = values.unwrap_or_else(|| vec![(line, text.to_owned())]);
    values.into_iter().map(|(line, text)| Label { line, system: system(&text), text }).collect()
}

/// Returns the labels of `runs-on`, each with its line.
fn labels(runs_on: &Node) -> Vec<(usize, String)> {
    let one = |node: &Node| node.text().map(|text| (node.line, text.to_owned()));
    match (runs_on.items(), runs_on.get("labels")) {
        (Some(items), _) => items.iter().filter_map(|item| one(item)).collect(),
        (None, Some(labels)) => match labels.items() {
            Some(items) => items.iter().filter_map(|item| one(item)).collect(),
            None => one(labels).into_iter().collect(),
        },
        (None, None) => one(runs_on).into_iter().collect(),
    }
}

/// Decides how to change a job's `runs-on`; `askers` are the jobs of the workflow that request machines.
pub(super) fn answer(job: &Job, class: &Class, askers: &[&str]) -> Answer {
    let answer = |now: String, verdict, write, findings| Answer { now, verdict, write, findings };
    if let Some(called) = job.get("uses").and_then(Node::text) {
        let line = job.line_of("uses");
        let fix = if called.starts_with("./") {
            format!("check that file too: runyard check-workflow {}", called.trim_start_matches("./"))
        } else {
            "check the workflow that it calls, in its own repository".into()
        };
        let what = format!("{called} has the jobs, and their `runs-on`");
        let findings = vec![Finding::new(Level::Note, "reusable-workflow", line, what, fix)];
        return answer(String::new(), Verdict::Calls, None, findings);
    }
    let Some(runs_on) = job.get("runs-on") else {
        return answer(String::new(), Verdict::Unknown, None, Vec::new());
    };
    let labels = labels(runs_on);
    let group = runs_on.get("group");
    let now = labels.iter().map(|(_, text)| text.clone());
    let now = group.and_then(Node::text).map(|group| format!("group {group}")).into_iter().chain(now);
    let now = now.collect::<Vec<_>>().join(", ");
    if askers.contains(&job.name.as_str()) {
        return answer(now, Verdict::Stays, None, Vec::new());
    }
    if labels.iter().any(|(_, text)| is_borrowed(text, askers)) {
        return answer(now, Verdict::Borrows, None, Vec::new());
    }
    let groups: Vec<Vec<Label>> = labels.iter().map(|(line, text)| expanded(*line, text, job)).collect();
    let verdict = verdict(&groups, class);
    let mut findings = foreign(&groups);
    if verdict.reaches_the_class() {
        findings.extend(of_class(&groups, class));
        findings.extend(group.map(|node| of_group(node, class)));
        findings.extend((verdict == Verdict::Unknown).then(|| unknown(job)));
    }
    let whole = words(class).runs_on;
    let write = match verdict {
        Verdict::Moves | Verdict::Unknown => Some(whole),
        Verdict::MovesPartly => Some(partly(&labels, &groups, class).unwrap_or_else(|| {
            findings.push(split(job));
            whole
        })),
        Verdict::Stays | Verdict::Borrows | Verdict::Calls => None,
    };
    answer(now, verdict, write, findings)
}

/// Returns whether a label is one of Runyard's.
fn is_borrowed(text: &str, askers: &[&str]) -> bool {
    let first = text.trim().strip_prefix("${{").and_then(|rest| rest.split_once("}}"));
    let Some((inner, _)) = first else { return false };
    let of_asker = inner.trim().strip_prefix("needs.").and_then(|rest| rest.split_once(".outputs."));
    inner.trim() == "github.run_id" || of_asker.is_some_and(|(job, _)| askers.contains(&job))
}

fn verdict(groups: &[Vec<Label>], class: &Class) -> Verdict {
    if groups.iter().any(|group| group.iter().all(is_foreign)) {
        Verdict::Stays
    } else if groups
        .iter()
        .any(|group| !moving(group, class).is_empty() && moving(group, class).len() < group.len())
    {
        Verdict::MovesPartly
    } else if groups.iter().flatten().any(|label| label.system == System::Unknown) && !says_linux(groups) {
        Verdict::Unknown
    } else {
        Verdict::Moves
    }
}

fn is_foreign(label: &Label) -> bool {
    matches!(label.system, System::Windows | System::MacOs)
}

/// Returns the values of a matrix that move: those of Linux, limited to the class's architecture unless none has it.
fn moving<'a>(group: &'a [Label], class: &Class) -> Vec<&'a Label> {
    let linux = || group.iter().filter(|label| !is_foreign(label));
    let fits = |label: &&Label| arm(&label.text).is_none_or(|wanted| class.arm.is_none_or(|is| is == wanted));
    if linux().any(|label| fits(&label)) { linux().filter(fits).collect() } else { linux().collect() }
}

/// Returns whether a label next to an unknown one selects a Linux machine.
fn says_linux(groups: &[Vec<Label>]) -> bool {
    groups
        .iter()
        .flatten()
        .any(|label| words_of(&label.text).any(|word| word == "linux" || word.starts_with("ubuntu")))
}

/// Returns the findings that keep a job, or a part of its matrix, on its present runner.
fn foreign(groups: &[Vec<Label>]) -> Vec<Finding> {
    let one = |label: &Label| {
        let name = match label.system {
            System::Windows => "Windows",
            System::MacOs => "macOS",
            System::Linux | System::Unknown => return None,
        };
        let what = format!("`{}`: the machines of a class run Linux, not {name}", label.text);
        let fix = "leave it on the runner that it has".to_owned();
        Some(Finding::new(Level::Fails, "operating-system", label.line, what, fix))
    };
    groups.iter().flatten().filter_map(one).collect()
}

/// Returns the properties that labels select and the class does not have.
fn of_class(groups: &[Vec<Label>], class: &Class) -> Vec<Finding> {
    let mut findings = Vec::new();
    for label in groups.iter().flatten().filter(|label| label.system == System::Linux) {
        if let (Some(wanted), Some(is)) = (arm(&label.text), class.arm)
            && wanted != is
        {
            let (wanted, is) = (architecture(wanted), architecture(is));
            let what =
                format!("`{}` is an {wanted} machine, and the class {} is {is}", label.text, class.name);
            let fix = format!("ask for a class with `launch: {{architecture: {wanted}}}`");
            findings.push(Finding::new(Level::Fails, "architecture", label.line, what, fix));
        }
        let known = class.labels.iter().any(|own| own.eq_ignore_ascii_case(&label.text));
        if words_of(&label.text).any(|word| word == "gpu") && !known {
            let what = format!("`{}` asks for a GPU", label.text);
            let fix = "ask for a class whose `allowedInstanceTypes` have one, and whose image has the driver"
                .into();
            findings.push(Finding::new(Level::Image, "gpu", label.line, what, fix));
        }
    }
    findings
}

const fn architecture(arm: bool) -> &'static str {
    if arm { "arm64" } else { "x86_64" }
}

fn of_group(group: &Node, class: &Class) -> Finding {
    let what = "a job on borrowed machines names no runner group".to_owned();
    let fix = format!("write the label alone; a group is `runnerGroup` of the class {}", class.name);
    Finding::new(Level::Note, "runner-group", group.line, what, fix)
}

fn unknown(job: &Job) -> Finding {
    let what = "`runs-on` is known only in a run".to_owned();
    let fix = "move it if it is always a Linux runner; else give the job to machines only where it is".into();
    Finding::new(Level::Note, "expression", job.line_of("runs-on"), what, fix)
}

fn split(job: &Job) -> Finding {
    let what = "only a part of the matrix moves".to_owned();
    let fix = "put the values that stay into a job of their own".to_owned();
    Finding::new(Level::Note, "matrix", job.line_of("runs-on"), what, fix)
}

/// Returns the new `runs-on` if only some values of a matrix move; `None` if one expression cannot distinguish them.
fn partly(labels: &[(usize, String)], groups: &[Vec<Label>], class: &Class) -> Option<String> {
    let ([(_, text)], [group]) = (labels, groups) else { return None };
    let (path, label) = (expression(text)?, words(class).label);
    let mut names: Vec<String> = Vec::new();
    for one in moving(group, class) {
        let quoted = one.text.replace('\'', "''");
        if !names.contains(&quoted) {
            names.push(quoted);
        }
    }
    let condition = match names.as_slice() {
        [only] => format!("{path} == '{only}'"),
        several => format!("contains(fromJSON('{}'), {path})", serde_json::json!(several)),
    };
    Some(format!("${{{{ {condition} && {label} || {path} }}}}"))
}
