//! How does a machine become one of a yard? Once, at first boot, root calls the agent to make the user jobs run as, to
//! put the units in their place and to start them; and before each start of the agent, to shut the metadata service to
//! everybody else. The units are part of this program, so that user data stays short.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::disk;

/// Where systemd looks for units of this machine's owner.
const UNITS: &str = "etc/systemd/system";
/// What is put there.
const FILES: [(&str, &str); 3] = [
    ("runyard-agent.service", include_str!("../../config/systemd/runyard-agent.service")),
    ("runyard-fuse.service", include_str!("../../config/systemd/runyard-fuse.service")),
    ("runyard-fuse.timer", include_str!("../../config/systemd/runyard-fuse.timer")),
];
/// Who may reach the metadata service.
const RULES: &str = include_str!("../../config/systemd/metadata.nft");

/// Makes the job user, writes the units, and starts them: the fuse first.
///
/// # Errors
/// What did not succeed; the machine is then of no use.
pub fn install(job_user: Option<&str>) -> anyhow::Result<()> {
    if let Some(name) = job_user
        && nix::unistd::User::from_name(name).context("job_user")?.is_none()
    {
        call("useradd", &["--create-home", "--shell", "/bin/bash", name], None)?;
    }
    write_units(Path::new("/"))?;
    call("systemctl", &["daemon-reload"], None)?;
    call("systemctl", &["enable", "--now", "runyard-fuse.timer"], None)?;
    call("systemctl", &["enable", "--now", "--no-block", "runyard-agent.service"], None)
}

/// Writes the units below a root.
fn write_units(root: &Path) -> anyhow::Result<()> {
    let units = root.join(UNITS);
    fs::create_dir_all(&units).map_err(|e| disk::at(&units, &e))?;
    for (name, text) in FILES {
        let path = units.join(name);
        fs::write(&path, text).map_err(|e| disk::at(&path, &e))?;
    }
    Ok(())
}

/// Shuts the metadata service to everybody but root, by whichever of the two ways this machine knows.
///
/// # Errors
/// Neither works.
pub fn wall() -> anyhow::Result<()> {
    let Err(nft) = call("nft", &["-f", "-"], Some(RULES)) else { return Ok(()) };
    let rule = "OUTPUT -d 169.254.169.254 -m owner ! --uid-owner 0 -j REJECT";
    let with = |verb: &str| {
        let words: Vec<&str> = [verb].into_iter().chain(rule.split(' ')).collect();
        call("iptables", &words, None)
    };
    if with("-C").is_ok() {
        return Ok(());
    }
    with("-I").with_context(|| format!("{nft:#}: jobs could take this machine's role"))
}

fn call(program: &str, arguments: &[&str], input: Option<&str>) -> anyhow::Result<()> {
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    let mut child =
        Command::new(program).args(arguments).stdin(stdin).spawn().with_context(|| program.to_owned())?;
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
        stdin.write_all(text.as_bytes()).with_context(|| program.to_owned())?;
    }
    let status = child.wait().with_context(|| program.to_owned())?;
    if !status.success() {
        bail!("{program} {} ended with {status}", arguments.join(" "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_units_are_written_whole_and_call_this_program_by_words_it_knows() {
        let root = tempfile::tempdir().unwrap();
        write_units(root.path()).unwrap();
        write_units(root.path()).unwrap();
        let read = |name: &str| fs::read_to_string(root.path().join(UNITS).join(name)).unwrap();
        let (agent, fuse, timer) =
            (read("runyard-agent.service"), read("runyard-fuse.service"), read("runyard-fuse.timer"));
        assert!(agent.contains("Type=notify") && agent.contains("WatchdogSec="));
        assert!(agent.contains("runyard-agent wall") && fuse.contains("runyard-agent fuse --config"));
        assert!(agent.contains("Delegate=yes"), "jobs have a control group of their own");
        assert!(timer.contains("OnBootSec=") && !timer.contains("OnCalendar="), "monotonic time only");
        assert!(fuse.contains("FailureAction=poweroff-force"));
    }
}
