//! `runyard debug --bundle FILE`: everything about a failed record in one archive that may be sent to others. Values
//! whose name marks a credential are left out, and text in the form of a credential is redacted everywhere.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use figment::Figment;
use figment::providers::{Format as _, Toml};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Map, Value};

use crate::common::failure::{CliFailure, CliResult};
use runyard_core::redact::redact;

/// The directory in the archive.
const TOP: &str = "runyard-debug";
/// The replacement for a value that is left out.
const HIDDEN: &str = "***";
/// Attributes and keys whose value is a credential, may be one, or shows how to get one.
const SECRET: &[&str] = &[
    "registration",
    "removal",
    "publicKey",
    "labelSuffix",
    "environment",
    "preRunnerScript",
    "pre_runner_script",
    "token_file",
    "app_key_file",
    "signing_key_file",
];

/// The files of an archive; each is redacted when it is added.
#[derive(Debug, Default)]
pub(crate) struct Bundle(Vec<(String, String)>);

impl Bundle {
    /// Adds a document.
    pub(crate) fn document(&mut self, name: &str, value: &Value) {
        let value = cleaned(value);
        self.0.push((name.to_owned(), format!("{value:#}\n")));
    }

    /// Adds a text.
    pub(crate) fn text(&mut self, name: &str, said: &str) {
        self.0.push((name.to_owned(), redact(said, &[])));
    }

    /// Adds a configuration in TOML. If it cannot be parsed it is left out completely.
    pub(crate) fn configuration(&mut self, name: &str, toml: &str) {
        match Figment::from(Toml::string(toml)).extract::<Value>() {
            Ok(value) => self.document(name, &value),
            Err(_) => self.text(name, "it cannot be read as TOML, and is left out"),
        }
    }

    /// Writes the archive, which only its owner may read. Returns the number of its files.
    ///
    /// # Errors
    /// The file exists already, or cannot be written.
    pub(crate) fn write(self, path: &Path) -> CliResult<usize> {
        let files = self.0.len();
        let fix = "name a file that is not there yet, in a directory that may be written";
        let failed = |error: io::Error| {
            CliFailure::error(
                "--bundle",
                path.display().to_string(),
                format!("cannot be written: {error}"),
                fix,
            )
        };
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
        self.archive(file).map_err(failed)?;
        Ok(files)
    }

    fn archive(self, out: impl Write) -> io::Result<()> {
        let mut archive = tar::Builder::new(GzEncoder::new(out, Compression::default()));
        for (name, content) in self.0 {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o600);
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, format!("{TOP}/{name}"), content.as_bytes())?;
        }
        archive.into_inner()?.finish()?.flush()
    }
}

/// Returns a document without credentials.
fn cleaned(value: &Value) -> Value {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        Value::String(text) => Value::String(redact(text, &[])),
        Value::Array(all) => all.iter().map(cleaned).collect(),
        Value::Object(map) => {
            let entry = |(name, value): (&String, &Value)| {
                let secret = SECRET.iter().any(|one| one.eq_ignore_ascii_case(name));
                let value = if secret { Value::String(HIDDEN.to_owned()) } else { cleaned(value) };
                (name.clone(), value)
            };
            Value::Object(map.iter().map(entry).collect::<Map<_, _>>())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use serde_json::json;

    /// Unpacks an archive into names and contents of its files.
    fn unpacked(path: &Path) -> Vec<(String, String)> {
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()));
        let entries = archive.entries().unwrap();
        entries
            .map(|entry| {
                let mut entry = entry.unwrap();
                let name = entry.path().unwrap().display().to_string();
                let mut text = String::new();
                entry.read_to_string(&mut text).unwrap();
                (name, text)
            })
            .collect()
    }

    #[test]
    fn no_planted_secret_is_in_an_archive_wherever_it_was_planted() {
        let canaries = [
            "ghs_0123456789abcdefABCDEF0123456789abcd",
            "AABBCC2DDEEFF3GGHH4IIJJ5KKLLM",
            "AKIAIOSFODNN7EXAMPLE",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiIxIn0.c2lnbmF0dXJl",
        ];
        let dir = tempfile::tempdir().unwrap();
        for (n, canary) in canaries.iter().enumerate() {
            // A value under a secret's name need not have the form of one.
            for (m, secret) in [canary, "opensesame"].into_iter().enumerate() {
                let mut bundle = Bundle::default();
                bundle.document(
                    "records.json",
                    &json!([{"kind": "instance", "instanceId": "i-1", "registration": secret, "removal": secret,
                        "console": format!("config.sh --token {secret} failed"), "future": [{"deep": format!("token={secret}")}]},
                       {"kind": "request", "labelSuffix": secret, "message": format!("password: {secret}")},
                       {"kind": "pool", "jobs": {"environment": {"NPM": secret}},
                        "launch": {"preRunnerScript": format!("curl -u {secret} x")}}]),
                );
                bundle.text(
                    "logs/i-1/boot.txt",
                    &format!("+ export API_TOKEN={secret}\nAuthorization: Bearer {secret}"),
                );
                bundle.configuration("operator.toml", &format!("[agent.environment]\nX = \"{secret}\"\n"));
                let path = dir.path().join(format!("{n}-{m}.tar.gz"));
                assert_eq!(bundle.write(&path).unwrap(), 3);
                for (name, text) in unpacked(&path) {
                    assert!(!text.contains(secret), "{name}: {text}");
                }
            }
        }
    }

    #[test]
    fn an_archive_has_what_people_need_and_is_read_by_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.tar.gz");
        let bundle = || {
            let mut bundle = Bundle::default();
            bundle.document("records.json", &json!([{"kind": "lease", "token": 7, "state": "idle"}]));
            bundle.configuration("broken.toml", "token = opensesame");
            bundle
        };
        bundle().write(&path).unwrap();
        let files = unpacked(&path);
        assert_eq!(files[0].0, "runyard-debug/records.json");
        assert_eq!(serde_json::from_str::<Value>(&files[0].1).unwrap()[0]["token"], 7);
        assert!(!files[1].1.contains("opensesame"));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(bundle().write(&path).is_err(), "it is there already");
    }
}
