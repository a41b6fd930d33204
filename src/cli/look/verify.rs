//! `runyard verify`: checks signed statements about claims, and tells what they prove and what they do not. It reads only
//! files: no table, no account, no network.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use crate::common::failure::{CliFailure, CliResult, Exit};
use crate::output::screen::Screen;
use runyard_core::model::{FieldError, RecordId};
use runyard_core::statement::{Envelope, Outcome, Predicate, Shown, Statement, digest_of_text};
use runyard_operator::signing::PublicKey;

/// Maximum size of a file of statements or of a key, in bytes.
const LONGEST: u64 = 64 << 20;

/// Verifies statements.
#[derive(Debug, Args)]
#[command(after_help = "\
A statement is proved if the given key signed it, every item of the clean-up passed, and, with --history, the claim's line \
is in that file. The exit code is 0 if all statements are proved, 1 if one is not, and 2 if a file cannot be read.

It proves what the operator saw and signed. It does not prove that the machine was new for the claim, nor anything about \
an operator, an agent or an image that somebody else controls.

With -o json each statement is an item: claim, signed (true, false, or null without --key), records (true, false, or null \
without --history), clean, failed, unknown, proved, problem, and the statement.

Examples:
  runyard verify claims.intoto.jsonl --key statements.pub.pem
  runyard history export --since 2d >history.jsonl
  runyard verify claims.intoto.jsonl --key pub.pem --history history.jsonl")]
pub(crate) struct VerifyArgs {
    /// File of statements, one on each line; - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The operator's public key (PEM) [default: signatures are not checked]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Lines of `runyard history export`, to compare the claims' records with
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
}

/// The result of one statement.
struct Verdict {
    /// Whether the key signed it; `None` without a key.
    signed: Option<bool>,
    /// Whether its records are those in the history; `None` without one.
    records: Option<bool>,
    /// The statement, or why there is none that can be believed.
    statement: Result<Statement, FieldError>,
}

impl Verdict {
    fn proved(&self) -> bool {
        let clean = self.statement.as_ref().is_ok_and(|statement| statement.predicate.clean);
        self.signed == Some(true) && self.records != Some(false) && clean
    }
}

/// Runs `runyard verify`.
pub(crate) fn run(screen: &mut Screen, args: &VerifyArgs) -> CliResult {
    let usage = |problem| CliFailure::usage(problem);
    let text = text(&args.file, "FILE").map_err(usage)?;
    let key = args.key.as_deref().map(key).transpose().map_err(usage)?;
    let lines = args.history.as_deref().map(|file| self::text(file, "--history"));
    let lines = lines.transpose().map_err(usage)?.map(|lines| digests(&lines));
    let verdicts: Vec<Verdict> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| verdict(line, key.as_ref(), lines.as_ref()))
        .collect();
    if verdicts.is_empty() {
        let fix = "give a file that `runyard history statements` wrote";
        return Err(usage(FieldError::new("FILE", args.file.display().to_string(), "has no statement", fix)));
    }
    screen.document(&json!({"items": verdicts.iter().map(document).collect::<Vec<Value>>()}));
    for verdict in &verdicts {
        told(verdict).into_iter().for_each(|line| screen.say(line));
    }
    let open = verdicts.iter().filter(|verdict| !verdict.proved()).count();
    if open == 0 {
        return Ok(());
    }
    let message = format!("{open} of {} statements are not proved", verdicts.len());
    let fix = if key.is_none() {
        "give the operator's public key with --key"
    } else {
        "see above what is missing, failed or changed"
    };
    Err(CliFailure { exit: Exit::Error, ..CliFailure::error("verify", open.to_string(), message, fix) })
}

fn verdict(line: &str, key: Option<&PublicKey>, lines: Option<&BTreeSet<String>>) -> Verdict {
    let check = |keyid: &str, bytes: &[u8], signature: &[u8]| match key {
        Some(key) => key.check(keyid, bytes, signature),
        None => Ok(()),
    };
    let statement = Envelope::parse(line).and_then(|envelope| envelope.open(check));
    let digest = statement.as_ref().ok().and_then(|statement| statement.subject.first());
    Verdict {
        signed: key.map(|_| statement.is_ok()),
        records: lines.map(|lines| digest.is_some_and(|subject| lines.contains(&subject.digest.sha256))),
        statement,
    }
}

/// Returns the digests of the lines of an export.
fn digests(export: &str) -> BTreeSet<String> {
    export.lines().map(|line| digest_of_text(line.as_bytes())).collect()
}

fn key(file: &Path) -> Result<PublicKey, FieldError> {
    let pem = bytes(file, "--key")?;
    PublicKey::of_pem(&pem).map_err(|message| {
        let fix = "give the public key: `openssl pkey -in PRIVATE -pubout` writes it";
        FieldError::new("--key", file.display().to_string(), message, fix)
    })
}

