//! The isolation check: tries to reach everything that a job must not reach. It runs as the job user where jobs run,
//! and tries the metadata service with the machine's role, the machine itself, the process that created the namespaces,
//! the agent's configuration, records and program, and root. It also looks for writable places that outlive a job.

use std::fs::{File, OpenOptions, read_dir, read_to_string};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use reqwest::Url;

/// Longest wait for a target that should not respond.
const PATIENCE: Duration = Duration::from_secs(2);
/// Mounts that are created for each job, in memory or by the kernel.
const OF_ONE_JOB: [&str; 6] = ["/dev", "/dev/pts", "/dev/shm", "/dev/mqueue", "/run", "/proc"];
/// Sockets that give root access to every user who can connect to them.
const DAEMONS: [&str; 3] =
    ["/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock"];

/// The resources that must be out of reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Targets {
    /// The metadata service, with each of its addresses.
    pub metadata: Vec<Url>,
    /// The id of a process of root.
    pub agent: u32,
    /// A port on which the machine listens at all its addresses.
    pub machine: Option<u16>,
    /// Paths that must be neither readable nor writable.
    pub secret: Vec<PathBuf>,
    /// Paths that must not be writable.
    pub fixed: Vec<PathBuf>,
}

/// Returns a description of everything that could be reached; an empty list is good.
#[must_use]
pub fn reached(targets: &Targets) -> Vec<String> {
    let mut found = Vec::new();
    for metadata in targets.metadata.iter().filter(|metadata| answers(metadata)) {
        found.push(format!("the metadata service at {metadata} answers"));
    }
    if let Some(port) = targets.machine {
        let routes = read_to_string("/proc/net/route").unwrap_or_default();
        let connects =
            |gateway: &Ipv4Addr| TcpStream::connect_timeout(&(*gateway, port).into(), PATIENCE).is_ok();
        found.extend(
            gateways(&routes).into_iter().filter(connects).map(|ip| format!("the machine answers at {ip}")),
        );
    }
    found.extend(held(&read_to_string("/proc/self/status").unwrap_or_default()));
    found.extend(open_beside_the_log().into_iter().map(|what| format!("{what} is open")));
    let mounts = read_to_string("/proc/self/mountinfo").unwrap_or_default();
    found.extend(lasting(&mounts).into_iter().map(|place| format!("{place} is not read-only")));
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

/// Returns the gateways for packets without another route, from `/proc/net/route`, which uses the machine's own byte
/// order.
fn gateways(routes: &str) -> Vec<Ipv4Addr> {
    let fields = routes.lines().filter_map(|line| line.split_whitespace().nth(2));
    let gateways = fields.filter_map(|field| u32::from_str_radix(field, 16).ok());
    gateways.filter(|gateway| *gateway != 0).map(|gateway| Ipv4Addr::from(gateway.to_ne_bytes())).collect()
}

/// Returns the privileges of this process that a job must not have, from its `/proc/self/status`.
fn held(status: &str) -> Vec<String> {
    let field = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.map_or("nothing", str::trim).to_owned()
    };
    let none = "0000000000000000";
    let wanted = [
        ("CapInh", none),
        ("CapPrm", none),
        ("CapEff", none),
        ("CapAmb", none),
        ("NoNewPrivs", "1"),
        ("Groups", ""),
    ];
    let differs = |(name, wanted): (&str, &str)| {
        let found = field(name);
        (found != wanted).then(|| format!("{name} is {found:?}"))
    };
    wanted.into_iter().filter_map(differs).collect()
}

/// Returns the open files that this process inherited, except for its standard streams.
fn open_beside_the_log() -> Vec<String> {
    let links = read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let others = links.filter(|link| !["0", "1", "2"].iter().any(|usual| link.file_name() == *usual));
    let files = others.filter_map(|link| std::fs::read_link(link.path()).ok());
    // The directory that is being read is open as well.
    files.filter(|file| !file.ends_with("fd")).map(|file| file.display().to_string()).collect()
}

/// Returns the writable mounts that are not created for one job alone, from `/proc/self/mountinfo`.
fn lasting(mountinfo: &str) -> Vec<&str> {
    fn place(line: &str) -> Option<(&str, &str)> {
        let mut fields = line.split(' ').skip(4);
        Some((fields.next()?, fields.next()?))
    }
    let mounted = mountinfo.lines().filter_map(place);
    let writable = mounted.filter(|(_, options)| options.split(',').any(|option| option == "rw"));
    writable.map(|(place, _)| place).filter(|place| !OF_ONE_JOB.contains(place)).collect()
}

