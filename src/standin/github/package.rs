//! Builds the runner package: scripts with the real package's command line, over a listener that is this program. The
//! same executable always gives the same archive, byte for byte, so that its digest can be pinned.

use std::io::{self, Read, Write};
use std::path::Path;

use axum::body::Bytes;
use flate2::{Compression, GzBuilder};
use sha2::{Digest, Sha256};

use super::behaviour::{PackageBehaviour, PackageSize};
use super::library;

/// The file that configures the package's behaviour.
pub(super) const BEHAVIOUR: &str = "bin/stand-in.json";
const EXECUTABLE_MARK: &str = "@EXECUTABLE@";
const LIBICU_MARK: &str = "@LIBICU@";
const LISTENER: &str = include_str!("package/Runner.Listener");
const CONFIG: &str = include_str!("package/config.sh");
const SCRIPTS: [(&str, &str); 5] = [
    ("env.sh", include_str!("package/env.sh")),
    ("run.sh", include_str!("package/run.sh")),
    ("run-helper.sh.template", include_str!("package/run-helper.sh.template")),
    ("bin/Runner.Worker", include_str!("package/Runner.Worker")),
    ("bin/systemd.svc.sh.template", include_str!("package/systemd.svc.sh.template")),
];
/// The libraries on which `config.sh` runs `ldd`, and the libraries that .NET's of these names are linked with.
const LIBRARIES: [(&str, &[&str]); 3] = [
    ("libcoreclr.so", &["libstdc++.so.6", "libm.so.6", "libgcc_s.so.1", "libc.so.6"]),
    ("libSystem.Security.Cryptography.Native.OpenSsl.so", &["libgcc_s.so.1", "libc.so.6"]),
    ("libSystem.IO.Compression.Native.so", &["libm.so.6", "libc.so.6"]),
];

/// The archive as it is served.
#[derive(Clone, Debug)]
pub struct Package {
    /// `tar.gz`.
    pub archive: Bytes,
    /// The digest of the archive, in lower-case hexadecimal.
    pub sha256: String,
    /// The version its runners report.
    pub version: String,
}

impl Package {
    /// Packs the scripts around this executable, and the configuration of their behaviour.
    ///
    /// # Errors
    /// A path that is not absolute or not text.
    pub fn build(executable: &Path, behaviour: &PackageBehaviour) -> io::Result<Self> {
        let bad =
            || io::Error::other(format!("the executable {} must be an absolute path", executable.display()));
        let path = executable.to_str().filter(|_| executable.is_absolute()).ok_or_else(bad)?;
        let listener = LISTENER.replace(EXECUTABLE_MARK, &quote(path));
        let config = CONFIG.replace(LIBICU_MARK, if behaviour.libicu { "asked" } else { "" });
        // No time and no name in the header: they would differ from build to build.
        let gz = GzBuilder::new().mtime(0).write(Vec::new(), Compression::fast());
        let mut tar = tar::Builder::new(gz);
        append(&mut tar, "config.sh", config.as_bytes())?;
        for (name, content) in SCRIPTS {
            append(&mut tar, name, content.as_bytes())?;
        }
        append(&mut tar, "bin/Runner.Listener", listener.as_bytes())?;
        for (name, needed) in LIBRARIES {
            append(&mut tar, &format!("bin/{name}"), &library::linked_with(needed))?;
        }
        append(&mut tar, BEHAVIOUR, &serde_json::to_vec(behaviour)?)?;
        fill(&mut tar, behaviour.size)?;
        let archive = Bytes::from(tar.into_inner()?.finish()?);
        let sha256 = Sha256::digest(&archive).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { archive, sha256, version: behaviour.version.clone() })
    }
}

fn append(tar: &mut tar::Builder<impl Write>, name: &str, content: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o755);
    header.set_size(content.len() as u64);
    header.set_mtime(0);
    tar.append_data(&mut header, name, content)
}

