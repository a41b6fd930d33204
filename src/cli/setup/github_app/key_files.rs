//! The files for an App's private key: new files that only their owner can read, opened before the key exists, so that
//! a created key can be stored.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use crate::common::failure::{CliFailure, CliResult};
use runyard_core::model::FieldError;

/// The entry of the key in the chart's Secret.
const ENTRY: &str = "private-key.pem";

/// Files opened for the key; unused ones are removed.
#[derive(Debug)]
pub(super) struct KeyFiles {
    plain: Option<Waiting>,
    manifest: Option<Waiting>,
    namespace: String,
    secret_name: String,
}

#[derive(Debug)]
struct Waiting {
    path: PathBuf,
    file: File,
    filled: bool,
}

impl Waiting {
    fn create(path: PathBuf, field: &str) -> CliResult<Self> {
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        match opened {
            Ok(file) => Ok(Self { path, file, filled: false }),
            Err(error) => {
                let fix = "name a file that does not exist in a directory that you may write to";
                Err(CliFailure::usage(FieldError::new(
                    field,
                    path.display().to_string(),
                    error.to_string(),
                    fix,
                )))
            }
        }
    }

    fn fill(&mut self, content: &str) -> CliResult<String> {
        let written = self.file.write_all(content.as_bytes()).and_then(|()| self.file.sync_all());
        written.map_err(|error| {
            let fix = "make a new key on the App's page; this one is lost";
            CliFailure::error("key", self.path.display().to_string(), error.to_string(), fix)
        })?;
        self.filled = true;
        Ok(self.path.display().to_string())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.filled {
            // Nothing was written to it; a file that cannot be removed is empty.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl KeyFiles {
    /// Creates the files.
    pub(super) fn create(
        plain: Option<PathBuf>,
        manifest: Option<PathBuf>,
        namespace: &str,
        secret_name: &str,
    ) -> CliResult<Self> {
        for (field, name) in [("--namespace", namespace), ("--secret-name", secret_name)] {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
            if name.is_empty() || name.len() > 63 || !name.chars().all(plain) {
                let fix = "use small letters, digits, - and .";
                return Err(CliFailure::usage(FieldError::new(
                    field,
                    name,
                    "is no name of Kubernetes'",
                    fix,
                )));
            }
        }
        let plain = plain.map(|path| Waiting::create(path, "--key-file")).transpose()?;
        let manifest = manifest.map(|path| Waiting::create(path, "--secret-manifest")).transpose()?;
        Ok(Self { plain, manifest, namespace: namespace.to_owned(), secret_name: secret_name.to_owned() })
    }

    /// Writes the key and returns the paths of the files. A file that has the key is kept even if the other one fails.
    pub(super) fn keep(mut self, pem: &str) -> CliResult<Vec<String>> {
        let manifest = manifest(&self.namespace, &self.secret_name, pem);
        let plain = self.plain.as_mut().map(|file| file.fill(pem));
        let secret = self.manifest.as_mut().map(|file| file.fill(&manifest));
        plain.into_iter().chain(secret).collect()
    }

    #[cfg(test)]
    pub(super) fn paths(&self) -> Vec<&std::path::Path> {
        self.plain.iter().chain(&self.manifest).map(|file| file.path.as_path()).collect()
    }
}

/// Returns a Secret in the chart's form.
fn manifest(namespace: &str, name: &str, pem: &str) -> String {
    let mut text = format!(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: {name}\n  namespace: {namespace}\ntype: Opaque\nstringData:\n  \
         {ENTRY}: |\n"
    );
    for line in pem.lines() {
        text.push_str("    ");
        text.push_str(line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn a_secret_holds_the_key_as_it_is() {
        let text = manifest("ci", "runyard-github", "-----A-----\nabc\n-----B-----\n");
        let read: serde_json::Value = serde_norway::from_str(&text).unwrap();
        assert_eq!(read["stringData"][ENTRY], "-----A-----\nabc\n-----B-----\n");
        assert_eq!((&read["metadata"]["namespace"], &read["kind"]), (&"ci".into(), &"Secret".into()));
    }

    #[test]
    fn nothing_is_overwritten_and_a_file_without_a_key_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("app.pem");
        let files = KeyFiles::create(Some(path.clone()), None, "ci", "s").unwrap();
        assert_eq!(files.paths(), [path.as_path()]);
        assert!(KeyFiles::create(Some(path.clone()), None, "ci", "s").is_err());
        drop(files);
        assert!(!path.exists());
        let files = KeyFiles::create(Some(path.clone()), None, "ci", "s").unwrap();
        files.keep("key").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "key");
        assert!(KeyFiles::create(Some(path), None, "ci", "s").is_err());
        assert!(KeyFiles::create(None, None, "Not a name", "s").is_err());
    }
}
