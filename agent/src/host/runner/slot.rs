//! Reports the job of a slot's runner. GitHub decides which job of a runner scale set that is, so the agent learns it
//! from the hook, before the job's first step. The hook waits until the agent's record shows the job, for a few seconds
//! at most: an agent that is slow or away delays a job and never prevents it.
//!
//! A job runs as the hook's user and can write to the same pipe. The agent takes the first report of a runner, and no
//! step of the job runs before the hook. Only where the hook gave up on the agent a step can report something else; the
//! agent believes nothing that the hook would have refused.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use runyard_core::model::{FieldError, JobReport};
use runyard_core::ports::Clock;
use tokio::net::unix::pipe;

use super::refusal::{make_pipe, refusal};
use crate::host::Host;
use crate::host::files::remove::remove;
use crate::system::clock::SystemClock;
use crate::system::disk;
use crate::system::environment::JobWords;
use crate::task::Holder;

/// The pipe for reports, beside the one for refusals.
const BEGAN: &str = "began";
/// The file that lets the job go on, beside the pipe. Only root can make it.
const ADMITTED: &str = "admitted";
/// The pause between two looks of the hook.
const LOOK: Duration = Duration::from_millis(20);
/// How often the hook looks: five seconds, many times what an agent needs for a write to its record.
const LOOKS: u32 = 250;
/// The most bytes of a report. The kernel does not mix shorter writes with others (`pipe(7)`, `PIPE_BUF`).
const LONGEST: usize = 4096;

/// Reports a job to the agent, and waits until the agent's record shows it or the patience is over. `beside` is a file
/// in the directory of the hook.
pub(super) fn report(job: &JobWords, beside: &Path) {
    report_within(LOOKS, job, beside);
}

fn report_within(looks: u32, job: &JobWords, beside: &Path) {
    let admitted = beside.with_file_name(ADMITTED);
    let mut told = None;
    for _ in 0..looks {
        if told.is_none() {
            match tell(job, &beside.with_file_name(BEGAN)) {
                Ok(pipe) => told = pipe,
                Err(error) => {
                    println!("Runyard cannot take note of this job: {error}");
                    return;
                }
            }
        }
        if admitted.exists() {
            return;
        }
        std::thread::sleep(LOOK);
    }
    println!("Runyard did not take note of this job in time.");
}

/// Writes a report. A pipe keeps it as long as a process has the pipe open; returns `None` while the agent does not.
fn tell(job: &JobWords, pipe: &Path) -> io::Result<Option<File>> {
    let line = line(job).map_err(io::Error::other)?;
    match OpenOptions::new().write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(pipe) {
        Ok(mut pipe) => pipe.write_all(line.as_bytes()).map(|()| Some(pipe)),
        Err(error) if error.raw_os_error() == Some(Errno::ENXIO as i32) => Ok(None),
        Err(error) => Err(disk::at(pipe, &error)),
    }
}

/// Returns the report of a job as one line.
fn line(job: &JobWords) -> Result<String, FieldError> {
    let attempt = job.attempt.parse().unwrap_or_default();
    let report = JobReport::of(&job.repository, &job.run, attempt, &job.name, SystemClock.now())?;
    Ok(serde_json::to_string(&report).expect("texts and numbers") + "\n")
}

/// Returns the first report among the lines that the hook would not have refused, with the agent's own time.
fn first(lines: &[u8], slot: &Holder) -> Option<JobReport> {
    let reports = lines.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    let mut ours = reports.filter(|report: &JobReport| {
        refusal(slot, report.run_id.as_str(), report.repository.as_str()).is_none()
    });
    ours.next().map(|report| JobReport { at: SystemClock.now(), ..report })
}

impl Host {
    /// Removes the former runner's report, and makes the pipe for the next one if the holder is a slot.
    pub(super) fn prepare_report(&self, holder: &Holder) -> io::Result<()> {
        let hook = self.layout.hook();
        remove(&hook.join(ADMITTED))?;
        match holder.set() {
            Some(_) => make_pipe(&hook.join(BEGAN)),
            None => remove(&hook.join(BEGAN)),
        }
    }

