//! Reads the console of a booting machine: at EC2, or in the log of a local machine's agent.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::common::environment::Environment;
use crate::common::failure::CliResult;
use crate::output::format::plain;
use runyard_core::model::{InstanceId, TableName, console_lines};

/// The interval between reads of a console.
const EVERY: Duration = Duration::from_secs(5);
/// Timeout of a read.
const PATIENCE: Duration = Duration::from_secs(8);
/// Maximum length of a shown line, in characters.
const LONGEST: usize = 300;

/// The source of consoles.
pub(super) enum Consoles {
    /// EC2.
    #[cfg(feature = "ec2")]
    Ec2(Box<runyard_operator::aws::Ec2Compute>),
    /// The directory of `runyard up`, if there is one.
    Local(Option<PathBuf>),
}

impl Consoles {
    /// Selects the source by the operator's configuration.
    pub(super) async fn of(
        file: Option<&Path>,
        environment: &Environment,
        table: &TableName,
    ) -> CliResult<Self> {
        #[cfg(feature = "ec2")]
        if let Some(file) = file {
            let config = crate::session::configured::load(table, file)?;
            match config.compute {
                runyard_operator::config::ComputeKind::Ec2 => {
                    let sdk = crate::session::connect::sdk(environment).await;
                    let options = runyard_operator::aws::ec2::Ec2Options::of(&config);
                    let options = options.map_err(crate::common::failure::CliFailure::usage)?;
                    return Ok(Self::Ec2(Box::new(runyard_operator::aws::Ec2Compute::connect(
                        options, &sdk,
                    ))));
                }
                runyard_operator::config::ComputeKind::Local
                | runyard_operator::config::ComputeKind::None => {}
            }
        }
        #[cfg(not(feature = "ec2"))]
        let _ = (file, table);
        let dir = PathBuf::from(environment.get("RUNYARD_DIR").unwrap_or(".runyard"));
        Ok(Self::Local(dir.is_dir().then_some(dir)))
    }

    /// Reads the console: at EC2 Runyard's own lines, or with `all` every line; of a local machine its agent's log.
    pub(super) async fn lines(&self, id: &InstanceId, all: bool) -> Vec<String> {
        let shown = |text: &str| -> Vec<String> {
            let lines =
                text.lines().map(|line| plain(line.trim_end()).chars().take(LONGEST).collect::<String>());
            lines.filter(|line| !line.is_empty()).collect()
        };
        match self {
            #[cfg(feature = "ec2")]
            Self::Ec2(ec2) => {
                use runyard_core::ports::Compute as _;
                match tokio::time::timeout(PATIENCE, ec2.console(id)).await {
                    Ok(Ok(Some(text))) if all => shown(&text),
                    Ok(Ok(Some(text))) => console_lines(&text),
                    Ok(Ok(None)) => Vec::new(),
                    Ok(Err(error)) => {
                        tracing::warn!(%error, "the console cannot be read");
                        Vec::new()
                    }
                    Err(_) => Vec::new(),
                }
            }
            Self::Local(dir) => {
                let Some(dir) = dir else { return Vec::new() };
                let log = dir.join("machines").join(id.as_str()).join("agent.log");
                tokio::fs::read(log)
                    .await
                    .map(|log| shown(&String::from_utf8_lossy(&log)))
                    .unwrap_or_default()
            }
        }
    }
}

/// The lines of a console that were shown.
#[derive(Default)]
pub(super) struct Shown {
    /// Only lines since this time: what a machine wrote that booted before.
    pub(super) since: Option<Timestamp>,
    last: Vec<String>,
    looked: Option<Instant>,
}

impl Shown {
    /// Returns the lines since the last read; none if that was less than `EVERY` ago, unless this is the last read.
    pub(super) async fn news(&mut self, consoles: &Consoles, id: &InstanceId, last: bool) -> Vec<String> {
        if !last && self.looked.is_some_and(|at| at.elapsed() < EVERY) {
            return Vec::new();
        }
        self.looked = Some(Instant::now());
        let mut now = consoles.lines(id, false).await;
        if let Some(since) = self.since {
            now.drain(..older(&now, since));
        }
        let news = after(&self.last, &now).to_vec();
        if !now.is_empty() {
            self.last = now;
        }
        news
    }
}

/// Returns how many lines were written before this time. A line without a time belongs to the one before.
fn older(lines: &[String], since: Timestamp) -> usize {
    let at = |line: &String| line.split_whitespace().next().and_then(|word| word.parse::<Timestamp>().ok());
    lines.iter().position(|line| at(line).is_some_and(|at| at >= since)).unwrap_or(lines.len())
}

/// Returns the lines of `now` that follow `before`. Only the end of a console is kept, so its beginning may be missing.
fn after<'a>(before: &[String], now: &'a [String]) -> &'a [String] {
    let seen = (0..=before.len().min(now.len())).rev().find(|seen| before.ends_with(&now[..*seen]));
    &now[seen.unwrap_or_default()..]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that listened within a second had written nothing at the first read.
    #[tokio::test(start_paused = true)]
    async fn the_last_look_is_taken_however_short_the_one_before_was_ago() {
        let dir = tempfile::tempdir().unwrap();
        let id = InstanceId::parse("i-0123456789abcdef0").unwrap();
        let machine = dir.path().join("machines").join(id.as_str());
        std::fs::create_dir_all(&machine).unwrap();
        let consoles = Consoles::Local(Some(dir.path().to_owned()));
        let mut shown = Shown::default();
        assert_eq!(shown.news(&consoles, &id, false).await, Vec::<String>::new());
        std::fs::write(machine.join("agent.log"), "it boots\n").unwrap();
        assert_eq!(shown.news(&consoles, &id, false).await, Vec::<String>::new());
        assert_eq!(shown.news(&consoles, &id, true).await, ["it boots"]);
        assert_eq!(shown.news(&consoles, &id, true).await, Vec::<String>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_machine_that_booted_before_only_what_it_wrote_since_is_shown() {
        let dir = tempfile::tempdir().unwrap();
        let id = InstanceId::parse("i-0123456789abcdef0").unwrap();
        let machine = dir.path().join("machines").join(id.as_str());
        std::fs::create_dir_all(&machine).unwrap();
        let log =
            "2026-11-28T20:55:45Z serves 41\n  more of it\n2026-11-28T20:56:04.4Z serves 42\n  all of it\n";
        std::fs::write(machine.join("agent.log"), log).unwrap();
        let consoles = Consoles::Local(Some(dir.path().to_owned()));
        let news = async |since: &str| {
            let mut shown = Shown { since: Some(since.parse().unwrap()), ..Shown::default() };
            shown.news(&consoles, &id, true).await
        };
        assert_eq!(news("2026-11-28T20:56:04Z").await, ["2026-11-28T20:56:04.4Z serves 42", "  all of it"]);
        assert_eq!(news("2026-11-28T21:00:00Z").await, Vec::<String>::new());
    }

    fn lines(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn only_what_is_new_on_a_console_is_shown_although_its_beginning_is_lost() {
        for (before, now, new) in [
            ("", "a b", "a b"),
            ("a b", "a b", ""),
            ("a b", "a b c", "c"),
            ("a b c", "b c d", "d"),
            ("a b c", "x y", "x y"),
            ("a b", "", ""),
        ] {
            assert_eq!(after(&lines(before), &lines(now)), lines(new), "{before} then {now}");
        }
    }
}
