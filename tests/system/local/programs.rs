//! The programs under test, and the processes they leave.

use std::path::Path;
use std::process::{Command, Output};

use crate::e2e::program;

/// The `runyard` program, in an environment without anything of ours or of AWS.
pub(crate) fn runyard() -> Command {
    let mut command = Command::new(program::runyard());
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("RUNYARD_AGENT", program::agent());
    command.env("RUNYARD_STAND_IN_PACKAGE", "unpaced");
    command
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Both streams, for a failed assertion.
pub(crate) fn said(output: &Output) -> String {
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// The processes of machines that live below a directory, by their command lines.
pub(crate) fn machines_in(dir: &Path) -> Vec<String> {
    let marked = |pid: &str| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
        let ours = environment.split(|byte| *byte == 0).any(|entry| entry.starts_with(b"RUNYARD_MACHINE="));
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        ours.then(|| text(&command).replace('\0', " "))
    };
    let pids = std::fs::read_dir("/proc").expect("this is Linux").flatten();
    let commands = pids.filter_map(|entry| marked(entry.file_name().to_str()?));
    let dir = dir.to_string_lossy().into_owned();
    commands.filter(|command| command.contains(&dir)).collect()
}
