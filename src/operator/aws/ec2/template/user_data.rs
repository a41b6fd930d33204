//! The user data of a machine: `config/user-data.sh` with the script of its class and the configuration of its agent
//! filled in. It contains no secret: every job can read it.

use std::time::Duration;

use crate::config::Agent;
use crate::model::{FieldError, PoolSpec};

use crate::aws::ec2::Ec2Options;

/// The script; the lines beginning with `@@` are filled in.
const SCRIPT: &str = include_str!("../../../../../config/user-data.sh");
/// Maximum size of user data at EC2, in bytes, before base64 (EC2 user guide, "Run commands at launch").
const LIMIT: usize = 16 << 10;
/// The line that ends the pre-runner script within the user data.
const END: &str = "@@END-OF-PRE-RUNNER";
/// Characters that `"…"` must escape, in a shell and in systemd's environment files.
const QUOTED: [char; 4] = ['\\', '"', '$', '`'];

/// Returns the user data of a class's machines.
pub(crate) fn user_data(options: &Ec2Options, spec: &PoolSpec) -> Result<String, FieldError> {
    let script = spec.launch.pre_runner_script.as_ref().or(options.pre_runner_script.as_ref());
    let refused = |message: String, fix: &str| {
        let shown = script.map(String::as_str).unwrap_or_default();
        FieldError::new("launch.preRunnerScript", shown, message, fix)
    };
    if script.is_some_and(|script| script.lines().any(|line| line == END)) {
        return Err(refused(format!("holds the line {END}"), "leave that line out"));
    }
    let filled = |line: &str| match line {
        "@@AGENT" => configuration(options, spec, script.is_some()),
        "@@ENVIRONMENT" => environment(options),
        "@@FETCH" => fetch(options, spec),
        "@@PRE-RUNNER" => script.map(|script| script.trim_end().to_owned()).unwrap_or_default(),
        other => other.to_owned(),
    };
    let lines: Vec<String> = SCRIPT.lines().map(filled).collect();
    let text = lines.join("\n") + "\n";
    if text.len() > LIMIT {
        let message = format!("makes {} bytes of user data, {LIMIT} are possible", text.len());
        let fix =
            "shorten it, or let it fetch the rest; the operator's agent.environment is a part of it too";
        return Err(refused(message, fix));
    }
    Ok(text)
}

/// Formats the variables for a shell and systemd.
fn environment(options: &Ec2Options) -> String {
    let quoted = |value: &str| -> String {
        value.chars().flat_map(|c| QUOTED.contains(&c).then_some('\\').into_iter().chain([c])).collect()
    };
    let lines: Vec<String> =
        options.environment.iter().map(|(name, value)| format!("{name}=\"{}\"", quoted(value))).collect();
    lines.join("\n")
}

/// Returns the call that downloads the agent for a class's machines, if it is to be downloaded.
fn fetch(options: &Ec2Options, spec: &PoolSpec) -> String {
    let program = options.program.of(spec.launch.architecture.as_deref());
    program.map_or_else(String::new, |program| {
        format!("fetch '{}' {}", program.url.replace('\'', "%27"), program.sha256)
    })
}

/// Returns the part of the agent's configuration (TOML) that is the same for all machines of a class.
fn configuration(options: &Ec2Options, spec: &PoolSpec, pre_runner: bool) -> String {
    let mut lines = Vec::new();
    // JSON's escapes are valid in TOML.
    let mut line = |key: &str, value: &str| lines.push(format!("{key} = {}", serde_json::Value::from(value)));
    line("table", options.table.as_str());
    line("state_dir", "/run/runyard");
    line("work_dir", "/var/lib/runyard");
    line("job_user", "runyard-job");
    if pre_runner {
        line("pre_runner_script", "/etc/runyard/pre-runner.sh");
        line("pre_runner_timeout", &milliseconds(options.pre_runner_timeout));
    }
    line("timing.heartbeat", &milliseconds(options.timing.heartbeat));
    line("timing.poll", &milliseconds(options.timing.agent_poll));
    line("timing.grace", &milliseconds(options.timing.grace));
    line("timing.created", &milliseconds(options.timing.created));
    // Defaults of the agent are left out: changed user data means another version of the launch template.
    if let Some(every) = options.timing.unusual_heartbeat_free() {
        line("timing.heartbeat_free", &milliseconds(every));
    }
    if options.stop != Agent::STOP {
        line("timing.stop", &milliseconds(options.stop));
    }
    if let Some(runner) = options.runner.of(spec.launch.architecture.as_deref()) {
        line("runner.url", &runner.url);
        line("runner.sha256", &runner.sha256);
        line("runner.version", &runner.version);
    }
    line("power.off", "systemctl");
    if !options.runner_hosts.is_empty() {
        lines.push(format!("runner.hosts = {}", serde_json::json!(options.runner_hosts)));
    }
    if !options.spare.is_empty() {
        let spare: Vec<_> = options.spare.iter().map(|place| place.to_string_lossy()).collect();
        lines.push(format!("cleaning.spare = {}", serde_json::json!(spare)));
    }
    lines.join("\n")
}

