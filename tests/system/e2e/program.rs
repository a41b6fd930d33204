//! How are the programs run? `runyard` as cargo built it with the agent beside it, in an environment of the test's
//! choice; what a test starts it also ends, by its own pid.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::time::Instant;

use crate::e2e::waiting::{PATIENCE, until};

/// An environment.
pub(crate) type Environment = BTreeMap<String, String>;

/// The `runyard` executable, once the agent is known to stand beside it.
pub(crate) fn runyard() -> &'static Path {
    let runyard = Path::new(env!("CARGO_BIN_EXE_runyard"));
    let agent = runyard.with_file_name("runyard-agent");
    assert!(
        agent.is_file(),
        "there is no {}: run `cargo build --workspace --bins` first, or `cargo test --workspace`, which builds it",
        agent.display()
    );
    runyard
}

/// The agent's executable.
pub(crate) fn agent() -> PathBuf {
    runyard().with_file_name("runyard-agent")
}

/// What every program gets: a path to the system's commands, and no way to any AWS but the one a test names.
pub(crate) fn environment<'a>(more: impl IntoIterator<Item = (&'a str, &'a str)>) -> Environment {
    let always = [
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
        ("USER", "tess"),
        // What these tests ask is not how long GitHub's runner takes.
        ("RUNYARD_STAND_IN_PACKAGE", "unpaced"),
    ];
    always.into_iter().chain(more).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// How a verb ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Its answer, as a program reads it.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Whether an engine's answer came too late, as on a machine that is busy with other things: then a person runs it again.
fn answered_too_late(output: &Output) -> bool {
    output.status.code() == Some(1)
        && String::from_utf8_lossy(&output.stderr).contains("request has timed out")
}

/// Runs a verb to its end, for tests without a runtime.
pub(crate) fn output(command: &mut Command) -> Output {
    let end = Instant::now() + PATIENCE;
    loop {
        let output = command.output().expect("the program starts");
        if !answered_too_late(&output) || Instant::now() > end {
            return output;
        }
    }
}

/// Runs `runyard` to its end.
pub(crate) async fn verb(environment: &Environment, arguments: &[&str]) -> Ended {
    let end = Instant::now() + PATIENCE;
    let output = loop {
        let output = once(environment, arguments).await;
        if !answered_too_late(&output) || Instant::now() > end {
            break output;
        }
    };
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the program speaks UTF-8");
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

async fn once(environment: &Environment, arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(runyard());
    command.args(arguments).env_clear().envs(environment).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await;
    let output = output.unwrap_or_else(|_| panic!("`runyard {}` does not end", arguments.join(" ")));
    output.expect("the program starts")
}

/// A program that runs until it is ended, at the latest with this value.
pub(crate) struct Running {
    child: Child,
    /// What it prints, both streams, from this start on.
    pub(crate) log: PathBuf,
}

impl Running {
    /// Starts `runyard`; what it prints goes to a file.
    pub(crate) fn start(environment: &Environment, arguments: &[&str], log: PathBuf) -> Self {
        let file = File::create(&log).expect("a log can be written");
        let both = file.try_clone().expect("a file can be shared");
        let mut command = Command::new(runyard());
        command.args(arguments).env_clear().envs(environment).stdin(Stdio::null()).stdout(file).stderr(both);
        Self { child: command.spawn().expect("the program starts"), log }
    }

    /// What it printed so far.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its pid.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be asked after")
    }

    /// Waits until it printed something that `find` finds.
    pub(crate) async fn prints<T>(&mut self, what: &str, find: impl Fn(&str) -> Option<T>) -> T {
        until(what, async || {
            let found = find(&self.said());
            if let (None, Some(status)) = (&found, self.ended()) {
                panic!("it ended ({status}) before {what}:\n{}", self.said());
            }
            found
        })
        .await
    }

    /// Sends it a signal. It is our child and not waited for, so the pid is its.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a pid");
        kill(Pid::from_raw(pid), signal).expect("a child can be signalled");
    }

    /// `kill -9`, and gone when this returns.
    pub(crate) fn kill_nine(&mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child can be waited for");
    }

    /// Waits for its end.
    pub(crate) async fn ends(&mut self) -> ExitStatus {
        until("the program's end", async || self.ended()).await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Ended already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
