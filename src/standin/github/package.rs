//! Builds the runner package: scripts with the real package's command line, over a listener that is this program. The
//! same executable always gives the same archive, byte for byte, so that its digest can be pinned.

use std::io::{self, Write};
use std::path::Path;

use flate2::{Compression, GzBuilder};
use sha2::{Digest, Sha256};

use super::behaviour::PackageBehaviour;

/// Where the package says how it behaves.
pub(super) const BEHAVIOUR: &str = "bin/stand-in.json";
const EXECUTABLE_MARK: &str = "@EXECUTABLE@";
const LISTENER: &str = include_str!("package/Runner.Listener");
const SCRIPTS: [(&str, &str); 3] = [
    ("config.sh", include_str!("package/config.sh")),
    ("run.sh", include_str!("package/run.sh")),
    ("run-helper.sh", include_str!("package/run-helper.sh")),
];

/// The archive as it is served.
#[derive(Clone, Debug)]
pub struct Package {
    /// `tar.gz`.
    pub archive: Vec<u8>,
    /// Of the archive, in lower-case hexadecimal.
    pub sha256: String,
    /// The version its runners report.
    pub version: String,
}

impl Package {
    /// Packs the scripts around this executable, and how they behave.
    ///
    /// # Errors
    /// A path that is not absolute or not text.
    pub fn build(executable: &Path, behaviour: &PackageBehaviour) -> io::Result<Self> {
        let bad =
            || io::Error::other(format!("the executable {} must be an absolute path", executable.display()));
        let path = executable.to_str().filter(|_| executable.is_absolute()).ok_or_else(bad)?;
        let listener = LISTENER.replace(EXECUTABLE_MARK, &quote(path));
        // No time and no name in the header: they would differ from build to build.
        let gz = GzBuilder::new().mtime(0).write(Vec::new(), Compression::default());
        let mut tar = tar::Builder::new(gz);
        for (name, content) in SCRIPTS {
            append(&mut tar, name, content)?;
        }
        append(&mut tar, "bin/Runner.Listener", &listener)?;
        append(&mut tar, BEHAVIOUR, &serde_json::to_string(behaviour)?)?;
        let archive = tar.into_inner()?.finish()?;
        let sha256 = Sha256::digest(&archive).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { archive, sha256, version: behaviour.version.clone() })
    }
}

fn append(tar: &mut tar::Builder<impl Write>, name: &str, content: &str) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o755);
    header.set_size(content.len() as u64);
    header.set_mtime(0);
    tar.append_data(&mut header, name, content.as_bytes())
}

/// One word for the shell, whatever the path holds.
fn quote(path: &str) -> String {
    format!("'{}'", path.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::{Package, PackageBehaviour};
    use std::collections::BTreeMap;
    use std::io::Read;
    use std::path::Path;

    fn content(package: &Package) -> BTreeMap<String, (u32, String)> {
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(package.archive.as_slice()));
        let read = |entry: std::io::Result<tar::Entry<'_, _>>| {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            (entry.path().unwrap().display().to_string(), (entry.header().mode().unwrap(), text))
        };
        tar.entries().unwrap().map(read).collect()
    }

    #[test]
    fn the_same_executable_gives_the_same_digest_and_another_gives_another() {
        let usual = PackageBehaviour::default();
        let build = |path: &str, of: &PackageBehaviour| Package::build(Path::new(path), of).unwrap().sha256;
        assert_eq!(build("/opt/runyard", &usual), build("/opt/runyard", &usual));
        assert_ne!(build("/opt/runyard", &usual), build("/opt/other", &usual));
        let newer = PackageBehaviour { version: "2.999.1".to_owned(), ..usual.clone() };
        assert_ne!(build("/opt/runyard", &usual), build("/opt/runyard", &newer));
    }

    #[test]
    fn every_script_is_executable_and_the_listener_survives_an_odd_path() {
        let content =
            content(&Package::build(Path::new("/o'pt/run yard"), &PackageBehaviour::default()).unwrap());
        let names: Vec<_> = content.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            ["bin/Runner.Listener", "bin/stand-in.json", "config.sh", "run-helper.sh", "run.sh"]
        );
        assert!(content.values().all(|(mode, _)| *mode == 0o755));
        assert!(content["bin/Runner.Listener"].1.contains(r"exec '/o'\''pt/run yard' stand-in-runner"));
    }

    #[test]
    fn a_relative_executable_is_refused() {
        assert!(Package::build(Path::new("runyard"), &PackageBehaviour::default()).is_err());
    }
}
