//! A directory that `runyard up` serves, in a test's hands: started, killed, started again, asked, and at the end
//! looked through for whatever is left.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use runyard_core::model::InstanceId;
use runyard_standin::process;
use runyard_standin::process::{MARKER, Process};
use runyard_store::DynamoStore;

use crate::e2e::history;
use crate::e2e::program::{Ended, Environment, Running, environment, runyard, verb};
use crate::e2e::standin::GitHub;

/// A data directory with the process that serves it.
pub(crate) struct Home {
    scratch: tempfile::TempDir,
    settings: Environment,
    up: Option<Running>,
    starts: u32,
}

/// What a client of a served directory needs; the same before and after a restart.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) environment: Environment,
    pub(crate) endpoint: String,
    pub(crate) store: DynamoStore,
    pub(crate) github: GitHub,
}

impl Home {
    /// A fresh directory; nothing serves it yet.
    pub(crate) fn new(settings: &[(&str, &str)]) -> Self {
        let scratch = tempfile::tempdir().expect("a place for files");
        let settings = environment(settings.iter().copied());
        Self { scratch, settings, up: None, starts: 0 }
    }

    /// The data directory.
    pub(crate) fn dir(&self) -> PathBuf {
        self.scratch.path().join("yard")
    }

    /// The stand-in GitHub's part of it, closed to others, before it is served.
    pub(crate) fn github_dir(&self) -> PathBuf {
        let dir = self.dir().join("github");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).expect("a directory");
        dir
    }

    /// A file of the test's own beside it.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Starts `runyard up` and waits until it says that it is up.
    pub(crate) async fn up(&mut self) {
        self.starts += 1;
        let log = self.beside(&format!("up-{}.log", self.starts));
        let up = self.up.insert(start(&self.settings, &self.dir(), log));
        up.prints("Runyard is up", |said| said.contains("Runyard is up").then_some(())).await;
    }

    /// A second `runyard up` on the directory, to its end.
    pub(crate) async fn up_again(&self) -> Ended {
        verb(&self.settings, &["up", "--dir", self.dir().to_str().expect("UTF-8")]).await
    }

    /// The process that serves it.
    pub(crate) fn serving(&mut self) -> &mut Running {
        self.up.as_mut().expect("it is up")
    }

    /// What it takes to talk to it.
    pub(crate) fn client(&self) -> Client {
        let (client, store) = self.table();
        let endpoint = client["AWS_ENDPOINT_URL"].clone();
        Client { environment: client, endpoint, store, github: GitHub::of(&self.dir()) }
    }

    /// What it takes to talk to its table, whoever plays GitHub.
    pub(crate) fn table(&self) -> (Environment, DynamoStore) {
        let client = self.exported().expect("`up` writes the file `env`");
        let endpoint = client["AWS_ENDPOINT_URL"].clone();
        let store = history::store_as(&client["AWS_ACCESS_KEY_ID"], &endpoint);
        (client, store)
    }

    /// The environment of its file `env`, once there is one.
    fn exported(&self) -> Option<Environment> {
        let text = fs::read_to_string(self.dir().join("env")).ok()?;
        let exported = text.lines().filter_map(|line| line.strip_prefix("export ")?.split_once('='));
        let mut client = environment([]);
        client.extend(exported.map(|(name, value)| (name.to_owned(), value.to_owned())));
        Some(client)
    }

    /// Every machine that the directory ever had.
    pub(crate) fn machines(&self) -> Vec<InstanceId> {
        let entries = fs::read_dir(self.dir().join("machines")).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.starts_with("i-")).filter_map(|name| InstanceId::parse(&name).ok()).collect()
    }

    /// A machine's agent, if it lives.
    pub(crate) fn agent(&self, machine: &InstanceId) -> Option<Process> {
        let file = self.dir().join("machines").join(machine.as_str()).join("agent.pid");
        let process: Process = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
        process.belongs_to(machine).then_some(process)
    }

    /// What the machines of this directory, or anything named after it, still run; the serving process aside.
    pub(crate) fn processes(&self) -> Vec<String> {
        let machines: BTreeSet<String> = self.machines().iter().map(ToString::to_string).collect();
        let serving = self.up.as_ref().map(Running::pid);
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let others = pids.filter(|pid| *pid != std::process::id() && Some(*pid) != serving);
        others.filter_map(|pid| leftover(pid, &machines, &self.dir())).collect()
    }

    /// What it printed last, and what its table says, for whoever reads a failure.
    fn last_words(&self) -> String {
        let text = self.up.as_ref().map(Running::said).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let mut words = vec![lines[lines.len().saturating_sub(40)..].join("\n")];
        let client = self.exported();
        for verb in [&["get", "all", "--all"][..], &["events"]] {
            let Some(client) = &client else { continue };
            let mut asked = Command::new("timeout");
            asked.arg("20").arg(runyard()).args(verb).env_clear().envs(client).stdin(Stdio::null());
            let Ok(answer) = asked.output() else { continue };
            let [said, refused] =
                [answer.stdout, answer.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
            words.push(format!("`runyard {}`:\n{said}{refused}", verb.join(" ")));
        }
        words.join("\n")
    }
}

fn start(settings: &Environment, dir: &Path, log: PathBuf) -> Running {
    Running::start(settings, &["up", "--dir", dir.to_str().expect("UTF-8")], log)
}

/// A process that carries a machine's mark, or the directory in its arguments.
fn leftover(pid: u32, machines: &BTreeSet<String>, dir: &Path) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mut entries =
        environment.split(|byte| *byte == 0).filter_map(|entry| std::str::from_utf8(entry).ok());
    let mark = entries.find_map(|entry| entry.strip_prefix(MARKER)?.strip_prefix('='));
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    let ours = mark.is_some_and(|mark| machines.contains(mark)) || command.contains(dir.to_str()?);
    // A zombie has neither.
    ours.then(|| format!("{pid} of {}: {command}", mark.unwrap_or("no machine")))
}

impl Client {
    /// Runs a verb to its end.
    pub(crate) async fn verb(&self, arguments: &[&str]) -> Ended {
        verb(&self.environment, arguments).await
    }

    /// Runs a verb to its end, which must come with this code.
    pub(crate) async fn runs(&self, arguments: &[&str], code: i32) -> Ended {
        let ended = self.verb(arguments).await;
        let line = arguments.join(" ");
        assert_eq!(ended.code, Some(code), "`runyard {line}`\n{}\n{}", ended.stdout, ended.stderr);
        ended
    }
}

impl Drop for Home {
    /// A test that fails says what its yard said last, and leaves nothing running either.
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the last words of a yard:\n{}", self.last_words());
        }
        drop(self.up.take());
        let end = std::time::Duration::from_secs(10);
        for machine in self.machines() {
            let deadline = tokio::time::Instant::now() + end;
            loop {
                let living = process::of_machine(&machine);
                if living.is_empty() || tokio::time::Instant::now() > deadline {
                    break;
                }
                living.iter().for_each(|process| process.signal(nix::sys::signal::Signal::SIGKILL));
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}
