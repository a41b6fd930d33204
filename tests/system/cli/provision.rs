//! Asking for machines: what is written, what is the same request, how a wait ends.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use runyard_core::model::{AttributeValue, RecordId};
use serde_json::json;

use crate::cli::yard::{REPOSITORY, Yard, asking, finished, number, request, text, texts};

#[test]
fn an_intent_is_what_was_given_and_nothing_else() {
    let yard = Yard::new();
    let shown = yard.provision(&["-o", "json"], 0).json();
    let record = yard.record(&request("default", 1));
    let names: Vec<&str> = record.keys().map(String::as_str).collect();
    let least = [
        "attempt",
        "count",
        "createdAt",
        "desired",
        "generation",
        "kind",
        "name",
        "pk",
        "repository",
        "resourceClass",
        "runId",
        "sk",
        "uid",
        "updatedAt",
        "version",
    ];
    assert_eq!(names, least);
    let (at, uid) = (shown["createdAt"].clone(), shown["uid"].clone());
    assert_eq!(
        shown,
        json!({
            "attempt": 1, "count": 2, "createdAt": at, "desired": "provisioned", "generation": 1,
            "kind": "request", "name": "default", "repository": REPOSITORY, "resourceClass": "small",
            "runId": "42", "uid": uid, "updatedAt": at, "version": 1, "label": "42",
        })
    );
    yard.provision(&["--name", "other"], 0);
    assert_ne!(yard.record(&request("other", 1))["uid"], record["uid"], "each record has its own");
    assert!(at.as_str().expect("text").ends_with('Z'));
}

#[test]
fn every_option_is_an_attribute_of_the_contract() {
    let yard = Yard::new();
    let options = [
        "--name",
        "gpu",
        "--attempt",
        "3",
        "--min-count",
        "1",
        "--usage-class",
        "spot",
        "--on-demand-fallback",
        "--allowed-instance-types",
        "c* m7i.*",
        "--max-runtime",
        "1h30m",
        "--timeout",
        "20m",
    ];
    yard.provision(&options, 0);
    let record = yard.record(&request("gpu", 3));
    assert_eq!(record["minCount"], number(1));
    assert_eq!(record["usageClass"], text("spot"));
    assert_eq!(record["onDemandFallback"], AttributeValue::Bool(true));
    assert_eq!(record["allowedInstanceTypes"], texts(&["c*", "m7i.*"]));
    assert_eq!(record["maxRuntimeMinutes"], number(90));
    assert_eq!(record["timeoutSeconds"], number(1200));
}

