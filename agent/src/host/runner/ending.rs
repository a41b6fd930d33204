//! Interprets the unrequested end of a listener, and the obstacles that keep it from listening, from the output of
//! GitHub's runner and its scripts; the last relevant line counts (actions/runner, `BrokerMessageListener.cs`,
//! `Runner.cs`, `run-helper.sh.template`).

use runyard_core::model::TroubleKind;

use crate::host::files::output::{LISTENING, LOOKED_AT, detail, is_away, judge};
use crate::task::{GithubFailure, RunnerEnd, Trouble};

/// Printed when the listener has its session again.
const RECONNECTED: &str = "Runner reconnected";
/// The end of the line about a failed connection, which is printed once per outage.
const RETRYING: &str = "Retrying until reconnected";
/// Printed once the listener has received a job.
const WORKS: [&str; 2] = ["running job: ", "completed with result: "];
/// Printed when GitHub no longer knows the runner, or when the listener has removed its own configuration for that
/// reason.
const FORGOTTEN: [&str; 3] = [
    "no longer exists on the server",
    "registration has been deleted from the server",
    "not configured. run config",
];
/// Printed when GitHub already has a session of this name.
const CONFLICT: &str = "a session for this runner already exists";
/// Printed when the listener is refused. It also sends its request if it has no token, and is refused then: after a
/// failed connection this does not mean that it lacks rights.
const UNAUTHORIZED: &str = "not authorized";
/// The beginning of the last line when the listener gives up.
const GIVES_UP: [&str; 3] = ["failed to create a session", "failed to create session", "an error occurred"];

/// The end of a listener. `run.sh` itself exits with 0 in any case; its output about the listener's exit code is
/// decisive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListenerEnd {
    /// 0: it was asked to end, its one job is done, or GitHub deleted it.
    Done,
    /// 1: another attempt with this registration is useless.
    Terminated,
    /// 2, 3, 4: an error that may pass, or an update; `run.sh` restarts it.
    Again,
    /// 5: GitHub already has a session of this runner.
    Conflict,
    /// 7: GitHub no longer accepts a runner of this version.
    Deprecated,
    /// Another exit code: it crashed or was killed.
    Died,
}

impl ListenerEnd {
    /// Returns the last end that a log, in lower case, reports; if it reports none, `run.sh` itself was killed.
    fn of(said: &str) -> Self {
        let ends = [
            ("exit with 0 return code", Self::Done),
            ("exit with terminated error", Self::Terminated),
            ("exit with retryable error", Self::Again),
            ("exit because of updating", Self::Again),
            ("exit with session conflict error", Self::Conflict),
            ("exit with deprecated version exit code", Self::Deprecated),
            ("exiting with unknown error code", Self::Died),
        ];
        let end = |line: &str| ends.iter().find(|(words, _)| line.contains(words)).map(|(_, end)| *end);
        said.lines().rev().find_map(end).unwrap_or(Self::Died)
    }
}

/// Returns whether a job had started. A log that is too long to be read whole counts as yes.
pub(crate) fn worked(said: &str) -> bool {
    let small = said.to_lowercase();
    said.len() as u64 >= LOOKED_AT || WORKS.iter().any(|words| small.contains(words))
}

/// Interprets the end of a listener from the end of its log.
pub(crate) fn end_of_listener(said: &str) -> RunnerEnd {
    let (listened, recent) = since_connected(said);
    let small = recent.to_lowercase();
    let end = ListenerEnd::of(&small);
    let before = if listened { "" } else { " before it listened" };
    let reason = |why: &str| detail(&format!("run.sh ended{before}{why}"), recent, &[]);
    let deprecated = || {
        let why = ", GitHub takes no runner of this version any more: pin a newer package";
        RunnerEnd::Failed(GithubFailure::Deprecated(reason(why)))
    };
    let forgotten = FORGOTTEN.iter().any(|words| small.contains(words));
    match end {
        ListenerEnd::Deprecated => deprecated(),
        ListenerEnd::Conflict if listened => {
            RunnerEnd::Lost(reason(", its name is connected from elsewhere"))
        }
        ListenerEnd::Conflict => {
            RunnerEnd::Failed(GithubFailure::Conflict(reason(", its name is connected from elsewhere")))
        }
        ListenerEnd::Again => RunnerEnd::Failed(GithubFailure::Unreachable(reason(""))),
        ListenerEnd::Done | ListenerEnd::Terminated if forgotten => {
            RunnerEnd::Forgotten(reason(", GitHub does not know it any more"))
        }
        ListenerEnd::Done | ListenerEnd::Terminated | ListenerEnd::Died => match last_word(&small) {
            Some(Word::Away) if !listened || end == ListenerEnd::Terminated => {
                RunnerEnd::Failed(GithubFailure::Unreachable(reason("")))
            }
            Some(Word::Refused) if !listened => RunnerEnd::Failed(GithubFailure::Refused(reason(""))),
            Some(Word::Away | Word::Refused) | None if listened => RunnerEnd::Lost(match end {
                ListenerEnd::Died => reason(", its listener died"),
                ListenerEnd::Done
                | ListenerEnd::Terminated
                | ListenerEnd::Again
                | ListenerEnd::Conflict
                | ListenerEnd::Deprecated => reason(", and nobody asked for it"),
            }),
            Some(Word::Away | Word::Refused) | None => RunnerEnd::Failed(judge(recent, reason(""))),
        },
    }
}

/// Returns the obstacle of a listener that keeps trying; `None` if its log reports none.
pub(crate) fn trouble(said: &str) -> Option<Trouble> {
    let (_, recent) = since_connected(said);
    let small = recent.to_lowercase();
    let line = recent.lines().rev().find(|line| line.contains(RETRYING))?;
    let (kind, reason) = if small.contains(CONFLICT) {
        (TroubleKind::Conflict, "its name is connected from elsewhere")
    } else {
        (TroubleKind::Unreachable, "its runner cannot reach GitHub")
    };
    Some(Trouble { kind, words: detail(reason, line, &[]) })
}

/// Returns whether the listener ever listened, and the part of its log since its last connection: earlier errors no
/// longer apply.
fn since_connected(said: &str) -> (bool, &str) {
    let last = [LISTENING, RECONNECTED].iter().filter_map(|words| said.rfind(words)).max();
    (said.contains(LISTENING), last.and_then(|at| said.get(at..)).unwrap_or(said))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Away,
    Refused,
}

/// Returns the meaning of the last line, in lower case, that gives a reason for the end of a listener.
fn last_word(small: &str) -> Option<Word> {
    let mut lines = small.lines().rev();
    let word = lines.find_map(|line| {
        let gives_up = GIVES_UP.iter().any(|words| line.contains(words));
        match (is_away(line), line.contains(UNAUTHORIZED), gives_up) {
            (true, _, _) => Some(Some(Word::Away)),
            (false, true, _) => Some(None),
            (false, false, true) => Some(Some(Word::Refused)),
            (false, false, false) => None,
        }
    })?;
    Some(word.unwrap_or(if lines.any(is_away) { Word::Away } else { Word::Refused }))
}

#[cfg(test)]
mod tests;
