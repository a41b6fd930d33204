//! Runs a short command as the job user, for work that only this user can do or see. The command is the agent's own
//! program with another verb.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::time::Instant;

use crate::host::Account;

/// The search path for programs.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Time limit for such a program.
const LIMIT: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(5);
/// The maximum size of its output, in bytes.
const SAID: u64 = 64 * 1024;

/// Runs the agent's program as another user and returns its output.
///
/// # Errors
/// It fails, or does not end in time: a file system that does not respond would block it for ever.
pub(crate) fn as_user(program: &Path, account: &Account, words: &[OsString]) -> io::Result<String> {
    let word = words.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    let failed = |why: String| io::Error::other(format!("{} as {}: {why}", word, account.name));
    let mut child = Command::new(program)
        .args(words)
        .env_clear()
        .env("PATH", PATH)
        .current_dir("/")
        .uid(account.uid)
        .gid(account.gid)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| failed(format!("{}: {e}", program.display())))?;
    let until = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() >= until {
            let _ = child.kill();
            return Err(failed(format!("it did not end within {LIMIT:?}")));
        }
        std::thread::sleep(LOOK);
    };
    let read = |pipe: Option<&mut dyn Read>| {
        let mut text = String::new();
        pipe.map(|pipe| pipe.take(SAID).read_to_string(&mut text));
        text
    };
    let said = read(child.stdout.as_mut().map(|pipe| pipe as &mut dyn Read));
    if status.success() {
        return Ok(said);
    }
    let complaint = read(child.stderr.as_mut().map(|pipe| pipe as &mut dyn Read));
    Err(failed(format!("{status}: {}", complaint.trim())))
}
