//! Writes the outputs and the summary that GitHub Actions reads from the files it names.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::common::duration;
use crate::common::environment::Environment;
use crate::common::failure::{CliFailure, CliResult};
use crate::output::json;
use crate::workflow::cost_of_request::Cost;
use runyard_core::ledger::Money;
use runyard_core::model::{Item, Phase, ReadySource, Request, Status};

/// Appends the outputs and the summary of a request to the files that GitHub Actions names.
///
/// # Errors
/// The outputs cannot be written: the jobs that use them would get an empty label. A summary that cannot be written is
/// logged alone.
pub(crate) fn publish(environment: &Environment, request: &Request) -> CliResult {
    summarize(environment, &summary(request, page(environment)));
    output(environment, &outputs(request))
}

fn summarize(environment: &Environment, text: &str) {
    let Some(path) = environment.file("GITHUB_STEP_SUMMARY") else { return };
    if let Err(error) = append(&path, text) {
        tracing::error!(path = %path.display(), %error, "GITHUB_STEP_SUMMARY cannot be written");
    }
}

fn output(environment: &Environment, text: &str) -> CliResult {
    let Some(path) = environment.file("GITHUB_OUTPUT") else { return Ok(()) };
    append(&path, text).map_err(|error| {
        let fix = "name a file that this step may write to, and run the command again: it finds the same request; \
                   without its outputs the jobs that use them have no label";
        CliFailure::error("GITHUB_OUTPUT", path.display().to_string(), format!("cannot be written: {error}"), fix)
    })
}

/// Appends the outputs and the summary of a request whose jobs run on runners with another label.
///
/// # Errors
/// As of [`publish`].
pub(crate) fn publish_fallback(
    environment: &Environment,
    label: &str,
    request: Option<&Request>,
    why: &str,
) -> CliResult {
    let phase = request.map(|request| request.phase().to_string()).unwrap_or_default();
    let outputs = format!("label={label}\nphase={phase}\ninstances=[]\nready-at=\nfallback=true\n");
    let why = why.replace(['|', '\n', '\r', '`'], " ");
    let summary =
        format!("### ↩️ Runyard: the jobs run on `{label}`\n\nNo machine was ready in time: {why}\n\n");
    summarize(environment, &summary);
    output(environment, &outputs)
}

/// Appends the cost of this run's machines to the summary, if it is known.
pub(crate) fn publish_costs(environment: &Environment, costs: &[Cost]) {
    if costs.is_empty() {
        return;
    }
    let all: Money = costs.iter().map(|cost| cost.money).sum();
    let lines: String = costs.iter().map(|cost| format!("- {cost}\n")).collect();
    summarize(environment, &format!("### Runyard: this run: {all}\n\n{lines}\n"));
}

/// Returns a request's label for people. The log of a workflow in a public repository is public: there the secret part
/// is left out, and the output `label` contains it.
pub(crate) fn shown_label(environment: &Environment, request: &Request) -> String {
    match environment.get("GITHUB_ACTIONS") {
        Some(_) => request.public_label(),
        None => request.label(),
    }
}

/// Returns a request's record for programs, with its label.
pub(crate) fn document(item: &Item, request: &Request) -> Value {
    let mut document = json::record(item);
    document["label"] = request.label().into();
    document
}

/// Appends lines to a file. The last line of what is there may lack its end.
fn append(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
    let mut last = [b'\n'];
    if file.seek(SeekFrom::End(-1)).is_ok() {
        file.read_exact(&mut last)?;
    }
    let end = if last == [b'\n'] { "" } else { "\n" };
    file.write_all(format!("{end}{text}").as_bytes())
}

fn outputs(request: &Request) -> String {
    let instances = serde_json::to_string(&request.status.instances).expect("a list of ids is JSON");
    let ready_at = request.status.ready_at.map(|at| at.to_string()).unwrap_or_default();
    format!(
        "label={}\nphase={}\ninstances={instances}\nready-at={ready_at}\n",
        request.label(),
        request.phase()
    )
}

/// Returns the address of the yard's status page, which only its owner knows: a workflow's role reads its own requests
/// alone.
pub(crate) fn page(environment: &Environment) -> Option<&str> {
    environment.get("RUNYARD_PAGE")
}

/// Formats how long a request waited, and for which machines.
fn waited(status: &Status) -> Option<String> {
    let until = status.ready_at.or(status.ended_at)?;
    let lasted = Duration::try_from(until.duration_since(status.accepted_at?)).unwrap_or_default();
    let lasted = duration::show(Duration::from_secs(lasted.as_secs()));
    Some(match status.ready_source {
        None => lasted,
        Some(ReadySource::Warm) => format!("{lasted} (warm: all machines were in the pool)"),
        Some(ReadySource::Cold) => format!("{lasted} (cold: all machines were launched)"),
        Some(ReadySource::Mixed) => format!("{lasted} (some machines were in the pool, some launched)"),
    })
}