    /// Waits until a job of this slot begins. Never returns without a slot, or if the pipe cannot be opened.
    pub(super) async fn began(&self, slot: Option<&Holder>) -> JobReport {
        let Some(slot) = slot else { return std::future::pending().await };
        let path = self.layout.hook().join(BEGAN);
        let pipe = match pipe::OpenOptions::new().read_write(true).open_receiver(&path) {
            Ok(pipe) => pipe,
            Err(error) => {
                tracing::warn!(%error, "{}: the slot's job is not known", path.display());
                return std::future::pending().await;
            }
        };
        let mut lines = [0; LONGEST];
        loop {
            if pipe.readable().await.is_ok()
                && let Ok(length) = pipe.try_read(&mut lines)
                && let Some(report) = first(&lines[..length], slot)
            {
                return report;
            }
        }
    }

    /// Lets the job that was reported go on. If that fails, the job goes on when its patience is over.
    pub(crate) fn admit(&self) {
        if let Err(error) = disk::create_anew(&self.layout.hook().join(ADMITTED)) {
            tracing::warn!(%error, "a job waits longer than it has to");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(repository: &str) -> JobWords {
        JobWords {
            run: "43".to_owned(),
            repository: repository.to_owned(),
            attempt: "2".to_owned(),
            name: "build".to_owned(),
        }
    }

    fn slot(repository: &str) -> Holder {
        Holder { run: "set-7".to_owned(), repository: repository.to_owned(), ..Holder::default() }
    }

    #[test]
    fn the_first_report_counts_and_what_the_hook_would_have_refused_does_not() {
        let said = |words: &[JobWords]| words.iter().map(|job| line(job).unwrap()).collect::<String>();
        let later = JobWords { run: "44".to_owned(), ..words("acme/api") };
        let lines = format!("{}noise\n{}", said(&[words("evil/web")]), said(&[words("acme/web"), later]));
        let taken = first(lines.as_bytes(), &slot("acme/~")).unwrap();
        assert_eq!((taken.repository.as_str(), taken.run_id.as_str()), ("acme/web", "43"));
        assert_eq!((taken.attempt, taken.name.as_str()), (2, "build"));
        assert_eq!(first(lines.as_bytes(), &slot("other/~")), None);
    }

    #[test]
    fn the_longest_report_is_written_at_once_and_an_odd_one_is_not_written() {
        let job = JobWords {
            run: "9".repeat(64),
            repository: format!("{}/{}", "o".repeat(100), "r".repeat(100)),
            attempt: u32::MAX.to_string(),
            name: "\"\\".repeat(9000),
        };
        assert!(line(&job).unwrap().len() < LONGEST);
        for odd in ["", "0", "-1", "x", "4294967296"] {
            assert!(line(&JobWords { attempt: odd.to_owned(), ..words("acme/web") }).is_err(), "{odd}");
        }
        assert!(line(&words("acme/~")).is_err() && line(&JobWords::default()).is_err());
    }

    #[test]
    fn a_hook_waits_for_its_admission_with_patience_and_not_at_all_without_a_pipe() {
        let dir = tempfile::tempdir().unwrap();
        let beside = dir.path().join("refused");
        report_within(u32::MAX, &words("acme/web"), &beside);
        make_pipe(&dir.path().join(BEGAN)).unwrap();
        // Nobody reads.
        report_within(2, &words("acme/web"), &beside);
        let read = OpenOptions::new().read(true).write(true).open(dir.path().join(BEGAN)).unwrap();
        let hook = std::thread::spawn({
            let beside = beside.clone();
            move || report_within(u32::MAX, &words("acme/web"), &beside)
        });
        let mut lines = [0; LONGEST];
        let length = io::Read::read(&mut &read, &mut lines).unwrap();
        assert!(first(&lines[..length], &slot("acme/web")).is_some() && !hook.is_finished());
        disk::create_anew(&dir.path().join(ADMITTED)).unwrap();
        hook.join().unwrap();
    }
}
