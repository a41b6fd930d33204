//! What can be refused without the network is refused without it: exit 2, the field, the value and the fix are named,
//! and nothing is written.

use std::process::Command;

use serde_json::Value;

use crate::cli::yard::{REPOSITORY, Yard, asking, command, ends};

/// Refused as wrong usage although nothing can be reached; the problem as a program reads it.
fn refused(arguments: &[&str]) -> Value {
    let mut arguments = arguments.to_vec();
    arguments.extend(["-o", "json"]);
    let ended = ends(command(&arguments), 2);
    assert_eq!(ended.stdout, "", "{arguments:?}");
    let error = ended.error();
    for name in ["field", "value", "message", "fix"] {
        assert!(error[name].is_string(), "{arguments:?}: {error}");
    }
    assert!(!error["fix"].as_str().expect("text").is_empty(), "{arguments:?}");
    error
}

#[test]
fn every_bad_run_id_and_class_is_refused_by_its_name() {
    let long = "x".repeat(300);
    let bad: &[&str] =
        &["", &long, "é", "\u{202e}42", "4\n2", "../x", "$(id)", "a b", "a#b", "a/b", "'; drop"];
    for value in bad {
        for (option, others) in [
            ("--run-id", ["--repository", REPOSITORY, "--class", "small"]),
            ("--class", ["--repository", REPOSITORY, "--run-id", "42"]),
        ] {
            let mut arguments = vec!["provision", "--count", "1", option, value];
            arguments.extend(others);
            let error = refused(&arguments);
            assert_eq!(error["field"], option, "{value:?}");
            if value.len() < 100 {
                assert_eq!(error["value"], *value);
            }
        }
    }
}

#[test]
fn a_value_that_looks_like_an_option_is_refused_with_how_to_write_it() {
    for arguments in [
        &["provision", "--run-id", "-x", "--class", "a", "--count", "1"][..],
        &["provision", "--class", "-x", "--count", "1"],
        &["provision", "--class", "a", "--count", "1", "--name", "-x"],
    ] {
        let error = refused(arguments);
        assert_eq!(error["value"], "-x");
        assert!(error["fix"].as_str().expect("text").contains("--option=VALUE"), "{error}");
    }
    assert_eq!(refused(&["provision", "--class=-x", "--count", "1"])["field"], "--class");
}

#[test]
fn people_are_told_as_programs_are_which_verb_and_spelling_is_meant() {
    for (arguments, fix) in [
        (&["kill", "i-1"][..], "expire INSTANCE"),
        (&["cancel", "42"], "release"),
        (&["get", "requests", "--limit", "-1"], "--option=VALUE"),
    ] {
        let ended = ends(command(arguments), 2);
        assert!(
            ended.stderr.contains(fix) && ended.stderr.starts_with("error: "),
            "{arguments:?}: {ended:?}"
        );
    }
}

const FORTY_ONE_GLOBS: &str =
    "a b c d e f g h i j k l m n o p q r s t u v w x y z a b c d e f g h i j k l m n o";
const LONG_GLOB: &str = "c6.large-and-thirty-one-letters";

#[test]
fn every_bad_number_and_duration_is_refused_by_its_name() {
    for (option, values) in [
        ("--count", &["0", "-1", "501", "1000000000", "18446744073709551616", "1.5", "one", ""][..]),
        ("--min-count", &["0", "-1", "3", "501"]),
        ("--attempt", &["0", "-1", "x", "4294967296"]),
        ("--timeout", &["0", "0s", "-10m", "100y", "100 years", "25h", "600", "1500ms", ""]),
        ("--max-runtime", &["0m", "-1m", "90s", "36d", "30", "soon"]),
        ("--usage-class", &["Spot", "reserved", ""]),
        ("--allowed-instance-types", &["", " ", "M7i", "c?", "$(id)", FORTY_ONE_GLOBS, LONG_GLOB]),
        ("--name", &["", "Default", "a_b", "../x"]),
        ("--repository", &["acme", "acme/", "a/b/c", "../..", "acme/~", ""]),
    ] {
        for value in values {
            let joined = format!("{option}={value}");
            let mut arguments = vec!["provision", "--run-id", "42", "--class", "small", joined.as_str()];
            if option != "--count" {
                arguments.extend(["--count", "2"]);
            }
            if option != "--repository" {
                arguments.extend(["--repository", REPOSITORY]);
            }
            let error = refused(&arguments);
            assert_eq!(error["field"], option, "{joined}: {error}");
            assert_eq!(error["value"], *value, "{joined}: {error}");
        }
    }
}

