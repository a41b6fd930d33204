//! The only place that reads the environment of this process, apart from AWS's own library.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use runyard_core::model::variable_refusal;

use crate::system::metadata::{ENDPOINT, ENDPOINT_VARIABLE};

/// The socket on which systemd receives notifications, and its watchdog interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The path of the socket; an address that begins with `@` is an abstract one.
    pub socket: PathBuf,
    /// The watchdog interval, after which systemd restarts this process; `None` without a watchdog.
    pub watchdog: Option<Duration>,
}

/// Returns the endpoint of the metadata service (AWS's own variable).
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
pub fn metadata_endpoint() -> String {
    let told = std::env::var(ENDPOINT_VARIABLE).ok();
    told.filter(|value| !value.is_empty()).unwrap_or_else(|| ENDPOINT.to_owned())
}

/// Returns whether there is an SQS beside the table: an environment that moves DynamoDB elsewhere without naming an
/// endpoint of SQS has none (AWS's own variables).
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
pub fn reaches_sqs() -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !set("AWS_ENDPOINT_URL_DYNAMODB") || set("AWS_ENDPOINT_URL") || set("AWS_ENDPOINT_URL_SQS")
}

/// Returns the log filter (`RUST_LOG`); `None` if it is not set.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
pub fn log_filter() -> Option<String> {
    std::env::var("RUST_LOG").ok().filter(|value| !value.is_empty())
}

/// Returns systemd's socket by its protocol (`sd_notify(3)`); `None` if systemd did not start this process.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
pub fn listener() -> Option<Listener> {
    let socket = std::env::var_os("NOTIFY_SOCKET")?.into();
    let watchdog = std::env::var("WATCHDOG_USEC").ok().and_then(|text| text.parse().ok());
    Some(Listener { socket, watchdog: watchdog.map(Duration::from_micros) })
}

/// Files of variables that systemd loads into this process's environment: the image's two, then the operator's, which
/// user data writes.
const FILES: [&str; 3] = ["/etc/environment", "/etc/runyard/job.env", "/etc/runyard/agent.env"];

/// Returns the variables of this machine that are passed on to scripts, runners and jobs: those that the files name, as
/// systemd has read them, except those that must not be set there.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
pub fn of_machine() -> Vec<(String, String)> {
    let texts = FILES.iter().filter_map(|file| std::fs::read_to_string(file).ok());
    let names: BTreeSet<String> = texts.flat_map(|text| names(&text)).collect();
    let passed = |name: String| {
        if let Some(why) = variable_refusal(&name) {
            tracing::warn!(name, why, "a variable of this machine is not passed on");
            return None;
        }
        let value = std::env::var(&name).ok()?;
        Some((name, value))
    };
    names.into_iter().filter_map(passed).collect()
}

/// Returns the names of the variables that a file sets (`systemd.exec(5)`, `EnvironmentFile=`).
fn names(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim_start).filter(|line| !line.starts_with(['#', ';']));
    lines.filter_map(|line| Some(line.split_once('=')?.0.trim_end().to_owned())).collect()
}

/// A job, as GitHub's runner names it to each of its steps and hooks; what is not set is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobWords {
    /// The id of its run.
    pub run: String,
    /// The repository of its run.
    pub repository: String,
    /// The attempt of its run.
    pub attempt: String,
    /// Its name in the workflow.
    pub name: String,
}

/// Returns the job in whose hook this process runs.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
pub fn job() -> JobWords {
    let told = |name: &str| std::env::var(name).unwrap_or_default();
    JobWords {
        run: told("GITHUB_RUN_ID"),
        repository: told("GITHUB_REPOSITORY"),
        attempt: told("GITHUB_RUN_ATTEMPT"),
        name: told("GITHUB_JOB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_variables_names_what_it_sets_and_nothing_else() {
        let text =
            "# a comment\n; another=one\nPATH=\"/usr/bin:/snap/bin\"\n\n  HTTPS_PROXY = http://p:1=2\nodd\n";
        assert_eq!(names(text), ["PATH", "HTTPS_PROXY"]);
    }
}
