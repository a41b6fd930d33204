//! How github.com and its runner differ from a GitHub that reports every state at once: the imitated behaviours, each
//! with the place where it was seen. [`Behaviour::default`] has the rules without the waiting, for tests; `runyard up`
//! adds the times of the runner ([`Pace::Github`]), and [`Behaviour::of_github_com`] has all realistic times.

mod scale_sets;

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use scale_sets::{Completion, Routing, SetBehaviour};

/// The version of the stand-in's runner package.
pub const PACKAGE_VERSION: &str = "2.999.0";

/// When GitHub's support for a runner version ends, as `GET …/actions/runners/deprecations/{version}` returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndOfLife {
    /// The version, such as `2.336.0`.
    pub version: String,
    /// The time from which it cannot register.
    pub registration: Option<Timestamp>,
    /// The time from which it gets no job.
    pub runtime: Option<Timestamp>,
}

/// GitHub's response to a runner that connects with a version whose support has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PastEndOfLife {
    /// It is refused when it asks for a message, and so after it reported that it listens; its listener ends with exit
    /// code 7, or 1 where the environment does not ask for 7.
    #[default]
    Refused,
    /// It gets no session; its listener ends with exit code 1.
    NoSession,
    /// It listens, and gets no job: the brownouts of 2026 and the state after "we will not queue jobs to your runner".
    Starved,
}

/// Whether runners get the tokens with which they open a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenService {
    /// They do.
    #[default]
    Answers,
    /// It responds with 503; GitHub's other services respond normally.
    Unwell,
}

/// The behaviour that the stand-in imitates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// Whether runners that register with a token use the REST API to remove themselves (`UseRunnerAdminFlow`,
    /// actions/runner#3954). `config.sh remove` of a runner that GitHub does not know any more is then an error (exit
    /// 1); by the older way, which single-use configurations always use, it is a success.
    pub admin_flow: bool,
    /// How long after an assignment `busy` is still false, and a removal succeeds.
    pub busy_late: Duration,
    /// From when and for how long after an assignment `busy` is false although the job continues.
    pub busy_gap: Option<(Duration, Duration)>,
    /// How long after the end of a job `busy` is still true, and a removal is refused (422).
    pub busy_lingers: Duration,
    /// How long a response to a call about a runner's labels takes.
    pub labels_answer: Duration,
    /// How long after that call jobs are still assigned by the former labels of the runner.
    pub labels_late: Duration,
    /// The versions whose end of life GitHub knows. For others it returns 404.
    pub ends_of_life: Vec<EndOfLife>,
    /// The treatment of a runner past the end of its version's life.
    pub past_end_of_life: PastEndOfLife,
    /// How long the session of a silent listener blocks its next one, while the runner is reported as online.
    pub session_held: Duration,
    /// Whether sessions can be opened.
    pub token_service: TokenService,
    /// Whether the list of an attempt's jobs includes those that did not run in it. For some time in 2025 it did not
    /// (r-universe-org/help#607).
    pub lists_carried_over: bool,
    /// How long after a job was queued it is not yet in the list of jobs, although its run is listed; neither the run's
    /// entry nor its `updated_at` changes when it appears. Up to 5 s (\[live\] rhobuild/runpool contract tests, August
    /// 2026).
    pub job_list_delay: Duration,
    /// Whether a run with a queued job is `queued` although other jobs of it run: its status is then that of its least
    /// advanced job (cli/cli#13972, July 2026). Otherwise a run is `in_progress` from the first job that begins.
    pub queued_hides_running: bool,
    /// How the service of runner scale sets behaves.
    pub scale_sets: SetBehaviour,
    /// How the runner package behaves.
    pub package: PackageBehaviour,
}

/// How long the runner takes when it has nothing to wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pace {
    /// As long as this program needs.
    #[default]
    None,
    /// As long as GitHub's: medians of 2.336.0, warm, on two cores.
    Github,
}

impl Pace {
    /// Returns the time from the start of `config.sh` to its end: a .NET start, a key, four calls.
    #[must_use]
    pub fn config(self) -> Duration {
        self.millis(700)
    }

    /// Returns the time from the start of `run.sh`, with a registration or a single-use configuration, until it
    /// listens; about a .NET start. `config.sh remove` was not measured and is assumed to take as long.
    #[must_use]
    pub fn listen(self) -> Duration {
        self.millis(520)
    }

    /// Returns the time from a job's message to its first step: the worker's start.
    #[must_use]
    pub fn first_step(self) -> Duration {
        self.millis(1750)
    }

    fn millis(self, of_github: u64) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Github => Duration::from_millis(of_github),
        }
    }
}