fn document(verdict: &Verdict) -> Value {
    let said = verdict.statement.as_ref();
    let predicate = said.ok().map(|statement| &statement.predicate);
    json!({
        "claim": predicate.map(|said| said.claim.id.as_str()),
        "proved": verdict.proved(),
        "signed": verdict.signed,
        "records": verdict.records,
        "clean": predicate.map(|said| said.clean),
        "failed": predicate.map(|said| &said.failed),
        "unknown": predicate.map(|said| &said.unknown),
        "problem": said.err().map(ToString::to_string),
        "statement": said.ok(),
    })
}

/// Returns the lines about a statement for people.
fn told(verdict: &Verdict) -> Vec<String> {
    let statement = match &verdict.statement {
        Ok(statement) => statement,
        Err(problem) => return vec![format!("not proved: {problem}")],
    };
    let said = &statement.predicate;
    let head = if verdict.proved() { "proved clean" } else { "not proved" };
    let mut lines = vec![format!("{} {}: {head}", said.claim.id, served(said))];
    let mut line = |name: &str, text: String| lines.push(format!("  {name:<14}{text}"));
    line(
        "signature",
        match verdict.signed {
            Some(_) => "of the given key".to_owned(),
            None => "not checked: give the operator's public key with --key".to_owned(),
        },
    );
    line(
        "records",
        match verdict.records {
            Some(true) => "in the given history".to_owned(),
            Some(false) => "not in the given history".to_owned(),
            None => "not compared: give an export with --history".to_owned(),
        },
    );
    for shown in [Shown::Passed, Shown::Nothing, Shown::Failed, Shown::Unknown] {
        let of = said.cleaning.iter().filter(|(_, one)| **one == shown);
        let items: Vec<&str> = of.map(|(item, _)| item.as_str()).collect();
        if !items.is_empty() {
            line(shown.as_str(), items.join(", "));
        }
    }
    let other = |names: &[String]| {
        let names: Vec<&str> =
            names.iter().map(String::as_str).filter(|name| !name.starts_with("cleaning.")).collect();
        names.join(", ")
    };
    for (name, parts) in [("contradicted", other(&said.failed)), ("not known", other(&said.unknown))] {
        if !parts.is_empty() {
            line(name, parts);
        }
    }
    lines.extend(facts(said));
    lines
}

fn served(said: &Predicate) -> String {
    let request = said.claim.request.as_ref().and_then(RecordId::request);
    request.map_or_else(|| "of an unknown request".to_owned(), |request| format!("of {request}"))
}

/// Returns the lines about the machine, its runner and its jobs.
fn facts(said: &Predicate) -> Vec<String> {
    let or_unknown = |text: Option<&String>| text.cloned().unwrap_or_else(|| "unknown".to_owned());
    let after = match said.claim.outcome {
        Outcome::Pooled => "it entered the pool".to_owned(),
        Outcome::Held => "a person held it, and it was lent no more".to_owned(),
        Outcome::Ended => {
            let reason = said.claim.ended.map(|reason| format!(" ({reason})")).unwrap_or_default();
            format!("it ended{reason}, and was lent no more")
        }
    };
    let jobs = match &said.jobs {
        None => "unknown".to_owned(),
        Some(jobs) => {
            let names = jobs.iter().map(|job| format!("{} run {}/{}", job.repository, job.run_id, job.name));
            let more = (said.jobs_left_out > 0).then(|| format!("{} more", said.jobs_left_out));
            names.chain(more).collect::<Vec<_>>().join(", ")
        }
    };
    let domain = |domain: Option<&String>| match domain.map(String::as_str) {
        None => "unknown".to_owned(),
        Some("") => "nobody's".to_owned(),
        Some(domain) => domain.to_owned(),
    };
    let (before, afterwards) = (said.trust_domain.before.as_ref(), Some(&said.trust_domain.after));
    [
        ("machine", format!("{}; at {} {after}", said.machine.instance_id, said.claim.at)),
        ("image", or_unknown(said.machine.image.as_ref())),
        ("runner", or_unknown(said.runner.sha256.as_ref())),
        ("isolation", said.isolation.join(", ")),
        ("jobs", jobs),
        ("trust domain", format!("{} before, {} after", domain(before), domain(afterwards))),
    ]
    .into_iter()
    .filter(|(_, text)| !text.is_empty())
    .map(|(name, text)| format!("  {name:<14}{text}"))
    .collect()
}

fn text(file: &Path, field: &str) -> Result<String, FieldError> {
    String::from_utf8(bytes(file, field)?).map_err(|_| {
        FieldError::new(field, file.display().to_string(), "is not UTF-8 text", "check what is in the file")
    })
}

/// Reads a file; `-` is standard input.
fn bytes(file: &Path, field: &str) -> Result<Vec<u8>, FieldError> {
    let refused = |message: String| {
        FieldError::new(field, file.display().to_string(), message, "check the path and its permissions")
    };
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().take(LONGEST + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes))
    };
    read.map_err(|error| refused(error.to_string()))?;
    if bytes.len() as u64 > LONGEST {
        return Err(refused(format!("is longer than {LONGEST} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
