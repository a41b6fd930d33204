//! Writes a line to the machine's console for each step of the first boot, and one for its end. EC2 keeps the console
//! for an hour after the end (`aws ec2 get-console-output`).

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use nix::fcntl::OFlag;
use runyard_core::model::{ClaimId, ClaimProof, Item, KeptDirectories, RunnerPackage};
use runyard_core::ports::StoreError;

use crate::records::{Change, Records};
use crate::step::Stored;
use crate::step::orders::Sight;
use crate::task::{Executor, Task, TaskOutcome, Written};

/// The machine's console; it may be a serial line, or not be connected.
const CONSOLE: &str = "/dev/console";
/// Longest line, in bytes.
const LONGEST: usize = 400;

/// Writes a line. A failed write is no error.
pub fn say(text: &str) {
    if let Err(error) = write(Path::new(CONSOLE), text) {
        tracing::debug!(%error, "cannot write to the console");
    }
}

fn write(console: &Path, text: &str) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    // Not as this process's controlling terminal, and without waiting for one.
    let flags = OFlag::O_NOCTTY | OFlag::O_NONBLOCK;
    let mut console = std::fs::OpenOptions::new().write(true).custom_flags(flags.bits()).open(console)?;
    console.write_all(line(text).as_bytes())
}

/// Formats one line, without characters that a terminal would interpret.
fn line(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut line = "runyard: ".to_owned();
    for c in plain {
        if line.len() + c.len_utf8() > LONGEST {
            break;
        }
        line.push(c);
    }
    line.push('\n');
    line
}

/// Writes the steps of the first boot to the console.
pub struct BootOnConsole<E>(pub E);

#[async_trait]
impl<E: Executor> Executor for BootOnConsole<E> {
    async fn execute(&self, task: Task) -> TaskOutcome {
        if matches!(task, Task::Boot) {
            say("the pre-runner script and the runner package come next");
        }
        let outcome = self.0.execute(task).await;
        match &outcome {
            TaskOutcome::Booted(Ok(())) => say("the first boot is done"),
            TaskOutcome::Booted(Err(why)) => say(&format!("the first boot failed: {why}")),
            _ => {}
        }
        outcome
    }

    async fn prepare(&self) {
        self.0.prepare().await;
    }

    fn use_package(&self, package: Option<&RunnerPackage>) {
        self.0.use_package(package);
    }

    fn runner_id(&self) -> Option<u64> {
        self.0.runner_id()
    }

    fn kept(&self) -> KeptDirectories {
        self.0.kept()
    }

    fn proof(&self, claim: &ClaimId) -> ClaimProof {
        self.0.proof(claim)
    }

    fn logs(&self) -> Written {
        self.0.logs()
    }

    async fn kill_everything(&self) {
        self.0.kill_everything().await;
    }
}

/// Writes once to the console when the record can no longer be read.
pub struct ReadsOnConsole {
    records: Arc<dyn Records>,
    failing: AtomicBool,
}

impl ReadsOnConsole {
    /// Wraps these records.
    #[must_use]
    pub fn new(records: Arc<dyn Records>) -> Self {
        Self { records, failing: AtomicBool::new(false) }
    }

    fn told(&self, read: Result<Sight, StoreError>) -> Result<Sight, StoreError> {
        let failed_before = self.failing.swap(read.is_err(), Ordering::Relaxed);
        if let (Err(error), false) = (&read, failed_before) {
            say(&format!("cannot read this machine's record: {error}"));
        }
        read
    }
}

#[async_trait]
impl Records for ReadsOnConsole {
    async fn instance(&self) -> Result<Sight, StoreError> {
        self.told(self.records.instance().await)
    }

    async fn glance(&self) -> Result<Sight, StoreError> {
        self.told(self.records.glance().await)
    }

    async fn own(&self) -> Result<Stored, StoreError> {
        self.records.own().await
    }

    async fn write(&self, change: &Change) -> Result<Stored, StoreError> {
        self.records.write(change).await
    }

    async fn log(&self, item: &Item) -> Result<(), StoreError> {
        self.records.log(item).await
    }
}

#[cfg(test)]
mod tests {
    use runyard_core::model::Kept;

    use super::*;

    #[test]
    fn what_is_said_is_one_line_with_nothing_a_terminal_obeys() {
        assert_eq!(line("no route\nto\x1b[2J AWS"), "runyard: no route to [2J AWS\n");
        let long = line(&"ü".repeat(LONGEST));
        assert!(long.len() <= LONGEST + 1 && long.ends_with("ü\n"), "{long}");
    }

    /// An executor with a known runner.
    struct Knows(AtomicBool);

    #[async_trait]
    impl Executor for Knows {
        async fn execute(&self, _: Task) -> TaskOutcome {
            TaskOutcome::Wiped
        }

        async fn prepare(&self) {
            self.0.store(true, Ordering::Relaxed);
        }

        fn use_package(&self, package: Option<&RunnerPackage>) {
            self.0.store(package.is_some(), Ordering::Relaxed);
        }

        fn runner_id(&self) -> Option<u64> {
            Some(7)
        }

        fn kept(&self) -> KeptDirectories {
            let at = jiff::Timestamp::UNIX_EPOCH;
            let kept = Kept { repository: "acme/web".into(), generation: 1, bytes: 2, used_at: at };
            [("cargo".to_owned(), kept)].into()
        }

        fn proof(&self, claim: &ClaimId) -> ClaimProof {
            ClaimProof { image: Some("ami-1".into()), ..ClaimProof::of(claim) }
        }

        fn logs(&self) -> Written {
            Written { parts: vec![("boot", "it began".into())], secrets: vec!["hush".into()] }
        }

        async fn kill_everything(&self) {}
    }

    #[tokio::test]
    async fn beside_a_console_a_machine_does_and_knows_all_that_it_does_without() {
        let machine = BootOnConsole(Knows(AtomicBool::new(false)));
        machine.prepare().await;
        assert!(machine.0.0.load(Ordering::Relaxed));
        assert_eq!(machine.runner_id(), Some(7));
        assert_eq!((machine.kept(), machine.logs()), (machine.0.kept(), machine.0.logs()));
        assert_eq!(machine.kept().len(), 1);
        assert_eq!(machine.proof(&"i-1.4".parse().unwrap()).image.as_deref(), Some("ami-1"));
        machine.use_package(None);
        assert!(!machine.0.0.load(Ordering::Relaxed), "which package it runs");
    }

    #[test]
    fn a_console_takes_a_line_and_one_that_is_missing_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let console = dir.path().join("console");
        std::fs::write(&console, "").unwrap();
        write(&console, "it begins").unwrap();
        assert_eq!(std::fs::read_to_string(&console).unwrap(), "runyard: it begins\n");
        assert!(write(&dir.path().join("none"), "it begins").is_err());
    }
}
