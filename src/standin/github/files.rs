//! The stand-in's files: its state, its token and its port. Each is replaced atomically and readable by its owner only,
//! because the state holds runners' credentials.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::state::State;

const STATE: &str = "github.json";
const TOKEN: &str = "github-token";
const PORT: &str = "github-port";

/// Creates the directory, for its owner only, if it is missing.
pub(super) fn prepare(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Loads the stored state; `None` if there is none yet. An unreadable one is an error: overwriting it would lose
/// runners.
pub(super) fn load(dir: &Path) -> io::Result<Option<State>> {
    let path = dir.join(STATE);
    let Some(text) = read(&path)? else { return Ok(None) };
    let state = serde_json::from_str(&text).map_err(|e| {
        let text = format!("{}: {e}; mend or remove it to start with an empty GitHub", path.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    })?;
    Ok(Some(state))
}

/// Stores the state.
pub(super) fn save(dir: &Path, state: &State) -> io::Result<()> {
    replace(&dir.join(STATE), &serde_json::to_vec(state)?)
}

/// Returns the path of the token.
pub(super) fn token_path(dir: &Path) -> PathBuf {
    dir.join(TOKEN)
}

/// Returns the stored token, or stores `fresh`.
pub(super) fn token(dir: &Path, fresh: String) -> io::Result<String> {
    let path = token_path(dir);
    match read(&path)?.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()) {
        Some(token) => Ok(token),
        None => replace(&path, fresh.as_bytes()).map(|()| fresh),
    }
}

/// Returns the port that was last served on.
pub(super) fn last_port(dir: &Path) -> Option<u16> {
    read(&dir.join(PORT)).ok()??.trim().parse().ok()
}

/// Remembers the port.
pub(super) fn save_port(dir: &Path, port: u16) -> io::Result<()> {
    replace(&dir.join(PORT), port.to_string().as_bytes())
}

fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(io::Error::new(e.kind(), format!("{}: {e}", path.display()))),
    }
}

/// Writes a new file and renames it over the old one, so that a crash leaves the old content or the new, never a part.
pub(super) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let write = || {
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(content)?;
        fs::rename(&beside, path)
    };
    write().map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
}
