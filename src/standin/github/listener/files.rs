//! The files of a configured runner: `.runner` for everybody, `.credentials` for its owner only, `_diag` for logs.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::files::replace;
use super::super::settings_file::RunnerConfig;

const RUNNER: &str = ".runner";
const CREDENTIALS: &str = ".credentials";
/// The folder of diagnostic logs.
pub(super) const DIAG: &str = "_diag";

/// Who this runner is, with its secret.
pub(super) struct Identity {
    pub(super) config: RunnerConfig,
    pub(super) credential: String,
}

#[derive(Serialize, Deserialize)]
struct Credentials {
    credential: String,
}

impl Identity {
    /// The stored identity; `None` when not configured.
    pub(super) fn load(root: &Path) -> Result<Option<Self>, String> {
        let Some(config) = read(&root.join(RUNNER), RunnerConfig::read)? else { return Ok(None) };
        let Some(credential) = read(&root.join(CREDENTIALS), credential)? else { return Ok(None) };
        Ok(Some(Self { config, credential }))
    }

    /// Stores the files of a single-use configuration as they are, and reads them.
    pub(super) fn unpack(root: &Path, jitconfig: &str) -> Result<Self, String> {
        let broken = || "The jitconfig cannot be read: it is not what generate-jitconfig gave".to_owned();
        let files = RunnerConfig::files(jitconfig).ok_or_else(broken)?;
        let store = || {
            fs::create_dir_all(root.join(DIAG))?;
            let ours = files.iter().filter(|(name, _)| [RUNNER, CREDENTIALS].contains(&name.as_str()));
            ours.into_iter().try_for_each(|(name, content)| replace(&root.join(name), content))
        };
        store().map_err(unstored)?;
        Self::load(root)?.ok_or_else(broken)
    }

    pub(super) fn store(&self, root: &Path) -> Result<(), String> {
        let store = || {
            fs::create_dir_all(root.join(DIAG))?;
            let credentials = Credentials { credential: self.credential.clone() };
            replace(&root.join(CREDENTIALS), &serde_json::to_vec_pretty(&credentials)?)?;
            replace(&root.join(RUNNER), self.config.file().as_bytes())
        };
        store().map_err(unstored)
    }
}

/// Forgets the stored identity.
pub(super) fn remove(root: &Path) -> Result<(), String> {
    for name in [RUNNER, CREDENTIALS] {
        match fs::remove_file(root.join(name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(format!("Cannot remove {name}: {e}"));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "the shape map_err wants")]
fn unstored(error: io::Error) -> String {
    format!("Cannot store the configuration: {error}")
}

fn credential(text: &str) -> Option<String> {
    serde_json::from_str(text).ok().map(|credentials: Credentials| credentials.credential)
}

fn read<T>(path: &Path, parse: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, String> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(format!("{}: {e}", path.display())),
    };
    let problem = || format!("{} cannot be read: configure the runner again", path.display());
    parse(&text).map(Some).ok_or_else(problem)
}