/// Adds files beside the scripts: a few large programs and many small files, as node and npm are in the real package.
fn fill(tar: &mut tar::Builder<impl Write>, size: PackageSize) -> io::Result<()> {
    const LARGE: u64 = 4;
    let large = LARGE.min(u64::from(size.files));
    let each = size.bytes / 5;
    let small = (size.bytes - each * large).checked_div(u64::from(size.files) - large).unwrap_or_default();
    for number in 0..u64::from(size.files) {
        let (name, bytes) = match number {
            number if number < large => (format!("externals/node{number}/bin/node"), each),
            _ => {
                let (node, module) = (number % LARGE, number / 100);
                (format!("externals/node{node}/lib/node_modules/npm/m{module}/f{number}.js"), small)
            }
        };
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o755);
        header.set_size(bytes);
        header.set_mtime(0);
        tar.append_data(&mut header, name, Noise::new(number.wrapping_add(1)).take(bytes))?;
    }
    Ok(())
}

/// Pseudo-random digits, the same each time (splitmix64, Steele and others 2014), in which each block repeats its
/// beginning: packed, 36 of 100 bytes are left, as for a program.
struct Noise {
    state: u64,
    block: [u8; Self::BLOCK],
    read: usize,
}

impl Noise {
    const BLOCK: usize = 1024;
    /// The part of a block that is not a repetition.
    const FRESH: usize = 736;

    fn new(seed: u64) -> Self {
        Self { state: seed, block: [0; Self::BLOCK], read: Self::BLOCK }
    }

    fn refill(&mut self) {
        for part in self.block[..Self::FRESH].chunks_mut(16) {
            self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut bits = self.state;
            bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            bits ^= bits >> 31;
            for byte in part {
                *byte = b"0123456789abcdef"[(bits & 15) as usize];
                bits >>= 4;
            }
        }
        self.block.copy_within(..Self::BLOCK - Self::FRESH, Self::FRESH);
        self.read = 0;
    }
}

impl Read for Noise {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.read == Self::BLOCK {
            self.refill();
        }
        let length = buffer.len().min(Self::BLOCK - self.read);
        buffer[..length].copy_from_slice(&self.block[self.read..self.read + length]);
        self.read += length;
        Ok(length)
    }
}

/// Quotes a path as one word for the shell, whatever it contains.
fn quote(path: &str) -> String {
    format!("'{}'", path.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::{Package, PackageBehaviour, PackageSize};
    use std::collections::BTreeMap;
    use std::io::Read;
    use std::path::Path;

    fn content(package: &Package) -> BTreeMap<String, (u32, String)> {
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(package.archive.as_ref()));
        let read = |entry: std::io::Result<tar::Entry<'_, _>>| {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            let text = String::from_utf8_lossy(&bytes).into_owned();
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
            [
                "bin/Runner.Listener",
                "bin/Runner.Worker",
                "bin/libSystem.IO.Compression.Native.so",
                "bin/libSystem.Security.Cryptography.Native.OpenSsl.so",
                "bin/libcoreclr.so",
                "bin/stand-in.json",
                "bin/systemd.svc.sh.template",
                "config.sh",
                "env.sh",
                "run-helper.sh.template",
                "run.sh"
            ]
        );
        assert!(content.values().all(|(mode, _)| *mode == 0o755));
        assert!(content["bin/Runner.Listener"].1.contains(r"exec '/o'\''pt/run yard' stand-in-runner"));
    }

    #[test]
    fn a_package_of_a_size_has_so_many_files_and_does_not_pack_away() {
        let size = PackageSize { files: 50, bytes: 1_000_000 };
        let of = PackageBehaviour { size, ..PackageBehaviour::default() };
        let package = Package::build(Path::new("/opt/runyard"), &of).unwrap();
        let content = content(&package);
        assert_eq!(content.len(), 11 + 50);
        let bytes: usize = content.values().map(|(_, text)| text.len()).sum();
        assert!((990_000..1_020_000).contains(&bytes), "{bytes}");
        assert!((340_000..450_000).contains(&package.archive.len()), "{}", package.archive.len());
        let again = Package::build(Path::new("/opt/runyard"), &of).unwrap();
        assert_eq!(again.sha256, package.sha256);
    }

    #[test]
    fn a_relative_executable_is_refused() {
        assert!(Package::build(Path::new("runyard"), &PackageBehaviour::default()).is_err());
    }
}
