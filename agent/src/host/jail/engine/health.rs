//! Makes podman check the health of containers when a check is due. Podman itself leaves this to systemd timers, which
//! a jail does not have. Podman evaluates the result of a check, counts failures and reports the state.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::{self, sleep};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::time::Instant;

use super::front::{answered, ask, question};

/// Events for all containers that start from now on.
const STARTS: &str = "/v4.0.0/libpod/events?stream=true&filters=%7B%22type%22%3A%5B%22container%22%5D%2C%22event%22%3A%5B%22start%22%5D%7D";
const RUNNING: &str = "/v4.0.0/libpod/containers/json";
/// Docker's default for a check that sets no value.
const USUAL: Duration = Duration::from_secs(30);
/// How often Docker checks a container that may still be starting (`StartInterval`).
const STARTING: Duration = Duration::from_secs(5);
/// Time limit for podman to notice that a check was killed.
const ENDS: Duration = Duration::from_secs(10);
/// Delay before podman's events are requested again.
const AGAIN: Duration = Duration::from_millis(200);

/// Starts to follow podman's containers; those that start from now on are checked.
///
/// # Errors
/// Podman does not report events.
pub(super) fn begin(podman: &'static Path) -> io::Result<()> {
    let events = events(podman)?;
    thread::Builder::new().spawn(move || {
        follow(podman, events);
        loop {
            sleep(AGAIN);
            let Ok(events) = self::events(podman) else { continue };
            let running = ask(podman, "GET", RUNNING).unwrap_or_default();
            for container in running.as_array().into_iter().flatten() {
                watch(podman, container["Id"].as_str().unwrap_or_default());
            }
            follow(podman, events);
        }
    })?;
    Ok(())
}

fn events(podman: &Path) -> io::Result<BufReader<UnixStream>> {
    let mut stream = UnixStream::connect(podman)?;
    stream.write_all(question("GET", STARTS).as_bytes())?;
    let mut events = BufReader::new(stream);
    let mut line = String::new();
    // The rest of the header is no event.
    if events.read_line(&mut line)? == 0 || !line.contains(" 200 ") {
        return Err(io::Error::other(line.trim().to_owned()));
    }
    Ok(events)
}

/// Follows events until podman ends the stream.
fn follow(podman: &'static Path, events: BufReader<UnixStream>) {
    for line in events.lines().map_while(Result::ok) {
        let Ok(event) = serde_json::from_str::<Value>(&line) else { continue };
        watch(podman, event["Actor"]["ID"].as_str().unwrap_or_default());
    }
}

/// Checks one container while it runs, until it is restarted.
fn watch(podman: &'static Path, id: &str) {
    let id = id.to_owned();
    let watching = move || {
        let (begun, first) = (Instant::now(), Container::seen(podman, &id));
        let of_this_start =
            || Container::seen(podman, &id).filter(|seen| Some(&seen.started) == started(&first));
        while let Some(now) = of_this_start() {
            sleep(now.plan.pause(now.starting, begun.elapsed()));
            // It may have stopped meanwhile, or been restarted; another thread watches the restarted container.
            let Some(now) = of_this_start() else { return };
            // A check that podman cannot run now is tried again later.
            let _ = check(podman, &id, &now);
        }
    };
    // Without a thread there is no check: the container remains in the starting state.
    let _ = thread::Builder::new().spawn(watching);
}

fn started(container: &Option<Container>) -> Option<&String> {
    container.as_ref().map(|container| &container.started)
}

/// The health state of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Container {
    /// The start time, which distinguishes one start from another.
    started: String,
    /// Whether no check has reported a result yet.
    starting: bool,
    /// The command of its checks, which distinguishes them from other programs in the container.
    command: Vec<String>,
    plan: Plan,
    /// The programs that were started in the container.
    sessions: BTreeSet<String>,
}

impl Container {
    /// Reads the container from podman. Returns `None` if there is nothing to check.
    fn seen(podman: &Path, id: &str) -> Option<Self> {
        ask(podman, "GET", &format!("/v4.0.0/libpod/containers/{id}/json")).ok().as_ref().and_then(Self::of)
    }

    fn of(seen: &Value) -> Option<Self> {
        let (state, check) = (&seen["State"], &seen["Config"]["Healthcheck"]);
        let test: Vec<&str> = check["Test"].as_array()?.iter().filter_map(Value::as_str).collect();
        let command = match test.as_slice() {
            [] | ["" | "NONE", ..] => return None,
            ["CMD", words @ ..] => words.iter().map(|&word| word.to_owned()).collect(),
            ["CMD-SHELL", words @ ..] => ["/bin/sh", "-c", &words.join(" ")].map(str::to_owned).to_vec(),
            words => words.iter().map(|&word| word.to_owned()).collect(),
        };
        if state["Running"] != Value::Bool(true) {
            return None;
        }
        let sessions = seen["ExecIDs"].as_array().into_iter().flatten();
        Some(Self {
            started: state["StartedAt"].as_str()?.to_owned(),
            starting: state["Health"]["Status"].as_str() == Some("starting"),
            command,
            plan: Plan::of(check),
            sessions: sessions.filter_map(|id| id.as_str().map(str::to_owned)).collect(),
        })
    }
}

