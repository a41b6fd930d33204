//! The programs under test, and the processes they leave.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The `runyard` program, in an environment without anything of ours or of AWS.
pub(crate) fn runyard() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_runyard"));
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("RUNYARD_AGENT", agent());
    command
}

/// The agent, which this package's tests do not build by themselves.
fn agent() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let beside = Path::new(env!("CARGO_BIN_EXE_runyard")).with_file_name("runyard-agent");
        let profile = beside.parent().expect("a program is in a directory");
        let target = profile.parent().expect("a profile is in the target directory");
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--locked", "--package", "runyard-agent", "--target-dir"]).arg(target);
        build.args(profile.ends_with("release").then_some("--release"));
        let built = build.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo can be run");
        assert!(built.status.success(), "the agent is not built: {}", text(&built.stderr));
        beside
    })
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
