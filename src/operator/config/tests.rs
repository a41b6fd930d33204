//! Refused configurations, their messages, and that the reference agrees with the contract.

use std::io::Write;

use super::*;

/// The minimal environment with which the defaults are valid.
const MINIMAL: &[(&str, &str)] = &[("RUNYARD_GITHUB__TOKEN_FILE", "/run/secrets/github")];

fn load(file: Option<&[u8]>, environment: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
    let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    match file {
        None => Config::load(None, environment),
        Some(bytes) => {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(bytes).unwrap();
            Config::load(Some(file.path()), environment)
        }
    }
}

fn good(file: &str, environment: &[(&str, &str)]) -> Config {
    load(Some(file.as_bytes()), &[MINIMAL, environment].concat())
        .unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn bad(file: &[u8], environment: &[(&str, &str)]) -> ConfigErrors {
    match load(Some(file), &[MINIMAL, environment].concat()) {
        Ok(_) => panic!("taken: {} {environment:?}", String::from_utf8_lossy(file)),
        Err(errors) => errors,
    }
}

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn the_defaults_are_the_contracts() {
    let config = load(None, MINIMAL).unwrap();
    assert_eq!(config.timing, runyard_fakes::as_shipped(), "what tests take for the shipped timing");
    assert_eq!(
        config,
        Config {
            table: TableName::parse("runyard").unwrap(),
            timing: Timing {
                created: secs(900),
                claimed: secs(300),
                cleanup: secs(300),
                end: secs(180),
                grace: secs(300),
                heartbeat: secs(10),
                stale: secs(60),
                agent_poll: secs(1),
                resync: secs(300),
                reannounce: secs(300),
                lease: secs(15),
                orphan: secs(600),
                image: Duration::from_secs(3600),
            },
            compute: ComputeKind::Ec2,
            limits: Limits::default(),
            requests_per_repository: 2000,
            sharing: crate::model::YardSharing::default(),
            queue: QueueKind::Sqs,
            interruptions: None,
            rebalance: Rebalance::Last,
            history_keep: Duration::from_secs(90 * 24 * 3600),
            signing_key_file: None,
            github: Some(GitHub {
                api_url: "https://api.github.com".into(),
                credential: Credential::TokenFile("/run/secrets/github".into()),
                scope: ScopeKind::Repository,
                watch: GitHubWatch::default(),
            }),
            listen: "0.0.0.0:8080".parse().unwrap(),
            log: Log { format: LogFormat::Human, filter: "info".into() },
            agent: Agent {
                runner: Architectures::default(),
                runner_follow: Follow::Pin,
                runner_follow_arm64: Follow::Pin,
                runner_hosts: vec![],
                pre_runner_script: None,
                pre_runner_timeout: secs(600),
                stop: secs(60),
                spare: vec![],
                environment: BTreeMap::new(),
                program: Architectures::default(),
            },
            prices: crate::prices::shipped(),
        }
    );
}

#[test]
fn the_reference_is_itself_a_configuration_and_says_the_defaults() {
    assert_eq!(good(layers::DEFAULTS, &[]), load(None, MINIMAL).unwrap());
}

#[test]
fn the_reference_explains_every_key() {
    let mut explained = false;
    for line in layers::DEFAULTS.lines() {
        if line.contains(" = ") && !line.starts_with('#') {
            assert!(explained, "no comment above {line}");
        }
        // Consecutive keys may share one comment; an empty line or a section ends it.
        explained = !line.is_empty() && !line.starts_with('[') && (explained || line.starts_with('#'));
    }
}

#[test]
fn an_empty_file_changes_nothing() {
    for file in ["", "\n", "# nothing\n", "\u{feff}", "[timing]\n"] {
        assert_eq!(good(file, &[]), load(None, MINIMAL).unwrap(), "{file:?}");
    }
}

#[test]
fn every_key_can_be_set_by_the_environment_and_wins_over_the_file() {
    let file = "table = \"from-file\"\n[timing]\ncreated = \"1m\"\nclaimed = \"2m\"\n";
    let config = good(
        file,
        &[
            ("RUNYARD_TIMING__CREATED", "3m"),
            ("RUNYARD_TABLE", "from-env"),
            ("RUNYARD_COMPUTE__KIND", "none"),
            ("RUNYARD_ADMIN__LISTEN", "127.0.0.1:0"),
            ("RUNYARD_LOG__FORMAT", "json"),
            ("RUNYARD_LOG", "warn"),
        ],
    );
    assert_eq!(config.table.as_str(), "from-env");
    assert_eq!((config.timing.created, config.timing.claimed), (secs(180), secs(120)));
    assert_eq!(config.compute, ComputeKind::None);
    assert_eq!(config.listen.port(), 0);
    assert_eq!(config.log, Log { format: LogFormat::Json, filter: "warn".into() });
}

#[test]
fn the_environment_alone_is_enough_for_every_key_of_the_reference() {
    let known: figment::value::Dict = {
        use figment::providers::{Format, Toml};
        Toml::from_str(layers::DEFAULTS).unwrap()
    };
    for (section, value) in &known {
        let Some(keys) = value.as_dict() else { continue };
        for key in keys.keys() {
            let name = format!("RUNYARD_{}__{}", section.to_uppercase(), key.to_uppercase());
            let error = bad(b"", &[(&name, "a\u{1}b ?")]);
            assert_eq!(error.problems()[0].field, format!("{section}.{key}"));
            assert!(error.problems()[0].message.contains(&name), "{error}");
        }
    }
}

#[test]
fn variables_that_are_not_settings_are_left_alone() {
    let others = [("RUNYARD_MACHINE", "i-1"), ("RUNYARD_SERVICE_HOST", "10.0.0.1"), ("PATH", "/bin")];
    assert_eq!(good("", &others), load(None, MINIMAL).unwrap());
}

#[test]
fn the_full_name_of_a_variable_wins_over_the_short_one() {
    for order in [["RUNYARD_LOG", "RUNYARD_LOG__FILTER"], ["RUNYARD_LOG__FILTER", "RUNYARD_LOG"]] {
        let value = |name: &str| if name == "RUNYARD_LOG" { "warn" } else { "debug" };
        let config = good("", &order.map(|name| (name, value(name))));
        assert_eq!(config.log.filter, "debug");
    }
}

/// A file, the refused key, a word of the reason, a word of the fix.
const REFUSED: &[(&str, &str, &str, &str)] = &[
    ("tabel = \"x\"", "tabel", "not a key", "table"),
    ("table = \"a b\"", "table", "not a valid table", "255"),
    ("table = \"\"", "table", "not a valid table", "255"),
    ("[table]\nname = \"x\"", "table", "not a section", "table ="),
    ("table = [\"x\"]", "table", "not a single value", "one value"),
    ("timing = \"5m\"", "timing", "is a section", "[timing]"),
    ("[[timing]]\ncreated = \"5m\"", "timing", "is a section", "[timing]"),
    ("[timings]\ncreated = \"5m\"", "timings", "not a key", "timing"),
    ("[timing]\ncreate = \"5m\"", "timing.create", "not a key", "created"),
    ("[timing]\ncreated = 900", "timing.created", "without a unit", "90s"),
    ("[timing]\ncreated = \"900\"", "timing.created", "without a unit", "90s"),
    ("[timing]\ncreated = \"\"", "timing.created", "not a duration", "90s"),
    ("[timing]\ncreated = \"soon\"", "timing.created", "not a duration", "90s"),
    ("[timing]\ncreated = \"-5m\"", "timing.created", "negative", "90s"),
    ("[timing]\ncreated = { secs = 5 }", "timing.created", "not a single value", "one value"),
    ("[timing]\ncreated = true", "timing.created", "not a duration", "90s"),
    ("[timing]\ncreated = \"876000h\"", "timing.created", "longer than a year", "90s"),
    ("[timing]\ncreated = \"99999999999999999999h\"", "timing.created", "not a duration", "90s"),
    ("[timing]\ncreated = \"1s\"", "timing.created", "timing.agent_poll", "raise"),
    ("[timing]\nclaimed = \"500ms\"", "timing.claimed", "timing.agent_poll", "raise"),
    ("[timing]\nend = \"1s\"", "timing.end", "timing.agent_poll", "raise"),
    ("[timing]\ncleanup = \"0s\"", "timing.cleanup", "shorter than 100 ms", "100ms"),
    ("[timing]\ngrace = \"0s\"", "timing.grace", "shorter than 100 ms", "100ms"),
    ("[timing]\nlease = \"99ms\"", "timing.lease", "shorter than 100 ms", "100ms"),
    ("[timing]\nstale = \"19s\"", "timing.stale", "twice timing.heartbeat", "lower"),
    ("[compute]\nkind = \"EC2\"", "compute.kind", "not a known value", "ec2, local, none"),
    ("[compute]\nkind = \"\"", "compute.kind", "not a known value", "ec2, local, none"),
    ("[queue]\nkind = \"kafka\"", "queue.kind", "not a known value", "sqs, memory"),
    ("[queue]\nkind = \"memory\"", "queue.kind", "does not go with", "local"),
    ("[github]\nkind = \"ghes\"", "github.kind", "not a known value", "real, none"),
    ("[github]\ntoken = \"hunter2\"", "github.token", "not a key", "token_file"),
    ("[github]\ntoken_file = \"ghp_hunter2\"", "github.token_file", "looks like a secret", "file"),
    ("[github]\napp_key_file = \"-----BEGIN hunter2\"", "github.app_key_file", "secret", "file"),
    ("[github]\napi_url = \"github_pat_hunter2\"", "github.api_url", "looks like a secret", "file"),
    ("[github]\napi_url = \"api.github.com\"", "github.api_url", "not a URL", "https://"),
    ("[github]\napi_url = \"\"", "github.api_url", "not a URL", "https://"),
    ("[github]\napi_url = \"http://ghes.example\"", "github.api_url", "not https", "loopback"),
    ("[github]\napi_url = \"file:///etc/passwd\"", "github.api_url", "not https", "https"),
    ("[github]\napi_url = \"https://me:hunter2@ghes.example\"", "github.api_url", "password", "without"),
    ("[github]\napi_url = \"https://ghes.example/?a=b\"", "github.api_url", "query", "without"),
    ("[github]\nscope = \"enterprise\"", "github.scope", "not a known value", "organization"),
    ("[interruptions]\nrebalance = \"first\"", "interruptions.rebalance", "not a known value", "last"),
    ("[github]\napp_id = \"12 34\"", "github.app_id", "not the id", "App"),
    ("[github]\napp_id = 1234", "github.app_id", "two credentials", "clear"),
    ("[github]\napp_key_file = \"/key.pem\"", "github.app_id", "missing", "both"),
    ("[admin]\nlisten = \":8080\"", "admin.listen", "not an address", "0.0.0.0:8080"),
    ("[admin]\nlisten = \"localhost:8080\"", "admin.listen", "not an address", "127.0.0.1:0"),
    ("[admin]\nlisten = \"127.0.0.1:70000\"", "admin.listen", "not an address", "IP:PORT"),
    ("[admin]\nlisten = 8080", "admin.listen", "not an address", "IP:PORT"),
    ("[admin]\nport = 8080", "admin.port", "not a key", "listen"),
    ("[log]\nformat = \"text\"", "log.format", "not a known value", "human, json"),
    ("[log]\nfilter = \"loud\"", "log.filter", "not a level", "debug"),
    ("[agent]\nrunner_url = \"https://a.example/r.tgz\"", "agent.runner_sha256", "missing", "all three"),
    ("[agent]\nrunner_sha256 = \"abc\"", "agent.runner_sha256", "not a SHA-256", "64"),
    ("[agent]\nrunner_version = \"a b\"", "agent.runner_version", "not a version", "2.330.0"),
    ("[agent]\nspare = \"/mnt/efs,tools\"", "agent.spare", "not an absolute path", "/mnt/efs,/mnt/tools"),
    ("[agent]\nspare = \"/\"", "agent.spare", "not an absolute path", "/mnt/efs,/mnt/tools"),
    ("[timing]\nimage = \"30s\"", "timing.image", "a minute to a day", "24h"),
    ("[timing]\nimage = \"25h\"", "timing.image", "a minute to a day", "24h"),
    ("[agent]\nstop = \"60\"", "agent.stop", "without a unit", "90s"),
    ("[agent]\npre_runner_script = \"a\\nb\"", "agent.pre_runner_script", "not the name", "path"),
    ("table = \"a\"\ntable = \"b\"", "--config", "line 2: duplicate key", "default.toml"),
    ("table = ", "--config", "line 1", "default.toml"),
    ("{\"table\": \"x\"}", "--config", "not TOML", "default.toml"),
    ("table = \"hunter2", "--config", "not TOML, line 1", "default.toml"),
];

#[test]
fn bad_values_are_refused_with_the_key_the_value_and_the_fix() {
    for (file, field, message, fix) in REFUSED {
        let errors = bad(file.as_bytes(), &[]);
        let problem = errors
            .problems()
            .iter()
            .find(|problem| problem.field == *field)
            .unwrap_or_else(|| panic!("{file}: no word of {field} in {errors}"));
        assert!(problem.message.contains(message), "{file}: {problem}");
        assert!(problem.fix.contains(fix), "{file}: {problem}");
        assert!(!errors.to_string().contains("hunter2"), "{file}: {errors}");
    }
}

#[test]
fn the_same_is_refused_from_the_environment_which_is_named() {
    let rows = [
        ("RUNYARD_TIMING__CREATED", "900", "timing.created"),
        ("RUNYARD_TIMING__CREATED", "", "timing.created"),
        ("RUNYARD_TIMING__CREATE", "9s", "timing.create"),
        ("RUNYARD_TIMINGS__CREATED", "9s", "timings"),
        ("RUNYARD_TABLE", "x", "table"),
        ("RUNYARD_LOG", "inof", "log.filter"),
        ("RUNYARD_GITHUB__TOKEN", "hunter2", "github.token"),
        ("RUNYARD_GITHUB__TOKEN_FILE", "ghs_hunter2", "github.token_file"),
        ("RUNYARD_GITHUB__APP__KEY", "hunter2", "github.app__key"),
        ("RUNYARD_ADMIN__LISTEN", "8080", "admin.listen"),
    ];
    for (name, value, field) in rows {
        let errors = bad(b"", &[(name, value)]);
        let problem = &errors.problems()[0];
        assert_eq!(problem.field, field, "{name}");
        assert!(problem.message.contains(&format!("(from {name})")), "{problem}");
        assert!(!errors.to_string().contains("hunter2"), "{errors}");
    }
}

#[test]
fn all_problems_are_told_at_once() {
    let file = "tabel = \"x\"\n[timing]\ncreated = 1\nlease = \"0s\"\n[github]\nkind = \"x\"\n[admin]\nlisten = \"\"\n";
    let errors = bad(file.as_bytes(), &[("RUNYARD_LOG__FORMAT", "xml")]);
    let fields: Vec<_> = errors.problems().iter().map(|problem| problem.field.as_str()).collect();
    assert_eq!(
        fields,
        ["tabel", "timing.created", "timing.lease", "github.kind", "admin.listen", "log.format"],
        "{errors}"
    );
    assert!(errors.to_string().contains("6 problems"), "{errors}");
}

#[test]
fn files_that_are_no_text_are_refused_as_a_whole() {
    let large = [b"# ".to_vec(), vec![b'x'; 1024 * 1024]].concat();
    let utf16: Vec<u8> = "\u{feff}table = \"x\"".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let rows: [(&[u8], &str); 4] = [
        (&large, "256 KiB"),
        (&utf16, "UTF-8"),
        (b"table = \"\xff\"", "UTF-8"),
        (b"table\0 = 1", "not TOML"),
    ];
    for (bytes, message) in rows {
        let errors = bad(bytes, &[]);
        assert_eq!(errors.problems()[0].field, "--config");
        assert!(errors.problems()[0].message.contains(message), "{errors}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let nowhere = Path::new("/nowhere/runyard.toml");
    let directory = tempfile::tempdir().unwrap();
    for path in [nowhere, directory.path()] {
        let errors = Config::load(Some(path), std::iter::empty()).unwrap_err();
        assert_eq!(errors.problems().len(), 1, "what the file would say is not missing: {errors}");
        assert_eq!(errors.problems()[0].value, path.display().to_string());
        assert!(errors.problems()[0].message.contains("cannot be read"), "{errors}");
    }
}

#[test]
fn a_real_github_wants_a_credential_and_none_wants_none() {
    let errors = load(None, &[]).unwrap_err();
    assert_eq!(errors.problems().len(), 1);
    assert!(errors.problems()[0].fix.contains("github.kind = \"none\""), "{errors}");
    assert_eq!(load(None, &[("RUNYARD_GITHUB__KIND", "none")]).unwrap().github, None);
}

#[test]
fn a_credential_that_was_given_wrongly_is_not_also_called_missing() {
    for file in ["[github]\ntoken_file = \"ghp_x\"", "[github]\ntoken = \"x\""] {
        let errors = load(Some(file.as_bytes()), &[]).unwrap_err();
        assert_eq!(errors.problems().len(), 1, "{errors}");
    }
}

#[test]
fn a_github_app_is_an_id_and_a_key_file() {
    let file = b"[github]\napp_id = 1234\napp_key_file = \"/key.pem\"\nscope = \"organization\"\n";
    let github = load(Some(file), &[]).unwrap().github.unwrap();
    assert_eq!(github.credential, Credential::App { id: "1234".into(), key_file: "/key.pem".into() });
    assert_eq!(github.scope, ScopeKind::Organization);
}

#[test]
fn plain_http_is_for_loopback_and_the_slash_at_the_end_is_cut() {
    for (given, taken) in [
        ("http://127.0.0.1:4000/", "http://127.0.0.1:4000"),
        ("http://[::1]:4000", "http://[::1]:4000"),
        ("http://localhost:4000/api/v3/", "http://localhost:4000/api/v3"),
        ("https://ghes.example/api/v3", "https://ghes.example/api/v3"),
    ] {
        assert_eq!(good("", &[("RUNYARD_GITHUB__API_URL", given)]).github.unwrap().api_url, taken);
    }
}

#[test]
fn where_another_program_plays_the_agents_its_pace_is_its_own() {
    let config = good("[compute]\nkind = \"none\"\n[timing]\nstale = \"2s\"\ncreated = \"100ms\"\n", &[]);
    assert_eq!((config.timing.stale, config.timing.created), (secs(2), Duration::from_millis(100)));
}

#[test]
fn a_queue_in_memory_goes_with_machines_that_are_not_ec2s() {
    for kind in ["local", "none"] {
        let config = good("[queue]\nkind = \"memory\"", &[("RUNYARD_COMPUTE__KIND", kind)]);
        assert_eq!(config.queue, QueueKind::Memory);
    }
}

#[test]
fn a_runner_package_is_an_address_a_digest_and_a_version() {
    let file = format!(
        "[agent]\nrunner_url = \"https://a.example/r.tar.gz\"\nrunner_sha256 = \"{}\"\nrunner_version = \"2.330.0\"\n\
         pre_runner_script = \"/etc/runyard/pre.sh\"\npre_runner_timeout = \"90s\"\n\
         stop = \"5m\"\nspare = \"/mnt/efs, /mnt/tools\"\n",
        "AB".repeat(32)
    );
    let agent = good(&file, &[]).agent;
    assert_eq!(agent.runner.usual.unwrap().sha256, "ab".repeat(32));
    assert_eq!(agent.pre_runner_script.unwrap(), Path::new("/etc/runyard/pre.sh"));
    assert_eq!((agent.stop, agent.spare), (secs(300), vec!["/mnt/efs".into(), "/mnt/tools".into()]));
    assert_eq!(agent.pre_runner_timeout, secs(90));
}

#[test]
fn each_architecture_may_have_a_package_and_a_program_of_its_own() {
    let (x64, arm64) = ("0a".repeat(32), "0b".repeat(32));
    let file = format!(
        "[agent]\nrunner_url = \"https://a.example/actions-runner-linux-x64-2.330.0.tar.gz\"\n\
         runner_sha256 = \"{x64}\"\nrunner_version = \"2.330.0\"\n\
         runner_url_arm64 = \"https://a.example/actions-runner-linux-arm64-2.330.0.tar.gz\"\n\
         runner_sha256_arm64 = \"{arm64}\"\nurl = \"https://a.example/runyard-agent-x86_64\"\nsha256 = \"{x64}\"\n"
    );
    let agent = good(&file, &[]).agent;
    let package = |architecture| agent.runner.of(architecture).map(|package| package.sha256.clone());
    assert_eq!(package(Some("x86_64")), Some(x64.clone()));
    assert_eq!(package(None), Some(x64.clone()));
    assert_eq!(package(Some("arm64")), Some(arm64));
    let program = |architecture| agent.program.of(architecture).map(|program| program.sha256.clone());
    assert_eq!(
        (program(Some("x86_64")), program(Some("arm64"))),
        (Some(x64), None),
        "it is not for the other"
    );
    for (key, missing) in [
        ("runner_url_arm64 = \"https://a.example/r\"", "agent.runner_sha256_arm64"),
        ("runner_url_arm64 = \"https://a.example/r\"", "agent.runner_version"),
        ("url = \"https://a.example/agent\"", "agent.sha256"),
        (
            "sha256_arm64 = \"0000000000000000000000000000000000000000000000000000000000000000\"",
            "agent.url_arm64",
        ),
    ] {
        let errors = bad(format!("[agent]\n{key}\n").as_bytes(), &[]);
        assert!(errors.problems().iter().any(|one| one.field == missing), "{key}: {errors}");
    }
}

#[test]
fn a_yard_of_one_architecture_needs_no_second_package() {
    for (url, fitting) in [
        ("https://a.example/actions-runner-linux-arm64-2.330.0.tar.gz", [false, true, true]),
        ("https://a.example/actions-runner-linux-x64-2.330.0.tar.gz", [true, false, true]),
        ("https://a.example/runner.tar.gz", [true, true, true]),
    ] {
        let package = RunnerPackage { url: url.into(), sha256: "0".repeat(64), version: "2.330.0".into() };
        let packages = Architectures { usual: Some(package), arm64: None };
        let found =
            [Some("x86_64"), Some("arm64"), None].map(|architecture| packages.of(architecture).is_some());
        assert_eq!(found, fitting, "{url}");
    }
}

#[test]
fn variables_of_machines_are_a_table_or_by_the_environment_json() {
    let wanted = BTreeMap::from([
        ("HTTPS_PROXY".to_owned(), "http://proxy.example:3128".to_owned()),
        ("NO_PROXY".to_owned(), "169.254.169.254,.example".to_owned()),
    ]);
    let table = "[agent.environment]\nHTTPS_PROXY = \"http://proxy.example:3128\"\nNO_PROXY = \"169.254.169.254,.example\"";
    assert_eq!(good(table, &[]).agent.environment, wanted);
    let json = serde_json::to_string(&wanted).unwrap();
    assert_eq!(good("", &[("RUNYARD_AGENT__ENVIRONMENT", &json)]).agent.environment, wanted);
    assert_eq!(good("[agent]\nenvironment = \"\"", &[]).agent.environment, BTreeMap::new());
}

#[test]
fn variables_that_jobs_must_not_have_are_refused_by_name() {
    for (said, field) in [
        ("ACTIONS_RUNNER_HOOK_JOB_STARTED = \"/x\"", "agent.environment.ACTIONS_RUNNER_HOOK_JOB_STARTED"),
        ("HOME = \"/root\"", "agent.environment.HOME"),
        ("\"A B\" = \"x\"", "agent.environment.A B"),
        ("NPM_TOKEN = \"hunter2\"", "agent.environment.NPM_TOKEN"),
        ("X = \"ghp_hunter2\"", "agent.environment.X"),
        ("HTTPS_PROXY = \"http://me:hunter2@proxy.example\"", "agent.environment.HTTPS_PROXY"),
        ("X = \"a\\nb\"", "agent.environment.X"),
        ("X = [\"a\"]", "agent.environment"),
        ("http_proxy = \"http://proxy.example\"", "agent.environment"),
        ("ALL_PROXY = \"http://proxy.example\"\nNO_PROXY = \"example.com\"", "agent.environment"),
    ] {
        let errors = bad(format!("[agent.environment]\n{said}\n").as_bytes(), &[]);
        let fields: Vec<_> = errors.problems().iter().map(|problem| problem.field.as_str()).collect();
        assert_eq!(fields, [field], "{said}: {errors}");
        assert!(!errors.to_string().contains("hunter2"), "{errors}");
    }
    for text in ["A=b", "[1]", "{\"A\": 1}"] {
        let errors = load(None, &[MINIMAL, &[("RUNYARD_AGENT__ENVIRONMENT", text)]].concat()).unwrap_err();
        assert_eq!(errors.problems()[0].field, "agent.environment", "{text}: {errors}");
    }
}

#[test]
fn shares_are_a_table_or_by_the_environment_json() {
    let file = "[sharing.teams]\n\"acme/web*\" = \"web\"\n[sharing.priorities]\nhigh = {value = 100, repositories = [\"acme/release\"]}\nbulk = {value = -10}\n[sharing.quotas]\n\"acme/*\" = {maxMachines = 40, maxWaiting = 200}\n";
    let sharing = good(file, &[]).sharing;
    assert_eq!(sharing.teams["acme/web*"], "web");
    assert_eq!((sharing.priorities["high"].value, sharing.priorities["bulk"].value), (100, -10));
    assert_eq!(sharing.priorities["bulk"].repositories, ["*"]);
    assert_eq!(
        (sharing.quotas["acme/*"].max_machines, sharing.quotas["acme/*"].max_waiting),
        (Some(40), Some(200))
    );
    let json = [
        ("RUNYARD_SHARING__TEAMS", r#"{"acme/web*": "web"}"#),
        (
            "RUNYARD_SHARING__PRIORITIES",
            r#"{"high": {"value": 100, "repositories": ["acme/release"]}, "bulk": {"value": -10}}"#,
        ),
        ("RUNYARD_SHARING__QUOTAS", r#"{"acme/*": {"maxMachines": 40, "maxWaiting": 200}}"#),
    ];
    assert_eq!(good("", &json).sharing, sharing);
    for (said, field) in [
        ("teams = {\"a b\" = \"web\"}", "sharing.teams.a b"),
        ("teams = {\"acme/*\" = \"Web Team\"}", "sharing.teams.acme/*"),
        ("teams = [\"web\"]", "sharing.teams"),
        ("priorities = {High = {value = 1}}", "sharing.priorities.High"),
        ("priorities = {high = {value = 1, who = \"me\"}}", "sharing.priorities"),
        ("priorities = {high = {value = 1, repositories = []}}", "sharing.priorities.high"),
        ("quotas = {\"*\" = {maxMachines = 0}}", "sharing.quotas.*"),
        ("quotas = {\"*\" = {guaranteed = 2}}", "sharing.quotas.*"),
        ("quotas = {\"*\" = {machines = 2}}", "sharing.quotas"),
    ] {
        let errors = bad(format!("[sharing]\n{said}\n").as_bytes(), &[]);
        let fields: Vec<_> = errors.problems().iter().map(|problem| problem.field.as_str()).collect();
        assert_eq!(fields, [field], "{said}: {errors}");
    }
}

#[test]
fn durations_have_a_unit() {
    for (text, millis) in
        [("100ms", 100), ("90s", 90_000), ("15m", 900_000), ("2h", 7_200_000), ("1h30m", 5_400_000)]
    {
        assert_eq!(duration(text).unwrap(), Duration::from_millis(millis), "{text}");
    }
}

/// Generates texts that resemble valid ones, so that more than the first check is reached.
fn nearly() -> impl proptest::strategy::Strategy<Value = String> {
    "(\\[|timing|\\]|\n|created|=|\"|5m|kind|compute|ec2|\\.|table|\\{|\\}|github|ghp_|[0-9a-z ]|\\PC){0,24}"
}

proptest::proptest! {
    #[test]
    fn whatever_is_given_is_taken_or_refused(
        file in proptest::prelude::any::<Vec<u8>>(),
        text in nearly(),
        section in "(TIMING|GITHUB|LOG|COMPUTE|[A-Z_]{0,8})",
        key in "(CREATED|KIND|API_URL|FILTER|APP_ID|[A-Z_.]{0,8})",
        value in "\\PC{0,40}",
    ) {
        for bytes in [file.as_slice(), text.as_bytes()] {
            let environment = [(format!("RUNYARD_{section}__{key}"), value.clone())];
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(bytes).unwrap();
            if let Err(errors) = Config::load(Some(file.path()), environment.into_iter()) {
                proptest::prop_assert!(!errors.problems().is_empty());
                proptest::prop_assert!(errors.problems().iter().all(|problem| !problem.fix.is_empty()));
            }
        }
    }

    #[test]
    fn whatever_is_read_as_a_duration_is_within_its_bounds(text in "(-|[0-9]{1,20}|ms|s|m|h|d|\\.| |P|T){0,6}") {
        if let Ok(read) = duration(&text) {
            proptest::prop_assert!(read >= SHORTEST && read <= secs(365 * 24 * 3600));
        }
    }
}

#[test]
fn what_is_asked_of_github_can_be_slowed_down_and_turned_off() {
    let watch = |pairs: &[(&str, &str)]| good("", pairs).github.unwrap().watch;
    let off = [
        ("RUNYARD_GITHUB__RUN_POLL", "0s"),
        ("RUNYARD_GITHUB__VERIFY_REMOVED", "false"),
        ("RUNYARD_GITHUB__VERIFY_RUN", "false"),
        ("RUNYARD_GITHUB__RERUNS", "false"),
        ("RUNYARD_GITHUB__RERUN_LOST", "true"),
    ];
    let expected = GitHubWatch {
        run_poll: None,
        verify_removed: false,
        verify_run: false,
        reruns: false,
        rerun_lost: true,
        ..GitHubWatch::default()
    };
    assert_eq!(watch(&off), expected);
    assert_eq!(watch(&[("RUNYARD_GITHUB__SWEEP", "30m")]).sweep, Some(secs(1800)));
    for (key, value, named) in [
        ("RUNYARD_GITHUB__RUN_POLL", "500ms", "github.run_poll"),
        ("RUNYARD_GITHUB__SWEEP", "hourly", "github.sweep"),
        ("RUNYARD_GITHUB__VERIFY_REMOVED", "maybe", "github.verify_removed"),
    ] {
        let refused = load(None, &[MINIMAL, &[(key, value)]].concat()).unwrap_err().to_string();
        assert!(refused.contains(named) && refused.contains(value), "{refused}");
    }
}

#[test]
fn how_many_requests_a_repository_may_have_open_is_a_number_of_at_least_one() {
    assert_eq!(good("[limits]\nrequests_per_repository = 7\n", &[]).requests_per_repository, 7);
    for value in ["0", "-1", "100001", "1.5", "many"] {
        let error = bad(format!("[limits]\nrequests_per_repository = \"{value}\"\n").as_bytes(), &[]);
        let problem = &error.problems()[0];
        assert_eq!(problem.field, "limits.requests_per_repository");
        assert!(problem.to_string().contains(value) && problem.to_string().contains("2000"), "{problem}");
    }
}

#[test]
fn the_limits_are_buckets_with_a_size_and_a_rate() {
    let config =
        good("[limits]\ninstances = 500\nlaunches_per_second = 0.5\n", &[("RUNYARD_LIMITS__LOOKS", "20")]);
    assert_eq!(config.limits.instances, Rate { burst: 500, milli: 2000 });
    assert_eq!(config.limits.launches, Rate { burst: 4, milli: 500 });
    assert_eq!(config.limits.looks.burst, 20);
    for (key, value) in
        [("instances", "0"), ("looks", "many"), ("changes_per_second", "0"), ("changes", "1.5")]
    {
        let error = bad(format!("[limits]\n{key} = \"{value}\"\n").as_bytes(), &[]);
        assert_eq!(error.problems()[0].field, format!("limits.{key}"));
    }
}
