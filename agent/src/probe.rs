//! What can a job reach that it must not? Run as the user jobs run as, this tries each: the metadata service and with it
//! the machine's role, the agent's memory and environment, its configuration and records, its program, and root itself.

use std::fs::{File, OpenOptions, read_dir};
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use reqwest::Url;

/// Longest wait for something that should not answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Whoever may speak to these is root.
const DAEMONS: [&str; 3] =
    ["/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock"];

/// What is to be out of reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Targets {
    /// The metadata service.
    pub metadata: Url,
    /// The agent's process.
    pub agent: u32,
    /// What must be neither read nor changed.
    pub secret: Vec<PathBuf>,
    /// What must not be changed.
    pub fixed: Vec<PathBuf>,
}

/// Everything that could be reached, in words; none is good.
#[must_use]
pub fn reached(targets: &Targets) -> Vec<String> {
    let mut found = Vec::new();
    if answers(&targets.metadata) {
        found.push(format!("the metadata service at {} answers", targets.metadata));
    }
    for name in ["mem", "environ", "maps", "auxv"] {
        let path = format!("/proc/{}/{name}", targets.agent);
        if File::open(&path).is_ok() {
            found.push(format!("{path} opens"));
        }
    }
    for path in &targets.secret {
        if File::open(path).is_ok() || read_dir(path).is_ok() {
            found.push(format!("{} can be read", path.display()));
        }
    }
    for path in targets.secret.iter().chain(&targets.fixed) {
        if writable(path) {
            found.push(format!("{} can be changed", path.display()));
        }
    }
    found.extend(
        DAEMONS
            .iter()
            .filter(|path| UnixStream::connect(path).is_ok())
            .map(|path| format!("{path} answers: its user is root")),
    );
    if becomes_root() {
        found.push("sudo gives root".to_owned());
    }
    found
}

/// A file opens for writing, or a directory takes a new entry.
fn writable(path: &Path) -> bool {
    if !path.is_dir() {
        return OpenOptions::new().append(true).open(path).is_ok();
    }
    let probe = path.join(format!(".runyard-probe-{}", std::process::id()));
    let made = File::create(&probe).is_ok();
    let _ = std::fs::remove_file(&probe);
    made
}

/// Whether anything at all comes back: a token, or a refusal, would do for a thief to go on.
fn answers(url: &Url) -> bool {
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else { return false };
    let Ok(addresses) = (host.trim_matches(['[', ']']), port).to_socket_addrs() else { return false };
    addresses.into_iter().any(|address| {
        let ask = || {
            let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let words = "PUT /latest/api/token HTTP/1.1\r\nHost: metadata\r\nContent-Length: 0\r\n\
                         X-aws-ec2-metadata-token-ttl-seconds: 1\r\nConnection: close\r\n\r\n";
            stream.write_all(words.as_bytes())?;
            stream.read(&mut [0; 64])
        };
        ask().is_ok_and(|read| read > 0)
    })
}

fn becomes_root() -> bool {
    let sudo = Command::new("sudo")
        .args(["-n", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    sudo.is_ok_and(|status| status.success())
}

/// Reads the words [`arguments`] wrote.
///
/// # Errors
/// What is missing.
pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Targets, String> {
    let mut words = words.into_iter();
    let mut next = |what: &str| words.next().ok_or_else(|| format!("probe: {what}: missing"));
    let metadata = next("metadata")?.parse().map_err(|e| format!("probe: metadata: {e}"))?;
    let agent = next("agent")?.parse().map_err(|e| format!("probe: agent: {e}"))?;
    let (mut secret, mut fixed) = (Vec::new(), Vec::new());
    for word in words {
        match word.split_once('=') {
            Some(("secret", path)) => secret.push(path.into()),
            Some(("fixed", path)) => fixed.push(path.into()),
            Some(_) | None => return Err(format!("probe: {word}: not secret=PATH or fixed=PATH")),
        }
    }
    Ok(Targets { metadata, agent, secret, fixed })
}

/// The words that say what to try.
#[must_use]
pub fn arguments(targets: &Targets) -> Vec<String> {
    let named = |kind: &'static str| move |path: &PathBuf| format!("{kind}={}", path.display());
    let mut words = vec![targets.metadata.to_string(), targets.agent.to_string()];
    words.extend(targets.secret.iter().map(named("secret")));
    words.extend(targets.fixed.iter().map(named("fixed")));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_this_user_can_reach_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let metadata = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\n");
        });
        std::fs::write(dir.path().join("agent.toml"), "").unwrap();
        let targets = Targets {
            metadata,
            agent: std::process::id(),
            secret: vec![dir.path().join("agent.toml"), dir.path().to_owned()],
            fixed: vec![dir.path().join("none")],
        };
        assert_eq!(parse(arguments(&targets)).unwrap(), targets);
        let found = reached(&targets).join("\n");
        for words in [
            "metadata service",
            "/mem opens",
            "/environ opens",
            "agent.toml can be read",
            "agent.toml can be changed",
        ] {
            assert!(found.contains(words), "{words}: {found}");
        }
        assert!(!found.contains("none"), "{found}");
    }

    #[test]
    fn a_service_nobody_answers_for_is_out_of_reach() {
        assert!(!answers(&"http://127.0.0.1:1".parse().unwrap()));
        assert!(parse(["http://h".to_owned()]).is_err() && parse(["x".to_owned(), "1".to_owned()]).is_err());
    }
}
