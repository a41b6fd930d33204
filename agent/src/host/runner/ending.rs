//! What the end of a listener means that nobody asked for, and what keeps one from listening: judged by the words that
//! GitHub's runner and its scripts write, the last of which counts (actions/runner, `BrokerMessageListener.cs`,
//! `Runner.cs`, `run-helper.sh.template`).

use runyard_core::model::TroubleKind;

use crate::host::files::output::{LISTENING, LOOKED_AT, detail, is_away, judge};
use crate::task::{GithubFailure, RunnerEnd, Trouble};

/// What the listener says when it has its session again.
const RECONNECTED: &str = "Runner reconnected";
/// How it ends the line on a connection that failed, which it writes once for an outage.
const RETRYING: &str = "Retrying until reconnected";
/// What it says once it was given a job.
const WORKS: [&str; 2] = ["running job: ", "completed with result: "];
/// What it says when GitHub does not know it any more, or it has removed its own configuration for that.
const FORGOTTEN: [&str; 3] = [
    "no longer exists on the server",
    "registration has been deleted from the server",
    "not configured. run config",
];
/// What it says when GitHub has a session of its name already.
const CONFLICT: &str = "a session for this runner already exists";
/// Without a token it asks all the same, and is refused: after a failed connection that is no word on its rights.
const UNAUTHORIZED: &str = "not authorized";
/// What its last words begin with when it gives up.
const GIVES_UP: [&str; 3] = ["failed to create a session", "failed to create session", "an error occurred"];

/// How a listener ended. `run.sh` itself ends with 0 whatever happened; what it writes about the listener's exit code
/// tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListenerEnd {
    /// 0: it was asked to, its one job is done, or GitHub deleted it.
    Done,
    /// 1: no use trying again with this registration.
    Terminated,
    /// 2, 3, 4: an error that may pass, or an update; `run.sh` starts it again by itself.
    Again,
    /// 5: GitHub has a session of this runner already.
    Conflict,
    /// 7: GitHub takes no runner as old as this one.
    Deprecated,
    /// Another number: it crashed or was killed.
    Died,
}

impl ListenerEnd {
    /// The last end a log speaks of, in small letters; where it speaks of none, `run.sh` itself was killed.
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

/// Whether a job had begun. A log too long to be looked at whole says yes.
pub(crate) fn worked(said: &str) -> bool {
    let small = said.to_lowercase();
    said.len() as u64 >= LOOKED_AT || WORKS.iter().any(|words| small.contains(words))
}

/// What the end of a listener means whose log ends so.
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

/// What keeps a listener from listening that goes on trying; none where it said nothing of the kind.
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

/// Whether a log says that its listener ever listened, and what it says since it was connected last: what was said
/// before is over.
fn since_connected(said: &str) -> (bool, &str) {
    let last = [LISTENING, RECONNECTED].iter().filter_map(|words| said.rfind(words)).max();
    (said.contains(LISTENING), last.and_then(|at| said.get(at..)).unwrap_or(said))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Away,
    Refused,
}

/// The last line, in small letters, that says why a listener gives up.
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
