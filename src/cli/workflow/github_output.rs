//! Writes the outputs and the summary that GitHub Actions reads from the files it names.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::common::environment::Environment;
use crate::output::json;
use crate::workflow::cost_of_request::Cost;
use runyard_core::ledger::Money;
use runyard_core::model::{Item, Phase, Request};

/// Appends the outputs and the summary of a request to the files that GitHub Actions names. Write errors are only
/// logged, because the machines matter more than their summary.
pub(crate) fn publish(environment: &Environment, request: &Request) {
    let files = [("GITHUB_OUTPUT", outputs(request)), ("GITHUB_STEP_SUMMARY", summary(request))];
    for (name, text) in files {
        let Some(path) = environment.file(name) else { continue };
        if let Err(error) = append(&path, &text) {
            tracing::error!(path = %path.display(), %error, "{name} cannot be written");
        }
    }
}

/// Appends the outputs and the summary of a request whose jobs run on runners with another label.
pub(crate) fn publish_fallback(environment: &Environment, label: &str, request: Option<&Request>, why: &str) {
    let phase = request.map(|request| request.phase().to_string()).unwrap_or_default();
    let outputs = format!("label={label}\nphase={phase}\ninstances=[]\nready-at=\nfallback=true\n");
    let why = why.replace(['|', '\n', '\r', '`'], " ");
    let summary =
        format!("### ↩️ Runyard: the jobs run on `{label}`\n\nNo machine was ready in time: {why}\n\n");
    for (name, text) in [("GITHUB_OUTPUT", outputs), ("GITHUB_STEP_SUMMARY", summary)] {
        let Some(path) = environment.file(name) else { continue };
        if let Err(error) = append(&path, &text) {
            tracing::error!(path = %path.display(), %error, "{name} cannot be written");
        }
    }
}

/// Appends the cost of this run's machines to the summary, if it is known.
pub(crate) fn publish_costs(environment: &Environment, costs: &[Cost]) {
    let Some(path) = environment.file("GITHUB_STEP_SUMMARY").filter(|_| !costs.is_empty()) else { return };
    let all: Money = costs.iter().map(|cost| cost.money).sum();
    let lines: String = costs.iter().map(|cost| format!("- {cost}\n")).collect();
    if let Err(error) = append(&path, &format!("### Runyard: this run: {all}\n\n{lines}\n")) {
        tracing::error!(path = %path.display(), %error, "GITHUB_STEP_SUMMARY cannot be written");
    }
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

fn append(path: &Path, text: &str) -> std::io::Result<()> {
    OpenOptions::new().create(true).append(true).open(path)?.write_all(text.as_bytes())
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

fn summary(request: &Request) -> String {
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
    let ids: Vec<String> = status.instances.iter().map(|id| format!("`{id}`")).collect();
    row("instances", ids.join(" "));
    if !status.message.is_empty() {
        row("message", status.message.replace(['|', '\n', '\r'], " "));
    }
    text.push('\n');
    text
}