/// Returns whether a file can be opened for writing, or whether a directory accepts a new entry.
fn writable(path: &Path) -> bool {
    if !path.is_dir() {
        return OpenOptions::new().append(true).open(path).is_ok();
    }
    let trial = path.join(format!(".runyard-probe-{}", std::process::id()));
    let made = File::create(&trial).is_ok();
    let _ = std::fs::remove_file(&trial);
    made
}

/// Returns whether there is any response at all: a token, or even a refusal, would be enough for an attacker to
/// continue.
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

/// Parses the arguments that [`arguments`] returned.
///
/// # Errors
/// The argument that is missing.
pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Targets, String> {
    let mut words = words.into_iter();
    let mut next = |what: &str| words.next().ok_or_else(|| format!("probe: {what}: missing"));
    let agent = next("agent")?.parse().map_err(|e| format!("probe: agent: {e}"))?;
    let mut targets =
        Targets { metadata: Vec::new(), agent, machine: None, secret: Vec::new(), fixed: Vec::new() };
    for word in words {
        let wrong = |why: String| format!("probe: {word}: {why}");
        match word.split_once('=') {
            Some(("metadata", url)) => {
                targets.metadata.push(url.parse().map_err(|e| wrong(format!("{e}")))?);
            }
            Some(("machine", port)) => {
                targets.machine = Some(port.parse().map_err(|e| wrong(format!("{e}")))?);
            }
            Some(("secret", path)) => targets.secret.push(path.into()),
            Some(("fixed", path)) => targets.fixed.push(path.into()),
            Some(_) | None => return Err(wrong("not metadata=, machine=, secret= or fixed=".to_owned())),
        }
    }
    Ok(targets)
}

/// Returns the command line arguments for these targets.
#[must_use]
pub fn arguments(targets: &Targets) -> Vec<String> {
    let named = |kind: &'static str| move |path: &PathBuf| format!("{kind}={}", path.display());
    let mut words = vec![targets.agent.to_string()];
    words.extend(targets.metadata.iter().map(|url| format!("metadata={url}")));
    words.extend(targets.machine.map(|port| format!("machine={port}")));
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
            metadata: vec![metadata],
            agent: std::process::id(),
            machine: Some(1),
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
        let wrong = [vec![], vec!["x"], vec!["1", "secret"], vec!["1", "machine=x"], vec!["1", "metadata=x"]];
        for words in wrong {
            assert!(parse(words.iter().map(|word| (*word).to_owned())).is_err(), "{words:?}");
        }
    }

    #[test]
    fn the_machine_is_where_the_default_route_leads() {
        let routes = "Iface\tDestination\tGateway\tFlags\neth0\t00000000\t151412C6\t0003\neth0\t001412C6\t00000000\t1\n";
        let ip = if cfg!(target_endian = "little") { [198, 18, 20, 21] } else { [21, 20, 18, 198] };
        assert_eq!(gateways(routes), [Ipv4Addr::from(ip)]);
    }

    #[test]
    fn rights_and_groups_that_no_job_has_are_named() {
        let good = "CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n\
                    CapAmb:\t0000000000000000\nNoNewPrivs:\t1\nGroups:\t \n";
        assert_eq!(held(good), Vec::<String>::new());
        assert_eq!(held(&good.replace("Privs:\t1", "Privs:\t0")), ["NoNewPrivs is \"0\""]);
        assert_eq!(held(&good.replace("Groups:\t ", "Groups:\t999 ")), ["Groups is \"999\""]);
        assert_eq!(held("").len(), 6);
    }

    #[test]
    fn a_writable_mount_that_outlives_a_job_is_named() {
        let mounts = "91 65 0:43 / / ro,nosuid - overlay overlay ro\n92 91 0:47 / /dev rw,nosuid - tmpfs tmpfs rw\n\
                      97 91 0:51 / /proc rw - proc proc rw\n98 91 8:1 / /data rw,relatime - ext4 /dev/sdb rw\n";
        assert_eq!(lasting(mounts), ["/data"]);
    }
}