/// The schedule and the time limit of a container's checks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Plan {
    interval: Duration,
    start: Duration,
    timeout: Duration,
}

impl Plan {
    fn of(check: &Value) -> Self {
        let time = |name: &str| Duration::from_nanos(check[name].as_u64().unwrap_or(0));
        let or_usual = |time: Duration| if time.is_zero() { USUAL } else { time };
        Self {
            interval: or_usual(time("Interval")),
            start: time("StartPeriod"),
            timeout: or_usual(time("Timeout")),
        }
    }

    /// Returns the time until the next check.
    fn pause(&self, starting: bool, up: Duration) -> Duration {
        if starting && up < self.start { self.interval.min(STARTING) } else { self.interval }
    }
}

/// Makes podman run one check. A check that takes too long is killed, which podman counts as a failure.
fn check(podman: &Path, id: &str, before: &Container) -> io::Result<()> {
    let mut stream = UnixStream::connect(podman)?;
    stream.write_all(question("GET", &format!("/v4.0.0/libpod/containers/{id}/healthcheck")).as_bytes())?;
    stream.set_read_timeout(Some(before.plan.timeout))?;
    let mut said = Vec::new();
    if stream.read_to_end(&mut said).is_err() {
        end_check(podman, id, before);
        stream.set_read_timeout(Some(ENDS))?;
        stream.read_to_end(&mut said)?;
    }
    answered(&said).map(drop)
}

/// Kills the running check: a program that was started since then with the check's command.
fn end_check(podman: &Path, id: &str, before: &Container) {
    let Some(now) = Container::seen(podman, id) else { return };
    for session in now.sessions.difference(&before.sessions) {
        let Ok(seen) = ask(podman, "GET", &format!("/v4.0.0/libpod/exec/{session}/json")) else { continue };
        let process = &seen["ProcessConfig"];
        let words = process["arguments"].as_array().into_iter().flatten();
        let words: Vec<&str> =
            [&process["entrypoint"]].into_iter().chain(words).filter_map(Value::as_str).collect();
        if words == now.command {
            monitors(session).into_iter().flat_map(children).for_each(end);
        }
    }
}

/// Returns the processes with which podman monitors a program in a container: the session is one of their arguments.
/// Podman itself learns the program's own process id only when the program has ended.
fn monitors(session: &str) -> Vec<i32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let of_it = |pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == session.as_bytes())
    };
    pids.filter(of_it).collect()
}

/// Kills a process and all of its descendants.
fn end(pid: i32) {
    let started = children(pid);
    // The process may already have ended.
    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    started.into_iter().for_each(end);
}

fn children(pid: i32) -> Vec<i32> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    listed.split_whitespace().filter_map(|child| child.parse().ok()).filter(|child| *child > 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SECOND: u64 = 1_000_000_000;

    fn inspected(check: &Value) -> Value {
        json!({
            "State": {"Running": true, "StartedAt": "2026-01-01T00:00:00Z", "Health": {"Status": "starting"}},
            "Config": {"Healthcheck": check},
            "ExecIDs": ["one"],
        })
    }

    #[test]
    fn only_a_running_container_with_a_check_is_checked() {
        let check = json!({"Test": ["CMD", "pg_isready", "-q"]});
        assert!(Container::of(&inspected(&check)).is_some());
        for test in [json!(null), json!([]), json!(["NONE"]), json!([""])] {
            assert_eq!(Container::of(&inspected(&json!({"Test": test}))), None, "{test}");
        }
        let mut ended = inspected(&check);
        ended["State"]["Running"] = json!(false);
        assert_eq!(Container::of(&ended), None);
    }

    #[test]
    fn the_words_of_a_check_are_those_that_podman_starts() {
        for (test, words) in [
            (json!(["CMD", "redis-cli", "ping"]), vec!["redis-cli", "ping"]),
            (json!(["CMD-SHELL", "test -e /ok"]), vec!["/bin/sh", "-c", "test -e /ok"]),
            (json!(["true"]), vec!["true"]),
        ] {
            let container = Container::of(&inspected(&json!({"Test": test}))).expect("it is checked");
            assert_eq!(container.command, words);
        }
    }

    #[test]
    fn a_check_that_says_nothing_else_has_docker_s_times() {
        let plan = Plan::of(&json!({"Interval": 0}));
        assert_eq!((plan.interval, plan.start, plan.timeout), (USUAL, Duration::ZERO, USUAL));
    }

    #[test]
    fn a_container_that_may_still_be_starting_is_checked_more_often() {
        let plan = Plan::of(&json!({"Interval": 10 * SECOND, "StartPeriod": 20 * SECOND, "Timeout": SECOND}));
        let of = |starting, up| plan.pause(starting, Duration::from_secs(up)).as_secs();
        assert_eq!([of(true, 1), of(true, 20), of(false, 1)], [5, 10, 10]);
        let quick = Plan::of(&json!({"Interval": SECOND, "StartPeriod": 20 * SECOND}));
        assert_eq!(quick.pause(true, Duration::ZERO).as_secs(), 1);
    }
}
