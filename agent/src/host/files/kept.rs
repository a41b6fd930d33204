//! Keeps the registration of a runner: a few small files. They are copied out of the reach of jobs as soon as they
//! exist, and into an untouched package when the runner is deregistered.

use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde_json::{Map, Value};

use crate::system::disk;

/// Names of the registration files (actions/runner, `ConfigurationStore.cs`).
const FILES: [&str; 5] =
    [REGISTERED, ".runner_migrated", ".credentials", ".credentials_migrated", ".credentials_rsaparams"];
/// The file that marks a runner as registered.
pub(crate) const REGISTERED: &str = ".runner";
/// Maximum size: registration files are small, and a larger file of that name is not one.
const BYTES: u64 = 1024 * 1024;
/// Marker file beside a copy that must not be replaced.
const SETTLED: &str = "settled";

/// Copies the registration files that exist. A job may have written to the first directory and may still be changing
/// it; it cannot reach the second one.
///
/// # Errors
/// A file cannot be written; or a file cannot be read or is not a plain file of its owner, a link for example, and then
/// none is copied.
pub(crate) fn copy(from: &Path, owner: u32, to: &Path) -> io::Result<()> {
    let (dir, mut found) = (disk::open_dir(from)?, Vec::new());
    for name in FILES.map(Path::new) {
        let file = match disk::open_plain(&dir, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file?,
        };
        let (metadata, mut content) = (file.metadata()?, Vec::new());
        if metadata.uid() != owner || metadata.len() > BYTES {
            return Err(io::Error::other(format!("{}: not what a runner keeps", name.display())));
        }
        file.take(BYTES).read_to_end(&mut content)?;
        found.push((to.join(name), content));
    }
    for (path, content) in found {
        disk::create_anew(&path)?.write_all(&content).map_err(|e| disk::at(&path, &e))?;
    }
    Ok(())
}

/// Marks a copy as made before any job ran, so that it is not replaced: jobs change what they can reach, and the
/// removal token is sent to the GitHub address in the registration.
///
/// # Errors
/// The marker cannot be written.
pub(crate) fn settle(copy: &Path) -> io::Result<()> {
    disk::create_anew(&copy.join(SETTLED)).map(drop)
}

/// Reads GitHub's id of the registered runner. The file is written by .NET: it may begin with a byte order mark, and in
/// a single-use configuration the id is a string and the names are in another case.
pub(crate) fn runner_id(copy: &Path) -> Option<u64> {
    let mut text = String::new();
    let file = disk::open_plain(&disk::open_dir(copy).ok()?, Path::new(REGISTERED)).ok()?;
    file.take(BYTES).read_to_string(&mut text).ok()?;
    let all: Map<String, Value> = serde_json::from_str(text.trim_start_matches('\u{feff}')).ok()?;
    let id = all.iter().find(|(name, _)| name.eq_ignore_ascii_case("agentId"))?.1;
    id.as_u64().or_else(|| id.as_str()?.parse().ok())
}

/// Returns whether a copy was marked by [`settle`].
pub(crate) fn is_settled(copy: &Path) -> bool {
    copy.join(SETTLED).symlink_metadata().is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode;

    use super::*;

    #[test]
    fn the_number_of_a_runner_is_read_from_either_form_of_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            fs::write(dir.path().join(REGISTERED), text).unwrap();
            runner_id(dir.path())
        };
        assert_eq!(runner_id(dir.path()), None);
        assert_eq!(read("\u{feff}{\"agentId\": 17, \"agentName\": \"r\"}"), Some(17));
        assert_eq!(read("{\"AgentId\":\"18\",\"Ephemeral\":\"True\"}"), Some(18));
        for other in ["registered", "{}", "{\"agentId\": -1}", "{\"agentId\": \"x\"}", "[17]"] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    fn owner() -> u32 {
        nix::unistd::geteuid().as_raw()
    }

    #[test]
    fn what_a_runner_keeps_is_copied_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("runner"), dir.path().join("kept"));
        fs::create_dir(&from).unwrap();
        fs::create_dir(&to).unwrap();
        for name in [".runner", ".credentials", ".credentials_of_a_job", "run.sh"] {
            fs::write(from.join(name), name).unwrap();
        }
        fs::write(to.join(".credentials"), "of an earlier runner").unwrap();
        copy(&from, owner(), &to).unwrap();
        assert_eq!(fs::read_to_string(to.join(".credentials")).unwrap(), ".credentials");
        assert_eq!(fs::read_dir(&to).unwrap().count(), 2);
        assert!(!is_settled(&to));
        settle(&to).unwrap();
        assert!(is_settled(&to));
    }

    /// Each of these would otherwise show root's files to a job, or block the agent.
    #[test]
    fn what_leads_elsewhere_is_anothers_or_never_ends_is_not_copied() {
        let dir = tempfile::tempdir().unwrap();
        let secret = dir.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        let refuses = |plant: &dyn Fn(&Path), owner: u32| {
            let (from, to) = (dir.path().join("runner"), dir.path().join("kept"));
            fs::create_dir(&from).unwrap();
            fs::create_dir(&to).unwrap();
            fs::write(from.join(REGISTERED), "x").unwrap();
            plant(&from);
            copy(&from, owner, &to).unwrap_err();
            assert_eq!(fs::read_dir(&to).unwrap().count(), 0);
            fs::remove_dir(to).unwrap();
            fs::remove_dir_all(&from).or_else(|_| fs::remove_file(&from)).unwrap();
        };
        let file = |from: &Path| from.join(".credentials");
        refuses(&|from| symlink(&secret, file(from)).unwrap(), owner());
        refuses(&|from| nix::unistd::mkfifo(&file(from), Mode::S_IRWXU).unwrap(), owner());
        refuses(&|from| fs::write(file(from), "x").unwrap(), owner() + 1);
        refuses(&|from| fs::write(file(from), vec![b'x'; 1024 * 1024 + 1]).unwrap(), owner());
        refuses(
            &|from| {
                fs::remove_dir_all(from).unwrap();
                let elsewhere = dir.path().join("elsewhere");
                fs::create_dir(&elsewhere).unwrap();
                fs::write(elsewhere.join(".runner"), "x").unwrap();
                symlink(elsewhere, from).unwrap();
            },
            owner(),
        );
    }
}