#[test]
fn other_verbs_refuse_their_own_wrong_usage() {
    for (arguments, field) in [
        (&["provision"][..], "--class, --count"),
        (&["provision", "--class", "a", "--count", "1"], "--run-id"),
        (&["release"], "--run-id"),
        (&["release", "--run-id", "42"], "--repository"),
        (&["release", "--run-id", "42", "--repository", "acme/web", "--timeout", "5"], "--timeout"),
        (&["scale", "small"], "--desired|--reset"),
        (&["scale", "small", "--desired", "-1"], "--desired"),
        (&["scale", "small", "--desired", "1", "--reset"], "--desired"),
        (&["scale", "small", "--reset", "--for", "2h"], "--reset"),
        (&["scale", "Small", "--reset"], "CLASS"),
        (&["get", "machines"], "KIND"),
        (&["get", "instances", "--state", "asleep"], "--state"),
        (&["get", "instances", "--class", "Small"], "--class"),
        (&["get", "instances", "--phase", "Ready"], "--phase"),
        (&["get", "requests", "--phase", "ready"], "--phase"),
        (&["get", "requests", "--state", "idle"], "--state"),
        (&["get", "pools", "--class", "small"], "--class"),
        (&["get", "instances", "--field-selector", "state"], "--field-selector"),
        (&["get", "instances", "--sort-by", ".a["], "--sort-by"),
        (&["get", "pool/small", "large"], "NAME"),
        (&["get", "pools", "-o", "xml"], "--output"),
        (&["describe", "pool"], "NAME"),
        (&["describe", "all"], "KIND"),
        (&["delete", "instance", "i-1"], "KIND"),
        (&["delete", "pool"], "CLASS"),
        (&["wait", "pool/small", "--for=ready"], "--for"),
        (&["wait", "pool/small"], "--for"),
        (&["drain", "small/"], "INSTANCE"),
        (&["pause", "Small"], "CLASS"),
        (&["--yard", "nowhere", "get", "pools"], "--yard"),
        (&["get", "instances", "i-1", "--state", "idle"], "NAME"),
        (&["events", "--since", "5"], "--since"),
        (&["events", "--since=-5m"], "--since"),
        (&["explain", "request", "42/a/b", "--watch"], "NAME"),
        (&["get", "instances", "i-1/../x"], "NAME"),
        (&["describe", "request", "42/a/b"], "NAME"),
        (&["describe", "request", "42/a/1/2"], "NAME"),
        (&["expire", "Not a class", "--idle"], "INSTANCE|CLASS"),
        (&["extend", "42"], "--for"),
        (&["extend", "42", "--for", "90s"], "--for"),
        (&["fail", "42/"], "RUN_ID[/NAME[/ATTEMPT"),
        (&["apply", "-f", "/nowhere/pools.yaml"], "--file"),
        (&["apply"], "--file"),
        (&["--table", "a/b", "get", "pools"], "--table"),
        (&["no-such-verb"], "verb"),
        (&["get", "pools", "--colour"], "--colour"),
        (&["provision", "--class", "a", "--count", "1", "--keep"], "--wait"),
        (&["set", "pool", "small", "maxx=1"], "FIELD=VALUE"),
        (&["set", "pool", "small"], "FIELD=VALUE"),
        (&["diff"], "--file"),
    ] {
        let error = refused(arguments);
        assert!(error["field"].as_str().expect("text").contains(field), "{arguments:?}: {error}");
    }
}

#[test]
fn all_that_is_missing_is_said_at_once_and_for_people_too() {
    let ended = ends(command(&["provision", "--class", "a", "--count", "1", "--min-count", "2"]), 2);
    for word in ["--run-id", "--repository", "--min-count", "GITHUB_RUN_ID", "fix:"] {
        assert!(ended.stderr.contains(word), "{word}: {}", ended.stderr);
    }
}

