//! The program that the runner calls before a job's first step (`ACTIONS_RUNNER_HOOK_JOB_STARTED`).

use std::convert::Infallible;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

use super::refusal::refusal;
use super::slot;
use crate::system::disk;
use crate::system::environment::JobWords;
use crate::task::Holder;

/// Implements the runner's hook: returns if the job may begin, for a slot once the job was reported. Otherwise it prints
/// and records the refusal, and blocks until the agent kills it: after a failed hook, the runner would still execute the
/// steps that always run.
///
/// # Errors
/// The refusal cannot be recorded; the job fails in this case.
pub fn job_started(holder: &Holder, job: &JobWords, refused: &Path) -> io::Result<()> {
    let Some(why) = refusal(holder, &job.run, &job.repository) else {
        if holder.set().is_some() {
            slot::report(job, refused);
        }
        return Ok(());
    };
    wait_for_the_end(&why, refused).map(|never| match never {})
}

fn wait_for_the_end(why: &str, refused: &Path) -> io::Result<Infallible> {
    let deaf = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    deaf.thread_block()?;
    println!("::error::{why}");
    let mut pipe = OpenOptions::new().write(true).open(refused).map_err(|e| disk::at(refused, &e))?;
    pipe.write_all(format!("{why}\n").as_bytes()).map_err(|e| disk::at(refused, &e))?;
    // A pipe keeps its contents as long as a process has it open: a restarted agent finds the refusal.
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}
