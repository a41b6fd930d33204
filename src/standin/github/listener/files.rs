//! The files of a configured runner: `.runner` for everybody, `.credentials` for its owner only, `_diag` for logs.

use std::fs;
use std::io;
use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

use super::super::files::replace;
use super::super::http::wire::RunnerConfig;

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

/// What a single-use configuration carries.
#[derive(Deserialize)]
struct SingleUse {
    runner: RunnerConfig,
    credential: String,
}

impl Identity {
    /// The stored identity; `None` when not configured.
    pub(super) fn load(root: &Path) -> Result<Option<Self>, String> {
        let Some(config) = read(&root.join(RUNNER))? else { return Ok(None) };
        let Some(credentials) = read::<Credentials>(&root.join(CREDENTIALS))? else { return Ok(None) };
        Ok(Some(Self { config, credential: credentials.credential }))
    }

    /// The identity inside a single-use configuration.
    pub(super) fn decode(jitconfig: &str) -> Result<Self, String> {
        let broken = "The jitconfig cannot be read: it is not what generate-jitconfig gave";
        let text = BASE64_STANDARD.decode(jitconfig.trim()).map_err(|_| broken)?;
        let SingleUse { runner, credential } = serde_json::from_slice(&text).map_err(|_| broken)?;
        Ok(Self { config: runner, credential })
    }

    pub(super) fn store(&self, root: &Path) -> Result<(), String> {
        let store = || {
            fs::create_dir_all(root.join(DIAG))?;
            let credentials = Credentials { credential: self.credential.clone() };
            replace(&root.join(CREDENTIALS), &serde_json::to_vec_pretty(&credentials)?)?;
            replace(&root.join(RUNNER), &serde_json::to_vec_pretty(&self.config)?)
        };
        store().map_err(|e: io::Error| format!("Cannot store the configuration: {e}"))
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

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, String> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(format!("{}: {e}", path.display())),
    };
    let problem = |_| format!("{} cannot be read: configure the runner again", path.display());
    serde_json::from_slice(&text).map(Some).map_err(problem)
}