#[test]
fn bad_values_in_the_environment_are_refused_by_the_variable() {
    for (variable, value) in [
        ("GITHUB_RUN_ID", "a b"),
        ("GITHUB_RUN_ATTEMPT", "0"),
        ("GITHUB_RUN_ATTEMPT", "first"),
        ("GITHUB_REPOSITORY", "acme"),
        ("RUNYARD_TABLE", "a/b"),
    ] {
        let mut one = command(&["provision", "--class", "a", "--count", "1", "-o", "json"]);
        one.env("GITHUB_RUN_ID", "42").env("GITHUB_REPOSITORY", REPOSITORY).env(variable, value);
        let error = ends(one, 2).error();
        assert_eq!((&error["field"], &error["value"]), (&variable.into(), &value.into()));
    }
}

#[test]
fn what_was_refused_wrote_nothing() {
    let yard = Yard::new();
    yard.runs(&asking(&["--min-count", "3"]), 2);
    yard.runs(
        &["provision", "--run-id", "../x", "--repository", REPOSITORY, "--class", "a", "--count", "1"],
        2,
    );
    let file = yard.file("pools.yaml", "- {resourceClass: a, max: 1}\n- {resourceClass: a, max: 1}\n");
    yard.runs(&["apply", "-f", &file], 2);
    assert_eq!(yard.count(), 0);
}

#[test]
fn a_table_that_is_not_there_and_a_network_that_is_not_are_errors_with_a_way_out() {
    let yard = Yard::bare();
    let error = yard.runs(&["get", "pools", "-o", "json"], 1).error();
    assert_eq!(error["value"], "runyard");
    assert!(error["fix"].as_str().expect("text").contains("init"), "{error}");
    let error = ends(command(&["get", "pools", "-o", "json"]), 1).error();
    assert_eq!(
        (&error["field"], &error["value"]),
        (&"AWS_ENDPOINT_URL".into(), &"http://127.0.0.1:9".into())
    );
    assert!(error["fix"].as_str().expect("text").contains("runyard up"), "{error}");
}

#[test]
fn surroundings_that_lack_something_are_told_in_one_sentence() {
    for (without, field) in [
        (&["AWS_REGION"][..], "AWS_REGION"),
        (&["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"], "AWS credentials"),
    ] {
        // Without an address of our own machine, where it would be told first that nothing listens.
        let mut one = command(&["get", "pools"]);
        one.env_remove("AWS_ENDPOINT_URL_DYNAMODB");
        without.iter().for_each(|name| {
            one.env_remove(name);
        });
        let said = ends(one, 1).stderr;
        assert!(said.starts_with(&format!("error: {field}: ")), "{said}");
        assert!(said.lines().count() == 2 && said.contains(". DIR/env"), "{said}");
    }
}

#[test]
fn a_profile_that_has_no_credentials_here_is_told_with_the_command_that_has() {
    let home = tempfile::tempdir().expect("a place for files");
    std::fs::create_dir(home.path().join(".aws")).expect("a folder");
    let profiles = "[profile sso]\nsso_start_url = https://acme.awsapps.com/start\nsso_region = us-east-1\n\
                    sso_account_id = 123456789012\nsso_role_name = dev\n[profile own]\ncredential_process = /bin/false\n";
    std::fs::write(home.path().join(".aws/config"), profiles).expect("the file is written");
    for (profile, fix) in
        [("sso", "aws sso login --profile sso"), ("own", "export-credentials"), ("nope", "AWS_PROFILE")]
    {
        let mut one = command(&["get", "pools"]);
        one.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
        one.env_remove("AWS_ENDPOINT_URL_DYNAMODB").env("HOME", home.path()).env("AWS_PROFILE", profile);
        let said = ends(one, 1).stderr;
        assert!(said.starts_with("error: AWS credentials: the profile "), "{said}");
        assert!(said.lines().count() == 2 && said.contains(fix), "{said}");
    }
}

#[test]
fn an_endpoint_that_is_no_address_is_refused_by_its_variable() {
    let mut one = command(&["get", "pools", "-o", "json"]);
    one.env("AWS_ENDPOINT_URL_DYNAMODB", "nonsense");
    let error = ends(one, 1).error();
    assert_eq!((&error["field"], &error["value"]), (&"AWS_ENDPOINT_URL".into(), &"nonsense".into()));
}

#[test]
fn a_pipe_gets_no_colours() {
    let mut verbose = command(&["get", "pools", "-vv"]);
    verbose.env("RUNYARD_LOG", "debug");
    let said = ends(verbose, 1).stderr;
    assert!(said.contains("DEBUG") && !said.contains('\u{1b}'), "{said}");
}