/// The behaviour that the runner package imitates; configured by a file in the package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PackageBehaviour {
    /// The version it reports.
    pub version: String,
    /// How long it takes.
    pub pace: Pace,
    /// How long a listener that is stopped in the middle of a job takes beyond the end of the job's processes.
    pub stop: Duration,
    /// How long `config.sh` waits between its three tries of a call that failed.
    pub retry: Duration,
    /// How long `run.sh` waits between its attempts to open a session, eight while another's session is held; half of
    /// it between its attempts to get a message.
    pub again: Duration,
    /// Whether `config.sh` checks its environment for libicu, as GitHub's does.
    pub libicu: bool,
    /// Its size.
    pub size: PackageSize,
}

impl PackageBehaviour {
    /// Parses words separated by commas: `small` or `real` for its size, `unpaced` for a runner that takes no time,
    /// where it otherwise takes as long as GitHub's, and `libicu` for one that checks its environment for libicu.
    ///
    /// # Errors
    /// The word that is none of these.
    pub fn told(words: &str) -> Result<Self, String> {
        let mut told = Self { pace: Pace::Github, ..Self::default() };
        for word in words.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word {
                "small" => told.size = PackageSize::default(),
                "real" => told.size = PackageSize::REAL,
                "unpaced" => told.pace = Pace::None,
                "libicu" => told.libicu = true,
                other => return Err(other.to_owned()),
            }
        }
        Ok(told)
    }
}

/// The contents of a package in addition to its scripts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageSize {
    /// The number of additional files.
    pub files: u32,
    /// Their total size in bytes; 36 % of it when packed.
    pub bytes: u64,
}

impl PackageSize {
    /// The size of GitHub's package (actions-runner-linux-x64-2.336.0: 192 MB packed, 535 MB, 8 200 files, most of them
    /// npm's, which is included once for each of four copies of node in `externals`).
    pub const REAL: Self = Self { files: 8_200, bytes: 535_000_000 };
}

impl Default for PackageBehaviour {
    fn default() -> Self {
        Self {
            version: PACKAGE_VERSION.to_owned(),
            pace: Pace::None,
            stop: Duration::ZERO,
            retry: Duration::ZERO,
            again: Duration::from_secs(3),
            libicu: false,
            size: PackageSize::default(),
        }
    }
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            admin_flow: true,
            busy_late: Duration::ZERO,
            busy_gap: None,
            busy_lingers: Duration::ZERO,
            labels_answer: Duration::ZERO,
            labels_late: Duration::ZERO,
            ends_of_life: Vec::new(),
            past_end_of_life: PastEndOfLife::Refused,
            session_held: Duration::from_secs(15),
            token_service: TokenService::Answers,
            lists_carried_over: true,
            job_list_delay: Duration::ZERO,
            queued_hides_running: false,
            scale_sets: SetBehaviour::default(),
            package: PackageBehaviour::default(),
        }
    }
}

/// `runtime_deprecates_at` as the endpoint returned it on 2026-09-29; it names no registration date.
const KNOWN: [(&str, Option<&str>); 11] = [
    ("2.329.0", Some("2026-01-23T17:10:35Z")),
    ("2.330.0", Some("2026-03-13T18:34:13Z")),
    ("2.331.0", Some("2026-04-30T21:52:20Z")),
    ("2.332.0", Some("2026-05-25T15:23:35Z")),
    ("2.333.0", Some("2026-05-29T17:27:54Z")),
    ("2.333.1", Some("2026-06-30T15:52:45Z")),
    ("2.334.0", Some("2026-08-10T17:08:55Z")),
    ("2.335.0", Some("2026-08-14T16:59:37Z")),
    ("2.335.1", Some("2026-09-24T15:30:55Z")),
    ("2.336.0", Some("2026-11-05T08:04:55Z")),
    ("2.337.0", None),
];

impl EndOfLife {
    /// Returns the eleven versions whose dates github.com published in 2026.
    ///
    /// # Panics
    /// Never: the dates are constants, and a test reads them.
    #[must_use]
    pub fn known() -> Vec<Self> {
        let read = |at: &str| at.parse().expect("a constant");
        KNOWN
            .into_iter()
            .map(|(version, runtime)| Self {
                version: version.to_owned(),
                registration: None,
                runtime: runtime.map(read),
            })
            .collect()
    }
}

