//! Files of the agent. A file that must survive a crash is written whole or not at all and is readable by its owner
//! only. A file that the agent must not trust is opened without following links or waiting for pipes.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Creates a directory that only its owner may enter, and its parents.
///
/// # Errors
/// A system call fails; the error contains the path.
pub fn private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| at(path, &e))?;
    // An existing directory may have been open to everybody.
    fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(|e| at(path, &e))
}

/// Replaces a file in one step; it is on the disk when this returns.
///
/// # Errors
/// A system call fails; the error contains the path. The old content then remains.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let next = path.with_extension("next");
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&next)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&next, path)?;
        path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
    };
    write().map_err(|e| at(path, &e))
}

/// Replaces a file with a value as JSON.
///
/// # Errors
/// The same as [`replace`].
pub fn save<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    replace(path, &serde_json::to_vec(value).map_err(|e| at(path, &e.into()))?)
}

/// Reads a value; `None` if there is no file.
///
/// # Errors
/// The file cannot be read, or contains something else.
pub fn load<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match read(path)? {
        Some(content) => serde_json::from_slice(&content).map(Some).map_err(|e| at(path, &e.into())),
        None => Ok(None),
    }
}

/// Reads a file; `None` if there is none.
///
/// # Errors
/// The file exists and cannot be read.
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at(path, &error)),
    }
}

/// Creates an empty file that only its owner may open. An existing file of that name is unlinked and not written to: it
/// may be a link, and a process that has it open has no access to the new one.
///
/// # Errors
/// A system call fails; the error contains the path.
pub fn create_anew(path: &Path) -> io::Result<File> {
    let make = || {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
    };
    make().map_err(|e| at(path, &e))
}

/// Opens a directory that others may have created, without following a link.
///
/// # Errors
/// A system call fails; the error contains the path.
pub fn open_dir(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(flags.bits()).open(path).map_err(|e| at(path, &e))
}

/// Opens a file in a directory for reading, where others may have created it. A link, a pipe or a device is refused,
/// and the call does not wait for a process that holds the other end or a lease.
///
/// # Errors
/// A system call fails, or it is not a plain file; the error contains the path.
pub fn open_plain(dir: impl AsFd, path: &Path) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = File::from(openat(dir, path, flags, Mode::empty()).map_err(|e| at(path, &e.into()))?);
    if file.metadata().map_err(|e| at(path, &e))?.is_file() {
        return Ok(file);
    }
    Err(io::Error::other(format!("{}: not a plain file", path.display())))
}

/// Adds the path to an error.
pub fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        assert_eq!(load::<Vec<u8>>(&path).unwrap(), None);
        save(&path, &vec![1, 2, 3]).unwrap();
        save(&path, &vec![4]).unwrap();
        assert_eq!(load::<Vec<u8>>(&path).unwrap(), Some(vec![4]));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_directory_that_was_open_to_everybody_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        private_dir(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_file_made_anew_is_private_and_what_its_name_led_to_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (path, outside) = (dir.path().join("log"), dir.path().join("outside"));
        fs::write(&outside, "kept").unwrap();
        std::os::unix::fs::symlink(&outside, &path).unwrap();
        for round in ["a link", "a file", "a pipe"] {
            create_anew(&path).unwrap().write_all(b"new").unwrap();
            assert_eq!(fs::read_to_string(&outside).unwrap(), "kept", "{round}");
            let metadata = path.symlink_metadata().unwrap();
            assert!(metadata.is_file() && metadata.permissions().mode() & 0o777 == 0o600, "{round}");
            if round == "a file" {
                fs::remove_file(&path).unwrap();
                nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
            }
        }
    }

    #[test]
    fn only_a_plain_file_opens_plainly_and_nothing_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let names = ["file", "link", "pipe", "dir"].map(|name| dir.path().join(name));
        fs::write(&names[0], "x").unwrap();
        std::os::unix::fs::symlink(&names[0], &names[1]).unwrap();
        nix::unistd::mkfifo(&names[2], Mode::S_IRWXU).unwrap();
        fs::create_dir(&names[3]).unwrap();
        let opens = names.each_ref().map(|path| open_plain(nix::fcntl::AT_FDCWD, path).is_ok());
        assert_eq!(opens, [true, false, false, false]);
        std::os::unix::fs::symlink(&names[3], dir.path().join("to-dir")).unwrap();
        assert!(open_dir(&names[3]).is_ok() && open_dir(&dir.path().join("to-dir")).is_err());
    }

    #[test]
    fn a_file_that_holds_something_else_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        fs::write(&path, "{").unwrap();
        assert!(load::<u8>(&path).unwrap_err().to_string().contains("state"));
    }
}