fn milliseconds(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::aws::ec2::testing::{options, spec};
    use crate::config::{AgentProgram, Architectures, RunnerPackage};

    #[test]
    fn every_placeholder_is_filled_and_the_agents_part_is_toml_line_by_line() {
        let text = user_data(&options(), &spec()).unwrap();
        let rest: Vec<_> = text.lines().filter(|line| line.starts_with("@@")).collect();
        assert_eq!(rest, ["@@END-OF-AGENT", "@@END-OF-ENVIRONMENT", END]);
        for line in ["table = \"yard\"", "timing.heartbeat = \"10000ms\"", "power.off = \"systemctl\""] {
            assert!(text.lines().any(|found| found == line), "{line}");
        }
        assert!(!text.contains("pre_runner_script ="), "no script, no key");
        // An agent of an image takes its own default; one that does not know the key would refuse it.
        assert!(!text.contains("timing.heartbeat_free"));
        let mut quick = options();
        quick.timing.stale = quick.timing.heartbeat * 3;
        let text = user_data(&quick, &spec()).unwrap();
        assert!(text.lines().any(|line| line == "timing.heartbeat_free = \"12500ms\""), "{text}");
    }

    #[test]
    fn what_an_agent_would_not_take_by_itself_is_passed_on_to_it() {
        let text = user_data(&options(), &spec()).unwrap();
        assert!(
            !text.contains("timing.stop")
                && !text.contains("cleaning.spare")
                && !text.contains("runner.hosts"),
            "{text}"
        );
        let mut options = options();
        options.stop = Duration::from_secs(300);
        options.spare = vec!["/mnt/efs".into(), "/mnt/tools".into()];
        options.runner_hosts = vec!["mirror.example.com".into()];
        let text = user_data(&options, &spec()).unwrap();
        for line in [
            "timing.stop = \"300000ms\"",
            "cleaning.spare = [\"/mnt/efs\",\"/mnt/tools\"]",
            "runner.hosts = [\"mirror.example.com\"]",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }

    #[test]
    fn without_a_script_of_its_owners_it_leaves_12_of_ec2s_16_kibibytes() {
        let text = user_data(&full(), &spec()).unwrap();
        assert!(text.len() <= LIMIT - (12 << 10), "{} bytes", text.len());
    }

    fn package(architecture: &str) -> Option<RunnerPackage> {
        let release = "https://github.com/actions/runner/releases/download/v2.330.0";
        Some(RunnerPackage {
            url: format!("{release}/actions-runner-linux-{architecture}-2.330.0.tar.gz"),
            sha256: "0".repeat(64),
            version: "2.330.0".into(),
        })
    }

    fn program(architecture: &str) -> Option<AgentProgram> {
        let url = format!("https://artifacts.example.com/runyard/0.1.0/runyard-agent-{architecture}");
        Some(AgentProgram { url, sha256: "1".repeat(64) })
    }

    /// Returns options with all settings of an operator's file, except variables.
    fn full() -> Ec2Options {
        let mut options = options();
        options.runner = Architectures { usual: package("x64"), arm64: package("arm64") };
        options.program = Architectures { usual: program("x86_64"), arm64: program("arm64") };
        options
    }

    #[test]
    fn machines_of_each_architecture_get_their_own_runner_and_agent() {
        for (architecture, runner, agent) in
            [(None, "x64", "x86_64"), (Some("x86_64"), "x64", "x86_64"), (Some("arm64"), "arm64", "arm64")]
        {
            let mut spec = spec();
            spec.launch.architecture = architecture.map(str::to_owned);
            let text = user_data(&full(), &spec).unwrap();
            assert!(text.contains(&format!("actions-runner-linux-{runner}-2.330.0.tar.gz")), "{text}");
            let fetch = format!("\nfetch '{}' {}\n", program(agent).unwrap().url, "1".repeat(64));
            assert!(text.contains(&fetch), "{text}");
        }
        assert!(!user_data(&options(), &spec()).unwrap().contains("\nfetch '"), "an image brings it");
    }

    #[test]
    fn variables_are_what_a_shell_reads_from_them() {
        let hard = r#"a b"c$HOME`id`\d'e"#;
        let mut options = options();
        options.environment = [("HARD", hard), ("NO_PROXY", "169.254.169.254,.example")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let text = user_data(&options, &spec()).unwrap();
        assert!(text.contains("\nNO_PROXY=\"169.254.169.254,.example\"\n"), "{text}");
        let script = format!("set -eu\n{}\nprintf %s \"$HARD\"", environment(&options));
        let run = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(run.stdout).unwrap(), hard);
    }

    /// Runs the installation of missing packages on a stock image, while this many calls find the package lists locked;
    /// returns whether it succeeded, and its calls.
    fn installed(locked: u32) -> (bool, Vec<String>) {
        let begins = SCRIPT.find("install_lacking() (").expect("its function");
        let function = &SCRIPT[begins..begins + SCRIPT[begins..].find("\n)\n").expect("its end") + 3];
        let dir = tempfile::tempdir().unwrap();
        let calls = dir.path().join("calls");
        let lists = format!(r#"[ "$2" != update ] || [ "$(grep -c update "$CALLS")" -gt {locked} ]"#);
        for (name, does) in [("apt-get", lists.as_str()), ("apt-cache", "echo libicu72"), ("sleep", "")] {
            let said = if name == "apt-cache" { "" } else { "echo \"${0##*/} $*\" >>\"$CALLS\"" };
            let program = dir.path().join(name);
            std::fs::write(&program, format!("#!/bin/sh\n{said}\n{does}\n")).unwrap();
            std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        }
        let path = format!("{}:{}", dir.path().display(), "/usr/local/bin:/usr/bin:/bin");
        let script =
            format!("set -eu\nlacks='git libicu '\nicu() {{ false; }}\n{function}install_lacking || exit 1");
        let mut shell = std::process::Command::new("sh");
        let run = shell.args(["-c", &script]).env("CALLS", &calls).env("PATH", path).output().unwrap();
        let calls = std::fs::read_to_string(calls).unwrap();
        (run.status.success(), calls.lines().map(str::to_owned).collect())
    }

    #[test]
    fn what_a_stock_image_lacks_is_installed_though_it_updates_itself_meanwhile() {
        let install =
            "apt-get -qq -y -o DPkg::Lock::Timeout=300 --no-install-recommends install git libicu72";
        assert_eq!(installed(0), (true, vec!["apt-get -qq update".into(), install.into()]));
        let (done, calls) = installed(2);
        assert!(done, "{calls:?}");
        assert_eq!(calls[1..], ["sleep 5", "apt-get -qq update", "sleep 10", "apt-get -qq update", install]);
        let (done, calls) = installed(u32::MAX);
        assert!(!done && calls.len() < 12, "it goes on without in the end: {calls:?}");
    }

    #[test]
    fn a_classs_script_wins_over_the_operators() {
        let mut options = options();
        options.pre_runner_script = Some("echo operator".into());
        let mut spec = spec();
        assert!(user_data(&options, &spec).unwrap().contains("\necho operator\n"));
        spec.launch.pre_runner_script = Some("echo class\n".into());
        let text = user_data(&options, &spec).unwrap();
        assert!(text.contains("\necho class\n") && !text.contains("echo operator"));
        assert!(text.contains("pre_runner_script = \"/etc/runyard/pre-runner.sh\""));
    }

    #[test]
    fn a_script_that_cannot_be_carried_is_refused_by_name() {
        for script in ["x".repeat(LIMIT), format!("a\n{END}\nb")] {
            let mut spec = spec();
            spec.launch.pre_runner_script = Some(script);
            let error = user_data(&options(), &spec).unwrap_err();
            assert_eq!(error.field, "launch.preRunnerScript");
        }
    }

    #[test]
    fn a_script_as_long_as_apply_takes_fits() {
        let mut spec = spec();
        spec.launch.pre_runner_script = Some("x".repeat(12 << 10));
        assert!(user_data(&full(), &spec).is_ok());
    }
}
