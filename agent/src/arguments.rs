//! Parses the command line.

use std::ffi::OsString;
use std::path::PathBuf;

use runyard_agent::host;
use runyard_agent::task::Holder;

/// The help text.
pub(crate) const USAGE: &str = "runyard-agent --config FILE
Runs on a machine of a Runyard and keeps its runner. AWS is reached as the AWS_* environment says; RUST_LOG sets what is logged.

On machines, not for people:
  install --config FILE  first boot: makes the job user, writes the systemd units, starts them
  wall                   lets nobody but root reach the instance metadata service
  fuse --config FILE     powers the machine off if its deadline is over and the agent did not
  empty-keyrings         as the job user: removes what it left in the kernel's keyrings
  reach PATH...          as the job user: says below which of these it can write
  job-started RUN REPOSITORY PIPE  as the runner's hook: refuses a job of another run or repository, and says so to the pipe; reports a slot's job beside it
  probe PID metadata=URL... machine=PORT secret=PATH... fixed=PATH...  where jobs run: says what they reach; exit 1 if anything
  job-init STAGE JAIL PROGRAM...  as root: runs a program where jobs run";

/// The requested command.
pub(crate) enum Command {
    Agent(PathBuf),
    Install(PathBuf),
    Watchdog(PathBuf),
    ImdsFirewall,
    IsolationCheck(Vec<String>),
    Jail(Vec<OsString>),
    EmptyKeyrings,
    Reach(Vec<PathBuf>),
    JobStarted(Holder, PathBuf),
    Printed,
}

/// Returns the requested command.
///
/// # Errors
/// A message about the arguments.
pub(crate) fn arguments() -> Result<Command, String> {
    const CONFIG: &str = "--config: missing (give the path of a TOML file)";
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next().ok_or(CONFIG)?;
    let word = first.to_string_lossy().into_owned();
    let asked = match word.as_str() {
        "--help" | "-h" => {
            println!("{USAGE}");
            return Ok(Command::Printed);
        }
        "--version" | "-V" => {
            println!("runyard-agent {}", env!("CARGO_PKG_VERSION"));
            return Ok(Command::Printed);
        }
        "probe" => {
            return Ok(Command::IsolationCheck(
                arguments.map(|word| word.to_string_lossy().into_owned()).collect(),
            ));
        }
        host::JAIL => return Ok(Command::Jail(arguments.collect())),
        "wall" => Command::ImdsFirewall,
        "empty-keyrings" => Command::EmptyKeyrings,
        "reach" => return Ok(Command::Reach(arguments.map(PathBuf::from).collect())),
        "job-started" => {
            let mut word =
                |what: &str| arguments.next().ok_or_else(|| format!("job-started: {what}: missing"));
            let text = |word: std::ffi::OsString| word.to_string_lossy().into_owned();
            let holder = Holder {
                run: text(word("RUN")?),
                repository: text(word("REPOSITORY")?),
                ..Holder::default()
            };
            Command::JobStarted(holder, word("PIPE")?.into())
        }
        "--config" => Command::Agent(arguments.next().ok_or(CONFIG)?.into()),
        "install" | "fuse" => {
            let path = arguments.next().filter(|flag| flag == "--config").and_then(|_| arguments.next());
            let path = path.ok_or(CONFIG)?.into();
            if word == "fuse" { Command::Watchdog(path) } else { Command::Install(path) }
        }
        other => return Err(format!("{other}: not an option of the agent")),
    };
    match arguments.next() {
        None => Ok(asked),
        Some(more) => Err(format!("{}: one argument too many", more.display())),
    }
}