#[test]
fn help_has_examples_for_every_verb_and_completions_name_them_all() {
    let verbs = [
        "provision",
        "release",
        "get",
        "describe",
        "events",
        "scale",
        "apply",
        "diff",
        "set",
        "edit",
        "pause",
        "resume",
        "delete",
        "drain",
        "hold",
        "release-hold",
        "logs",
        "expire",
        "extend",
        "fail",
        "wait",
        "top",
        "ssh",
        "check-workflow",
        "config",
        "version",
        "man",
        "refresh",
        "doctor",
        "init",
        "plan",
        "explain",
        "up",
        "demo",
        "operator",
        "completions",
    ];
    for verb in verbs {
        let help = ends(command(&[verb, "--help"]), 0).stdout;
        assert!(help.contains("Example"), "{verb}");
        assert!(help.lines().all(|line| line.chars().count() <= 112), "{verb}: {help}");
    }
    let script = ends(command(&["completions", "bash"]), 0).stdout;
    assert!(script.contains("RUNYARD_COMPLETE=\"bash\"") && script.contains("\"runyard\" --"), "{script}");
    let completed = |line: &[&str]| ends(completing(command(&[]), line), 0).stdout;
    let offered = completed(&["runyard", ""]);
    assert!(verbs.iter().all(|verb| offered.contains(verb)), "{offered}");
    let states = completed(&["runyard", "get", "instances", "--state", ""]);
    assert_eq!(
        states.split('\u{b}').collect::<Vec<_>>(),
        ["created", "claimed", "running", "idle", "terminated"]
    );
    let listed = ends(command(&["-v"]), 2).stderr;
    assert!(!offered.contains("stand-in-runner") && !listed.contains("stand-in-runner"), "{listed}");
}

/// The program as the script of a shell asks it to complete the last word of a line.
fn completing(mut program: Command, line: &[&str]) -> Command {
    program.env("RUNYARD_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", (line.len() - 1).to_string());
    program.env("_CLAP_IFS", "\u{b}").arg("--").args(line);
    program
}

#[test]
fn names_are_completed_from_the_table() {
    let yard = Yard::new();
    let pools = r#"[{"resourceClass":"small","max":1},{"resourceClass":"small-arm","max":1}]"#;
    yard.runs(&["apply", "-f", &yard.file("pools.json", pools)], 0);
    yard.provision(&[], 0);
    let offered = |line: &[&str]| {
        let said = ends(completing(yard.command(&[]), line), 0).stdout;
        said.split('\u{b}').map(str::to_owned).collect::<Vec<_>>()
    };
    for line in [
        &["runyard", "describe", "pool", "sm"][..],
        &["runyard", "scale", "sm"],
        &["runyard", "try", "sm"],
        &["runyard", "doctor", "--preflight", "sm"],
        &["runyard", "provision", "--class", "sm"],
        &["runyard", "get", "requests", "--class", ""],
        &["runyard", "expire", "--idle", "sm"],
    ] {
        assert_eq!(offered(line), ["small", "small-arm"], "{line:?}");
    }
    assert_eq!(offered(&["runyard", "explain", "request", "4"]), ["42"]);
    assert_eq!(offered(&["runyard", "explain", "instance", "4"]), [""]);
    // A table that is not reached offers nothing, and says nothing into the line.
    let nowhere = ends(completing(command(&[]), &["runyard", "describe", "pool", "sm"]), 0);
    assert_eq!((nowhere.stdout.as_str(), nowhere.stderr.as_str()), ("", ""));
}

#[test]
fn a_configuration_key_that_nobody_knows_stops_the_operator_as_wrong_usage() {
    let dir = tempfile::tempdir().expect("a place for files");
    let file = dir.path().join("wrong.toml");
    std::fs::write(&file, "[timing]\nresink = \"1s\"\ngrace = \"5\"\n").expect("the file is written");
    let file = file.to_str().expect("a path in UTF-8");
    let ended = ends(command(&["operator", "--config", file]), 2);
    for word in ["timing.resink", "timing.grace", "fix:"] {
        assert!(ended.stderr.contains(word), "{word}: {}", ended.stderr);
    }
    assert_eq!(ends(command(&["plan", "--config", file, "-o", "json"]), 2).error()["field"], "timing.resink");
}
