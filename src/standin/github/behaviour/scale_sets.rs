//! How GitHub's service of runner scale sets behaves: its times, and each of its bad days as a switch. \[live\] was
//! measured on github.com by rhobuild/runpool (contract tests, August 2026); \[s\] was read in github.com/actions/scaleset,
//! actions-runner-controller (ARC) or actions/runner.

use std::time::Duration;

/// When the end of a job is told to its set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Completion {
    /// As the job ends.
    #[default]
    OnTime,
    /// This long after it (\[live\]: minutes).
    Late(Duration),
    /// Never (\[live\]).
    Never,
    /// As the job begins (actions/runner#4492).
    Early,
}

/// Which of a set's waiting jobs a runner takes. GitHub promises no order: a runner takes any job of its set, not the one
/// that it was made for (\[live\]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Routing {
    /// The one that waits longest.
    #[default]
    Oldest,
    /// The one that was queued last.
    Newest,
    /// One that the runner's number draws.
    Scattered,
}

/// The behaviour of the service of scale sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetBehaviour {
    /// How long a poll without news is held open (\[s\]: about 50 s).
    pub poll: Duration,
    /// How long the session of a listener that is gone is still held (\[live\]: about 50 s).
    pub session_held: Duration,
    /// How long the credential of a session is accepted (\[s\]: renewed about every 50 min).
    pub token_lifetime: Duration,
    /// How long an assigned job waits for a runner before its assignment lapses (\[live\]: 5 min).
    pub lapse: Duration,
    /// How often a job is assigned again, each time under another name (\[live\]: three times).
    pub reassigned: u32,
    /// How long a job is queued before GitHub gives it up (\[live\]: 24 h).
    pub queued: Duration,
    /// Whether a job that is queued while a capacity of 0 is announced is never offered again (\[live\]).
    pub zero_is_a_trap: bool,
    /// Whether jobs must be acquired, as at a GitHub Enterprise Server (\[s\]); github.com assigns them at once (\[live\]).
    pub acquires: bool,
    /// Whether a message that is not deleted comes again although the caller names it as its last one.
    pub repeats_the_last: bool,
    /// When the end of a job is told.
    pub completion: Completion,
    /// How many assigned jobs the statistics count that do not exist (ARC#4397).
    pub stale_assigned: u32,
    /// Which job a runner takes.
    pub routing: Routing,
    /// Whether an answer begins with a byte order mark (\[s\]: both clients strip it).
    pub byte_order_mark: bool,
    /// Whether a new session lacks the address of its queue.
    pub no_queue_url: bool,
    /// Whether an answer that should have a body has none.
    pub no_body: bool,
    /// Whether each batch ends with news of a kind that nobody knows.
    pub unknown_news: bool,
}

impl Default for SetBehaviour {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(50),
            session_held: Duration::from_secs(50),
            token_lifetime: Duration::from_secs(50 * 60),
            lapse: Duration::from_secs(5 * 60),
            reassigned: 3,
            queued: Duration::from_secs(24 * 60 * 60),
            zero_is_a_trap: true,
            acquires: false,
            repeats_the_last: false,
            completion: Completion::OnTime,
            stale_assigned: 0,
            routing: Routing::Oldest,
            byte_order_mark: false,
            no_queue_url: false,
            no_body: false,
            unknown_news: false,
        }
    }
}
