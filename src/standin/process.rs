//! Finds the processes of a machine. Everything a machine starts inherits `RUNYARD_MACHINE=<id>` in its environment,
//! and a process is identified by its pid and start time together, so that a reused pid is never mistaken for ours. The
//! only source is Linux's `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::model::InstanceId;

/// The environment variable that marks a machine's processes.
pub const MARKER: &str = "RUNYARD_MACHINE";

/// How often a process that shows only a part of its environment is checked, 1 ms apart.
const EXECUTING: u32 = 1000;

/// One process of this boot of this host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Process {
    /// Its pid.
    pub pid: i32,
    /// When it was started, in clock ticks since boot (`/proc/<pid>/stat`, field 22).
    pub start: u64,
    /// The boot: ticks begin again after one.
    pub boot: String,
}

/// The contents of `/proc/<pid>/stat` about a process.
struct Stat {
    parent: i32,
    start: u64,
    dead: bool,
    /// Whether it has no memory of its own: a kernel process, or one that is ending.
    kernel: bool,
    /// The length of its environment in bytes, once it is laid out.
    environment: Option<usize>,
}

fn stat(pid: i32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the command in parentheses and may hold anything, parentheses too.
    let mut fields = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let start = fields.nth(17)?.parse().ok()?;
    let kernel = fields.next()? == "0";
    // Fields 26, 50 and 51 (proc(5)): where its code begins, which is filled in after the others, and where its
    // environment begins and ends.
    let code = fields.nth(2)?;
    let (begin, end): (usize, usize) = (fields.nth(23)?.parse().ok()?, fields.next()?.parse().ok()?);
    let environment = if code == "0" { None } else { end.checked_sub(begin) };
    Some(Stat { parent, start, dead: state == "Z" || state == "X", kernel, environment })
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

impl Process {
    /// Returns the process that has this pid now, even a zombie.
    pub fn of(pid: i32) -> Option<Self> {
        stat(pid).map(|stat| Self { pid, start: stat.start, boot: boot() })
    }

    /// Returns whether it still runs. A zombie does not.
    pub fn alive(&self) -> bool {
        stat(self.pid).is_some_and(|stat| !stat.dead && stat.start == self.start) && boot() == self.boot
    }

    /// Returns whether it runs and carries the machine's mark.
    pub fn belongs_to(&self, machine: &InstanceId) -> bool {
        self.alive() && carries(self.pid, &mark(machine))
    }

    /// Sends a signal, unless the pid belongs to another process by now.
    pub fn signal(&self, signal: Signal) {
        if self.alive() {
            // It may end meanwhile, which is the desired result; a process of another user is reported by its survival.
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }
}

fn mark(machine: &InstanceId) -> Vec<u8> {
    format!("{MARKER}={machine}").into_bytes()
}

/// Returns whether a process was given the mark, an entry of its environment. While it executes another program it
/// shows no environment, or a part of one: a missing mark counts only when all of its environment was seen.
pub(super) fn carries(pid: i32, mark: &[u8]) -> bool {
    for _ in 0..EXECUTING {
        let Ok(environment) = fs::read(format!("/proc/{pid}/environ")) else { return false };
        if environment.split(|byte| *byte == 0).any(|entry| entry == mark) {
            return true;
        }
        let Some(Stat { environment: whole, kernel: false, .. }) = stat(pid) else { return false };
        if whole == Some(environment.len()) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

/// Lists every living process of a machine: those that carry its mark, and their descendants, which may have dropped
/// it. Never this process.
///
/// # Assumptions
/// A process that both drops the mark and outlives its parents is not found. On a developer's host that is a daemon
/// that was hidden on purpose; on EC2 the machine ends with all its processes.
pub fn of_machine(machine: &InstanceId) -> Vec<Process> {
    let (boot, mark) = (boot(), mark(machine));
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let living: BTreeMap<i32, Stat> =
        pids.filter_map(|pid| Some((pid, stat(pid)?))).filter(|(_, stat)| !stat.dead).collect();
    let mut ours: BTreeSet<i32> = living.keys().copied().filter(|pid| carries(*pid, &mark)).collect();
    loop {
        let children = living.iter().filter(|(pid, stat)| ours.contains(&stat.parent) && !ours.contains(pid));
        let children: Vec<i32> = children.map(|(pid, _)| *pid).collect();
        if children.is_empty() {
            break;
        }
        ours.extend(children);
    }
    ours.remove(&i32::try_from(std::process::id()).unwrap_or(0));
    let process = |pid| living.get(&pid).map(|stat| Process { pid, start: stat.start, boot: boot.clone() });
    ours.into_iter().filter_map(process).collect()
}

/// Kills all processes of a machine, checking again until none is left: a process that is being killed may still fork.
/// Returns those that did not end in the given time.
pub async fn sweep(machine: &InstanceId, patience: Duration) -> Vec<Process> {
    let until = tokio::time::Instant::now() + patience;
    loop {
        let id = machine.clone();
        let left = tokio::task::spawn_blocking(move || {
            let left = of_machine(&id);
            left.iter().for_each(|process| process.signal(Signal::SIGKILL));
            left
        });
        let left = left.await.unwrap_or_default();
        if left.is_empty() || tokio::time::Instant::now() > until {
            return left;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn machine(id: &str) -> InstanceId {
        InstanceId::parse(&format!("i-{id}-{}", std::process::id())).unwrap()
    }

    fn spawn(script: &str, machine: &InstanceId) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env(MARKER, machine.as_str()).stdin(Stdio::null());
        command.spawn().unwrap()
    }

    fn pid(child: &Child) -> i32 {
        i32::try_from(child.id()).unwrap()
    }

    #[test]
    fn a_pid_with_another_start_time_is_somebody_else_and_is_never_signalled() {
        let id = machine("reuse");
        let mut child = spawn("exec sleep 60", &id);
        let real = Process::of(pid(&child)).unwrap();
        for impostor in [
            Process { start: real.start + 1, ..real.clone() },
            Process { boot: "another boot".into(), ..real.clone() },
        ] {
            assert!(!impostor.alive());
            impostor.signal(Signal::SIGKILL);
        }
        assert!(real.alive(), "the impostor's signal must not reach it");
        real.signal(Signal::SIGKILL);
        child.wait().unwrap();
        assert!(!real.alive());
    }

    #[test]
    fn a_zombie_does_not_run() {
        let mut child = spawn("exit 0", &machine("zombie"));
        let process = Process::of(pid(&child)).unwrap();
        let until = std::iter::repeat_with(|| std::thread::sleep(Duration::from_millis(5))).take(2000);
        assert!(until.into_iter().any(|()| !process.alive()), "it has exited and nobody has waited for it");
        child.wait().unwrap();
    }

    /// Between an old program and a new one there is a moment in which a process shows no environment at all. An
    /// operator that started again in such a moment took the process for a foreign one and ended its machine.
    #[test]
    fn a_process_carries_its_mark_through_the_execution_of_other_programs() {
        let id = machine("executing");
        let script = r#"test "$0" = 0 && exec sleep 60; exec sh -c "$SCRIPT" $(($0 - 1))"#;
        let mut command = Command::new("sh");
        command.args(["-c", script, "1500"]).env("SCRIPT", script).env(MARKER, id.as_str());
        let mut child = command.stdin(Stdio::null()).spawn().unwrap();
        let process = Process::of(pid(&child)).unwrap();
        let command = || fs::read_to_string(format!("/proc/{}/comm", process.pid)).unwrap();
        let mut looks = 0;
        while command().trim() != "sleep" {
            assert!(process.belongs_to(&id), "at look {looks}");
            looks += 1;
        }
        assert!(looks > 10, "it was seen at {looks} moments only");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_without_an_environment_and_one_of_the_kernel_carry_no_mark() {
        let id = machine("bare");
        let mut child = Command::new("sleep").arg("60").env_clear().spawn().unwrap();
        let process = Process::of(pid(&child)).unwrap();
        assert!(!process.belongs_to(&id));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!carries(2, &mark(&id)));
    }

    #[tokio::test]
    async fn a_sweep_ends_marked_processes_and_their_unmarked_children_and_nobody_else() {
        let (ours, theirs) = (machine("ours"), machine("theirs"));
        let mut parent = spawn("trap '' TERM; env -i sleep 60 & wait", &ours);
        let mut other = spawn("exec sleep 60", &theirs);
        let both = tokio::time::timeout(Duration::from_secs(600), async {
            while of_machine(&ours).len() < 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        both.await.expect("the shell starts its child");
        assert_eq!(sweep(&ours, Duration::from_secs(10)).await, []);
        parent.wait().unwrap();
        assert!(of_machine(&ours).is_empty());
        assert_eq!(of_machine(&theirs).len(), 1);
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