fn summary(request: &Request, page: Option<&str>) -> String {
    let (id, intent, status) = (&request.id, &request.intent, &request.status);
    let mark = match request.phase() {
        Phase::Ready => "✅",
        Phase::Failed => "❌",
        Phase::Pending | Phase::Fulfilling | Phase::Releasing | Phase::Released => "⏳",
    };
    let mut text = format!(
        "### {mark} Runyard: {} of {} `{}`\n\n",
        status.instances.len(),
        intent.count,
        intent.resource_class
    );
    let mut row =
        |name: &str, value: String| writeln!(text, "| {name} | {value} |").expect("a string takes all");
    row("request", format!("`{}/{}` attempt {}", id.run_id, id.name, id.attempt));
    row("---", "---".into());
    row("phase", request.phase().to_string());
    row("runs-on", format!("`{}`", request.public_label()));
    if let Some(at) = status.ready_at {
        row("ready", at.to_string());
    }
    if let Some(waited) = waited(status) {
        row("waited", waited);
    }
    let ids: Vec<String> = status.instances.iter().map(|id| format!("`{id}`")).collect();
    row("instances", ids.join(" "));
    if !status.message.is_empty() {
        row("message", status.message.replace(['|', '\n', '\r'], " "));
    }
    text.push('\n');
    if let Some(page) = page {
        writeln!(text, "[The yard's status page](<{page}>)\n").expect("a string takes all");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::session::context::readable;

    fn request(more: serde_json::Value) -> Request {
        let mut fields = json!({
            "pk": "request#acme/web#42", "sk": "request#default#1", "kind": "request", "version": 3, "runId": "42",
            "attempt": 1, "repository": "acme/web", "name": "default", "resourceClass": "small", "count": 1,
            "desired": "provisioned", "generation": 1, "phase": "Ready", "acceptedAt": "2026-11-20T11:45:00Z",
            "deadline": "2026-11-20T11:55:00Z", "observedGeneration": 1, "instances": ["i-1"],
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            fields[name] = value.clone();
        }
        let item: serde_dynamo::Item = serde_dynamo::to_item(fields).expect("it is an item");
        readable(&item.into_inner().into_iter().collect()).expect("it is a request")
    }

    #[test]
    fn the_summary_tells_the_wait_and_whether_machines_were_warm_or_cold() {
        let told = |source: &str| {
            let more = json!({"readyAt": "2026-11-20T11:46:05.7Z", "readySource": source});
            summary(&request(more), None)
        };
        assert!(
            told("warm").contains("| waited | 1m5s (warm: all machines were in the pool) |\n"),
            "{}",
            told("warm")
        );
        assert!(
            told("cold").contains("| waited | 1m5s (cold: all machines were launched) |\n"),
            "{}",
            told("cold")
        );
        assert!(
            told("mixed").contains("| waited | 1m5s (some machines were in the pool, some launched) |\n")
        );
        let older = summary(&request(json!({"readyAt": "2026-11-20T11:45:02Z"})), None);
        assert!(older.contains("| waited | 2s |\n"), "{older}");
        let failed =
            json!({"phase": "Failed", "endedAt": "2026-11-20T11:55:00Z", "message": "DeadlinePassed"});
        let failed = summary(&request(failed), None);
        assert!(failed.contains("| waited | 10m |\n"), "{failed}");
        let waits = summary(&request(json!({"phase": "Pending"})), None);
        assert!(!waits.contains("waited"), "{waits}");
    }

    #[test]
    fn the_summary_links_the_status_page_where_its_address_is_known() {
        let request = request(json!({}));
        let linked = summary(&request, Some("https://runyard.example.com/"));
        assert!(
            linked.ends_with("\n\n[The yard's status page](<https://runyard.example.com/>)\n\n"),
            "{linked}"
        );
        assert!(!summary(&request, None).contains("status page"));
    }

    #[test]
    fn outputs_that_cannot_be_written_are_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let nowhere = dir.path().join("not/there");
        let nowhere = nowhere.to_str().unwrap();
        let refused =
            publish(&Environment::of(&[("GITHUB_OUTPUT", nowhere)]), &request(json!({}))).unwrap_err();
        let problem = &refused.problems[0];
        assert_eq!((problem.field.as_str(), problem.value.as_str()), ("GITHUB_OUTPUT", nowhere));
        assert!(
            publish_fallback(&Environment::of(&[("GITHUB_OUTPUT", nowhere)]), "x", None, "late").is_err()
        );
        let summary = Environment::of(&[("GITHUB_STEP_SUMMARY", nowhere)]);
        assert!(publish(&summary, &request(json!({}))).is_ok(), "a summary is for people");
    }

    #[test]
    fn outputs_begin_on_a_line_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("output");
        for (before, after) in
            [("", "label=42\n"), ("foo=bar", "foo=bar\nlabel=42\n"), ("a=b\n", "a=b\nlabel=42\n")]
        {
            std::fs::write(&file, before).unwrap();
            let environment = Environment::of(&[("GITHUB_OUTPUT", file.to_str().unwrap())]);
            publish(&environment, &request(json!({}))).unwrap();
            let written = std::fs::read_to_string(&file).unwrap();
            assert!(written.starts_with(after), "{before:?}: {written:?}");
        }
    }
}
