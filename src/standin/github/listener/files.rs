//! The files of a configured runner: `.runner` and `.credentials` with the mode that the umask gives, its key for its
//! owner only, `_diag` for logs (actions/runner, `IOUtil.SaveObject`, `RSAFileKeyManager.cs`).

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::settings_file::RunnerConfig;
use super::super::shared_state::secret;

const RUNNER: &str = ".runner";
const CREDENTIALS: &str = ".credentials";
const KEY: &str = ".credentials_rsaparams";
const TEMPLATE: &str = "bin/systemd.svc.sh.template";
const SERVICE: &str = "svc.sh";
/// The folder of diagnostic logs.
pub(super) const DIAG: &str = "_diag";

/// The identity of this runner, with its secret.
pub(super) struct Identity {
    pub(super) config: RunnerConfig,
    pub(super) credential: String,
}

#[derive(Serialize, Deserialize)]
struct Credentials {
    credential: String,
}

impl Identity {
    /// Loads the stored identity; `None` when not configured.
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
            let ours = files.iter().filter(|(name, _)| [RUNNER, CREDENTIALS, KEY].contains(&name.as_str()));
            ours.into_iter().try_for_each(|(name, content)| fs::write(root.join(name), content))
        };
        store().map_err(unstored)?;
        Self::load(root)?.ok_or_else(broken)
    }

    /// Stores it, and the script with which systemd would run it.
    pub(super) fn store(&self, root: &Path) -> Result<(), String> {
        let store = || {
            let credentials = Credentials { credential: self.credential.clone() };
            fs::write(root.join(CREDENTIALS), serde_json::to_vec_pretty(&credentials)?)?;
            fs::write(root.join(RUNNER), self.config.file())
        };
        store().map_err(unstored)
    }

    /// Writes the script with which systemd would run it; without its template the runner is registered, and this is an
    /// error.
    pub(super) fn write_service(&self, root: &Path) -> Result<(), String> {
        let template = root.join(TEMPLATE);
        let text = fs::read_to_string(&template)
            .map_err(|_| format!("Could not find file '{}'.", template.display()))?;
        let text =
            text.replace("{{SvcNameVar}}", "actions.runner").replace("{{SvcDescription}}", &self.config.name);
        fs::write(root.join(SERVICE), text).map_err(unstored)?;
        chmod(root, "755", SERVICE);
        Ok(())
    }
}

/// Creates a key, where there is none yet: an existing one is used again.
pub(super) fn make_key(root: &Path) -> Result<(), String> {
    let path = root.join(KEY);
    if !path.exists() {
        fs::write(&path, format!("{{\"modulus\":\"{}\"}}", secret())).map_err(unstored)?;
        chmod(root, "600", KEY);
    }
    Ok(())
}

/// Changes a mode by running `chmod`, as the real one does; without that program the mode stays as it is.
fn chmod(root: &Path, mode: &str, file: &str) {
    let _ = std::process::Command::new("chmod").args([mode, file]).current_dir(root).status();
}

/// Removes the stored identity, and reports it.
pub(super) fn remove(root: &Path) -> Result<(), String> {
    for names in [&[CREDENTIALS, KEY][..], &[RUNNER]] {
        let mut found = false;
        for name in names {
            match fs::remove_file(root.join(name)) {
                Ok(()) => found = true,
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(format!("Cannot remove {name}: {e}")),
            }
        }
        if found {
            println!("\u{221a} Removed {}", names[0]);
        } else {
            println!("Does not exist. Skipping Removing {}", names[0]);
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