impl Behaviour {
    /// Imitates github.com and its runner at their worst.
    ///
    /// | what | value | seen in |
    /// |---|---|---|
    /// | `busy` after an assignment | 25 to 60 s late | github-aws-runners/terraform-aws-github-runner#5085 |
    /// | `busy` in the middle of a job | false for a while, and a removal succeeds | the same, #5228 |
    /// | list of an attempt's jobs | without those that did not run in it | r-universe-org/help#607 |
    /// | a queued job in the list of jobs | 5 s after its run | \[live\] rhobuild/runpool contract tests, August 2026 |
    /// | status of a run with queued and running jobs | `queued` | cli/cli#13972 |
    /// | `busy` after a killed job | up to 10 min | machulav/ec2-github-runner#23 |
    /// | labels set by the REST API | answered in 250 ms; jobs by the former ones for a second more | assumed; that a listening runner takes jobs by labels set later: runs-on/runs-on#102; that former labels stay in force somewhere: actions/runner#4225 |
    /// | the end of a job of a scale set | told 3 min late | \[live\] rhobuild/runpool contract tests, August 2026 |
    /// | the job that a runner of a set takes | any | the same |
    /// | answers of the service of sets | begin with a byte order mark | actions/scaleset, `byte_order_mark_test.go` |
    /// | the runner's own time | [`Pace::Github`] | measured |
    /// | a dead listener's session | held for 4 min; a try each 30 s | actions/runner, `BrokerMessageListener.cs`: its patience is as long |
    /// | stop of the listener with a job | up to 45 s | actions/runner, `JobDispatcher.cs` |
    /// | tries of `config.sh` | 1 to 5 s apart | actions/runner, `RunnerDotcomServer.cs` |
    #[must_use]
    pub fn of_github_com() -> Self {
        Self {
            busy_late: Duration::from_secs(60),
            busy_gap: Some((Duration::from_secs(300), Duration::from_secs(60))),
            busy_lingers: Duration::from_secs(600),
            labels_answer: Duration::from_millis(250),
            labels_late: Duration::from_secs(1),
            ends_of_life: EndOfLife::known(),
            lists_carried_over: false,
            job_list_delay: Duration::from_secs(5),
            queued_hides_running: true,
            session_held: Duration::from_secs(240),
            scale_sets: SetBehaviour {
                completion: Completion::Late(Duration::from_secs(180)),
                routing: Routing::Scattered,
                byte_order_mark: true,
                ..SetBehaviour::default()
            },
            package: PackageBehaviour {
                pace: Pace::Github,
                again: Duration::from_secs(30),
                stop: Duration::from_secs(45),
                retry: Duration::from_secs(3),
                ..PackageBehaviour::default()
            },
            ..Self::default()
        }
    }

    /// Returns the end of life of a version, if GitHub knows it.
    #[must_use]
    pub fn end_of_life(&self, version: &str) -> Option<&EndOfLife> {
        self.ends_of_life.iter().find(|end| end.version == version)
    }

    /// Returns whether a version cannot register any more.
    pub(super) fn cannot_register(&self, version: &str, now: Timestamp) -> bool {
        self.end_of_life(version).and_then(|end| end.registration).is_some_and(|at| at <= now)
    }

    /// Returns whether a version gets no job any more.
    pub(super) fn gets_no_job(&self, version: &str, now: Timestamp) -> bool {
        self.end_of_life(version).and_then(|end| end.runtime).is_some_and(|at| at <= now)
    }

    /// Returns whether `busy` is reported this long after an assignment.
    pub(super) fn tells_busy(&self, since: Duration) -> bool {
        let in_gap = self.busy_gap.is_some_and(|(from, long)| since >= from && since < from + long);
        since >= self.busy_late && !in_gap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eleven_dates_are_known_and_each_version_outlives_the_one_before() {
        let known = EndOfLife::known();
        assert_eq!(known.len(), 11);
        let dates: Vec<_> = known.iter().filter_map(|end| end.runtime).collect();
        assert_eq!(dates.len(), 10);
        assert!(dates.is_sorted());
    }

    #[test]
    fn a_package_is_told_in_words_and_takes_its_time_unless_it_is_told_not_to() {
        let told = |words| PackageBehaviour::told(words).unwrap();
        assert_eq!((told("").pace, told("").size), (Pace::Github, PackageSize::default()));
        let all = told("real, unpaced,libicu");
        assert_eq!((all.size, all.pace, all.libicu), (PackageSize::REAL, Pace::None, true));
        assert_eq!(PackageBehaviour::told("small,huge"), Err("huge".to_owned()));
    }

    #[test]
    fn the_busy_flag_is_late_and_forgets_a_job_for_a_while() {
        let github = Behaviour::of_github_com();
        let tells = |seconds| github.tells_busy(Duration::from_secs(seconds));
        assert!(!tells(59) && tells(60) && tells(299) && !tells(300) && !tells(359) && tells(360));
        assert!(Behaviour::default().tells_busy(Duration::ZERO));
    }
}