#[test]
fn a_repeated_intent_is_the_same_request_and_a_different_one_is_refused() {
    let yard = Yard::new();
    yard.provision(&["--timeout", "10m"], 0);
    let before = yard.record(&request("default", 1));
    // The default said and left out are the same intent.
    yard.provision(&["--min-count", "2"], 0);
    let other = ["--count", "4", "--usage-class", "spot", "--priority", "high", "-o", "json"];
    let error = yard.provision(&other, 1).error();
    let message = error["message"].as_str().expect("text");
    for part in [
        "count is 2, asked for 4",
        "usageClass is any, asked for spot",
        "priority is the usual one, asked for high",
        "there:",
        "asked:",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(yard.record(&request("default", 1)), before);
}

#[test]
fn a_default_that_a_foreign_workflow_wrote_out_is_the_same_intent_as_one_left_out() {
    let yard = Yard::new();
    let born = |name: &str, more: &[(&str, AttributeValue)]| {
        let mut record = vec![
            ("kind", text("request")),
            ("version", number(1)),
            ("runId", text("42")),
            ("attempt", number(1)),
            ("repository", text(REPOSITORY)),
            ("name", text(name)),
            ("resourceClass", text("small")),
            ("count", number(2)),
            ("desired", text("provisioned")),
            ("generation", number(1)),
        ];
        record.extend(more.iter().cloned());
        yard.put(&request(name, 1), &record);
    };
    let written_out = [
        ("minCount", number(2)),
        ("onDemandFallback", AttributeValue::Bool(false)),
        ("maxRuntimeMinutes", number(30)),
        ("timeoutSeconds", number(600)),
    ];
    born("default", &written_out);
    yard.provision(&[], 0);
    yard.provision(&["--max-runtime", "30m", "--timeout", "10m"], 0);
    assert!(yard.provision(&["--max-runtime", "31m"], 1).stderr.contains("maxRuntimeMinutes is 30"));
    born("bare", &[]);
    yard.provision(&["--name", "bare", "--max-runtime", "30m", "--min-count", "2"], 0);
    let refused = yard.provision(&["--name", "bare", "--usage-class", "on-demand"], 1).stderr;
    assert!(refused.contains("usageClass is any, asked for on-demand"), "{refused}");
}

/// A request of run 42 as an earlier version wrote it, under the repository as it is spelt.
fn former(yard: &Yard) -> RecordId {
    let key = RecordId::new("request#Acme/Web#42", "request#default#1");
    let record = [
        ("kind", text("request")),
        ("version", number(1)),
        ("runId", text("42")),
        ("attempt", number(1)),
        ("repository", text("Acme/Web")),
        ("name", text("default")),
        ("resourceClass", text("small")),
        ("count", number(2)),
        ("desired", text("provisioned")),
        ("generation", number(1)),
    ];
    yard.put(&key, &record);
    key
}

#[test]
fn a_repository_is_in_lower_case_in_the_key_and_as_written_in_the_intent() {
    let yard = Yard::new();
    let spelt =
        ["provision", "--run-id", "42", "--repository", "Acme/WEB", "--class", "small", "--count", "2"];
    yard.runs(&spelt, 0);
    let key = RecordId::new("request#acme/web#42", "request#default#1");
    assert_eq!(yard.record(&key)["repository"], text("Acme/WEB"));
    let other =
        ["provision", "--run-id", "42", "--repository", "acme/web", "--class", "small", "--count", "2"];
    yard.runs(&other, 0);
    assert_eq!(yard.count(), 1, "it is the same request");
    yard.runs(&["describe", "request", "42", "--repository", "ACME/web"], 0);
    yard.runs(&["release", "--run-id", "42", "--repository", "aCme/web"], 0);
    assert_eq!(yard.record(&key)["desired"], text("released"));
}

#[test]
fn a_live_request_under_a_key_of_before_is_the_same_request() {
    let yard = Yard::new();
    let key = former(&yard);
    let spelt =
        ["provision", "--run-id", "42", "--repository", "Acme/Web", "--class", "small", "--count", "2"];
    yard.runs(&spelt, 0);
    assert_eq!(yard.count(), 1);
    yard.runs(&["describe", "request", "42", "--repository", "Acme/Web"], 0);
    yard.runs(&["release", "--run-id", "42", "--repository", "Acme/Web"], 0);
    assert_eq!(yard.record(&key)["desired"], text("released"));
    assert!(yard.runs(&spelt, 1).stderr.contains("being released"));
}

#[test]
fn a_request_under_a_key_with_other_capitals_is_released() {
    let yard = Yard::new();
    let key = former(&yard);
    yard.runs(&["release", "--run-id", "43", "--repository", "acme/web"], 0);
    yard.runs(&["release", "--run-id", "42", "--repository", "acme/other"], 0);
    assert_eq!(yard.record(&key)["desired"], text("provisioned"));
    yard.runs(&["release", "--run-id", "42", "--repository", "acme/web"], 0);
    assert_eq!(yard.record(&key)["desired"], text("released"));
}

#[test]
fn a_new_run_id_with_a_dot_is_refused_and_one_of_before_can_be_released() {
    let yard = Yard::new();
    let asked =
        ["provision", "--run-id", "4.2", "--repository", "acme/web", "--class", "small", "--count", "1"];
    let refused = yard.runs(&asked, 2).stderr;
    for part in ["--run-id", "4.2", "must not contain a dot", "fix:"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    let slot = asked.map(|word| if word == "4.2" { "set-5" } else { word });
    assert!(yard.runs(&slot, 2).stderr.contains("is kept for slots of runner scale sets"));
    let mut command = yard.command(&["provision", "--class", "small", "--count", "1"]);
    command.envs([("GITHUB_RUN_ID", "4.2"), ("GITHUB_REPOSITORY", "acme/web")]);
    assert!(crate::cli::yard::ends(command, 2).stderr.contains("GITHUB_RUN_ID"));
    assert!(
        yard.runs(&["release", "--run-id", "4.2", "--repository", "acme/web"], 0).stdout.contains("nothing")
    );
}

#[test]
fn what_is_released_or_over_cannot_be_asked_for_again() {
    let yard = Yard::new();
    yard.provision(&[], 0);
    yard.runs(&["release", "--run-id", "42", "--repository", REPOSITORY], 0);
    let refused = yard.provision(&[], 1);
    assert!(refused.stderr.contains("use another name or a new attempt"), "{}", refused.stderr);
    yard.provision(&["--attempt", "2"], 0);
    yard.change(&request("default", 2), &[("phase", text("Failed"))]);
    assert!(yard.provision(&["--attempt", "2"], 1).stderr.contains("already failed"));
    yard.provision(&["--name", "other"], 0);
}

#[test]
fn five_hundred_at_once_with_one_key_make_one_record() {
    let yard = Yard::new();
    let start = || {
        let mut command = yard.command(&asking(&[]));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
    };
    // In waves, so that the test needs no more processes than a machine has: each wave races within itself, and
    // with what the ones before it made.
    for _ in 0..10 {
        let wave: Vec<_> = (0..50).map(|_| start()).collect();
        for child in wave {
            finished(child, 0);
        }
    }
    assert_eq!(yard.count(), 1);
    let record = yard.record(&request("default", 1));
    assert_eq!((&record["version"], &record["generation"]), (&number(1), &number(1)));
}

#[test]
fn a_wait_follows_the_request_until_it_is_ready_and_tells_the_workflow() {
    let yard = Yard::new();
    let (output, summary) = (yard.file("output", "before=1\n"), yard.file("summary", ""));
    let mut command = yard.command(&["provision", "--class", "small", "--count", "2", "--wait"]);
    command.envs([
        ("GITHUB_RUN_ID", "42"),
        ("GITHUB_RUN_ATTEMPT", "3"),
        ("GITHUB_REPOSITORY", REPOSITORY),
        ("GITHUB_OUTPUT", &output),
        ("GITHUB_STEP_SUMMARY", &summary),
    ]);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut told =
        BufReader::new(child.stdout.take().expect("a pipe")).lines().map(|line| line.expect("UTF-8"));
    let key = request("default", 3);
    yard.until(&key, |_| true);
    let one = texts(&["i-1"]);
    yard.change(
        &key,
        &[("phase", text("Fulfilling")), ("instances", one), ("message", text("1 more booting"))],
    );
    assert!(told.any(|line| line == "Fulfilling 1/2  1 more booting"));
    let both = texts(&["i-1", "i-2"]);
    let at = text("2026-01-01T00:00:00Z");
    yard.change(
        &key,
        &[("phase", text("Ready")), ("instances", both), ("readyAt", at), ("message", text(""))],
    );
    assert!(told.any(|line| line == "ready: runs-on 42 (i-1 i-2)"));
    finished(child, 0);
    let said = std::fs::read_to_string(output).expect("the outputs");
    assert_eq!(
        said,
        "before=1\nlabel=42\nphase=Ready\ninstances=[\"i-1\",\"i-2\"]\nready-at=2026-01-01T00:00:00Z\n"
    );
    let summary = std::fs::read_to_string(summary).expect("the summary");
    assert!(summary.contains("| phase | Ready |"), "{summary}");
}

#[test]
fn a_secret_label_is_drawn_once_and_every_output_has_it() {
    let yard = Yard::new();
    let output = yard.file("output", "");
    let mut command = yard.command(&asking(&["--secret-label"]));
    command.env("GITHUB_OUTPUT", &output);
    let said = crate::cli::yard::ends(command, 0).stdout;
    let record = yard.record(&request("default", 1));
    let AttributeValue::S(suffix) = &record["labelSuffix"] else { panic!("{record:?}") };
    assert!(suffix.len() == 8 && suffix.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()));
    let label = format!("42-{suffix}");
    assert!(said.contains(&format!("have the label {label}\n")), "{said}");
    let outputs = std::fs::read_to_string(output).expect("the outputs");
    assert!(outputs.starts_with(&format!("label={label}\n")), "{outputs}");
    for again in [&["--secret-label", "-o", "json"][..], &["-o", "json"]] {
        let shown = yard.provision(again, 0).json();
        assert_eq!(
            (&shown["label"], &shown["labelSuffix"]),
            (&json!(label), &json!("********")),
            "{again:?}"
        );
    }
    assert_eq!(yard.record(&request("default", 1)), record, "it is the same request");
    yard.provision(&["--name", "gpu", "--secret-label"], 0);
    assert_ne!(yard.record(&request("gpu", 1))["labelSuffix"], record["labelSuffix"]);
}

#[test]
fn a_workflows_log_and_summary_have_no_secret_label() {
    let yard = Yard::new();
    let summary = yard.file("summary", "");
    let mut command = yard.command(&asking(&["--secret-label"]));
    command.envs([("GITHUB_ACTIONS", "true"), ("GITHUB_STEP_SUMMARY", &summary)]);
    let ended = crate::cli::yard::ends(command, 0);
    let AttributeValue::S(suffix) = yard.record(&request("default", 1))["labelSuffix"].clone() else {
        panic!("it has one")
    };
    let summary = std::fs::read_to_string(summary).expect("the summary");
    assert!(summary.contains("| runs-on | `42-********` |"), "{summary}");
    for told in [&ended.stdout, &ended.stderr, &summary] {
        assert!(!told.contains(&suffix), "{told}");
    }
}

#[test]
fn a_failed_request_is_exit_code_three_with_its_reason() {
    let yard = Yard::new();
    yard.provision(&[], 0);
    let child = yard.command(&asking(&["--wait", "-o", "json"]));
    let condition = AttributeValue::M(
        [
            ("type", text("Accepted")),
            ("status", AttributeValue::Bool(false)),
            ("reason", text("UnknownClass")),
            ("message", text("there is no class small")),
            ("at", text("2026-01-01T00:00:00Z")),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into(),
    );
    let child = { child }.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let failed = [("phase", text("Failed")), ("conditions", AttributeValue::L(vec![condition]))];
    yard.change(&request("default", 1), &failed);
    let ended = match child.wait_with_output().expect("the program ends") {
        // It may have looked before the change and been told, or after it and been refused.
        output if output.status.code() == Some(1) => return,
        output => output,
    };
    assert_eq!(ended.status.code(), Some(3));
    let stderr = String::from_utf8(ended.stderr).expect("UTF-8");
    assert!(stderr.contains("UnknownClass") && stderr.contains("there is no class small"), "{stderr}");
}

fn interrupted(signal: Signal, options: &[&str]) -> (Yard, crate::cli::yard::Ended) {
    let code = 128 + signal as i32;
    let yard = Yard::new();
    let mut command = yard.command(&asking(options));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    yard.until(&request("default", 1), |_| true);
    kill(Pid::from_raw(child.id().try_into().expect("a pid")), signal).expect("it runs");
    let ended = finished(child, code);
    (yard, ended)
}

#[test]
fn a_wait_that_is_interrupted_takes_the_request_back() {
    // Under `nohup` nobody hears a terminal close, the program neither.
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let ignored = status
        .lines()
        .any(|line| line.starts_with("SigIgn:") && line.ends_with(['1', '3', '5', '7', '9', 'b', 'd', 'f']));
    let hangup = (!ignored).then_some(Signal::SIGHUP);
    for signal in [Signal::SIGINT, Signal::SIGTERM].into_iter().chain(hangup) {
        let (yard, ended) = interrupted(signal, &["--wait"]);
        assert!(
            !ended.stderr.contains("--timeout") && ended.stderr.contains(signal.as_str()),
            "{}",
            ended.stderr
        );
        let record = yard.record(&request("default", 1));
        assert_eq!((&record["desired"], &record["generation"]), (&text("released"), &number(2)));
        assert_eq!(record["version"], number(2));
        assert!(ended.stderr.contains("it is released"), "{}", ended.stderr);
    }
}

#[test]
fn a_request_that_is_kept_outlives_its_wait() {
    let (yard, ended) = interrupted(Signal::SIGTERM, &["--wait", "--keep"]);
    assert_eq!(yard.record(&request("default", 1))["desired"], text("provisioned"));
    assert!(ended.stderr.contains("kept"), "{}", ended.stderr);
}

#[test]
fn a_reader_that_leaves_ends_the_output_and_not_the_work() {
    let yard = Yard::new();
    let mut command = yard.command(&asking(&[]));
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    drop(child.stdout.take());
    let ended = finished(child, 0);
    assert!(ended.stderr.starts_with("warning: class small: there is no such pool"), "{}", ended.stderr);
    assert_eq!(yard.count(), 1);
    for arguments in
        [&["get", "requests", "-o", "json"][..], &["--help"], &["completions", "bash"], &["doctor"]]
    {
        let mut command = yard.command(arguments);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("the program ends");
        assert!(matches!(output.status.code(), Some(0 | 1)), "{arguments:?}: {output:?}");
        assert!(!String::from_utf8_lossy(&output.stderr).contains("panic"), "{output:?}");
    }
}

#[test]
fn in_a_workflow_a_failure_stands_on_the_runs_page_with_what_was_waited_for() {
    let yard = Yard::new();
    let mut command = yard.command(&asking(&["--wait"]));
    command.env("GITHUB_ACTIONS", "true");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let key = request("default", 1);
    yard.until(&key, |_| true);
    let why = "DeadlinePassed: 0 of 2 machines were running, because class small is at its max of 8";
    yard.change(&key, &[("phase", text("Failed")), ("message", text(why))]);
    let ended = finished(child, 3);
    let annotation = ended.stderr.lines().find(|line| line.starts_with("::error title=Runyard::"));
    assert!(annotation.is_some_and(|line| line.contains("at its max of 8")), "{}", ended.stderr);
    assert!(ended.stdout.contains("Failed"), "{}", ended.stdout);
    let plain = yard.runs(&["provision", "--class", "small"], 2).stderr;
    assert!(!plain.contains("::error"), "{plain}");
}

#[test]
fn a_class_that_is_not_there_spends_no_name_where_the_yard_has_others() {
    let yard = Yard::new();
    let file = yard.file("pools.json", r#"[{"resourceClass":"small","max":1}]"#);
    yard.runs(&["apply", "-f", &file], 0);
    assert_eq!(yard.provision(&[], 0).stderr, "");
    let odd = ["provision", "--run-id", "abc", "--repository", REPOSITORY, "--class", "smal", "--count", "1"];
    let before = yard.count();
    let ended = yard.runs(&odd, 1);
    for said in ["run id abc is not numeric", "there is no such pool", "did you mean small?"] {
        assert!(ended.stderr.contains(said), "{said}: {}", ended.stderr);
    }
    assert_eq!(yard.count(), before, "nothing was asked for");
    let right: Vec<&str> = odd.iter().map(|word| if *word == "smal" { "small" } else { word }).collect();
    yard.runs(&right, 0);
}

#[test]
fn a_wish_for_a_secret_label_is_never_answered_with_one_that_anybody_can_guess() {
    let yard = Yard::new();
    yard.provision(&[], 0);
    let refused = yard.provision(&["--secret-label", "-o", "json"], 1);
    assert!(refused.error()["message"].as_str().is_some_and(|why| why.contains("without a secret label")));
    assert_eq!(refused.stdout, "");
    // The other way round it is the same request, and its label stays secret.
    let secret = yard.provision(&["--name", "s", "--secret-label", "-o", "json"], 0).json();
    let again = yard.provision(&["--name", "s", "--secret-label", "-o", "json"], 0).json();
    assert_eq!(secret["label"], again["label"]);
    assert_ne!(secret["label"], json!("42"));
}

#[test]
fn a_wait_for_a_program_tells_its_progress_on_stderr_unless_it_is_to_be_quiet() {
    let yard = Yard::new();
    let goes = |more: &[&str], name: &str| {
        let mut command = yard.command(&asking(&[&["--name", name, "--wait", "-o", "json"], more].concat()));
        let child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let key = request(name, 1);
        yard.until(&key, |_| true);
        yard.change(&key, &[("phase", text("Failed")), ("message", text("DeadlinePassed: no"))]);
        finished(child, 3)
    };
    let told = goes(&[], "loud");
    let first = told.stderr.lines().next().expect("a line");
    let first: serde_json::Value = serde_json::from_str(first).expect("a document a line");
    assert!(first["progress"].is_string(), "{}", told.stderr);
    assert!(told.error()["message"].is_string(), "the failure is the last line");
    assert!(!goes(&["-q"], "quiet").stderr.contains("progress"));
}
