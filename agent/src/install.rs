//! Installs the agent on a machine. At first boot, root calls this program once to create the job user, to write the
//! systemd units and to start them; before each start of the agent, root calls it to set up the IMDS firewall. The
//! units are part of this program, so that user data stays short.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::host::users::account;
use crate::host::{Account, MACHINE_INOTIFY, has_ipv6};
use crate::system::disk;

/// Directory in which systemd looks for units of the machine's owner.
const UNITS: &str = "etc/systemd/system";
/// The units that are written there.
const FILES: [(&str, &str); 4] = [
    ("runyard-agent.service", include_str!("../../config/systemd/runyard-agent.service")),
    ("runyard-fuse.service", include_str!("../../config/systemd/runyard-fuse.service")),
    ("runyard-fuse-failed.service", include_str!("../../config/systemd/runyard-fuse-failed.service")),
    ("runyard-fuse.timer", include_str!("../../config/systemd/runyard-fuse.timer")),
];
/// Rules that restrict access to the metadata service, and the destinations of jobs: for nft, and the same for iptables
/// in each address family.
const RULES: &str = include_str!("../../config/systemd/metadata.nft");
const RULES_4: &str = include_str!("../../config/systemd/metadata.iptables");
const RULES_6: &str = include_str!("../../config/systemd/metadata.ip6tables");
/// The maximum number of connections that the jobs of a machine have at the same time. The machine tracks them in one
/// table with its own, which has room for 65 536 or more.
const CONNECTIONS: &str = "16384";
/// Parent of the job user's home in its own view; outside of it, the home is owned by root and empty.
const HOMES: &str = "/home";

/// Creates the job user, writes the units, and starts them, the watchdog timer first.
///
/// # Errors
/// The step that failed; the machine is then unusable.
pub fn install(job_user: Option<&str>) -> anyhow::Result<()> {
    if let Some(name) = job_user {
        make_account(name)?;
    }
    // Without the firewall, the machine would retry for its whole life.
    imds_firewall()?;
    write_units(Path::new("/"))?;
    call("systemctl", &["daemon-reload"], None)?;
    call("systemctl", &["enable", "--now", "runyard-fuse.timer"], None)?;
    call("systemctl", &["enable", "--now", "--no-block", "runyard-agent.service"], None)
}

/// Creates the job user, which must not be able to log in or run anything but jobs.
///
/// # Errors
/// An account of that name already exists and is able to, or none can be created.
pub fn make_account(name: &str) -> anyhow::Result<()> {
    let look = || nix::unistd::User::from_name(name).context("job_user");
    if look()?.is_none() {
        let home = format!("{HOMES}/{name}");
        let words = ["--system", "--user-group", "--no-create-home", "--home-dir", &home];
        call("useradd", &[&words[..], &["--shell", "/usr/sbin/nologin", name]].concat(), None)?;
        // `useradd` sets no expiry date for a system account.
        call("usermod", &["--expiredate", "1970-01-02", name], None)?;
    }
    let user = look()?.with_context(|| format!("{name} is not there"))?;
    fs::create_dir_all(&user.dir).map_err(|e| disk::at(&user.dir, &e))?;
    let account = Account { name: name.to_owned(), uid: user.uid.as_raw(), gid: user.gid.as_raw() };
    let ways = account::ways_back(Path::new("/etc"), &account, &user.dir)?;
    if !ways.is_empty() {
        bail!("job_user: {name} can come back after its jobs: {}; remove it from the image", ways.join("; "));
    }
    Ok(())
}

/// Writes the units below a root directory.
fn write_units(root: &Path) -> anyhow::Result<()> {
    let units = root.join(UNITS);
    fs::create_dir_all(&units).map_err(|e| disk::at(&units, &e))?;
    for (name, text) in FILES {
        let path = units.join(name);
        fs::write(&path, text).map_err(|e| disk::at(&path, &e))?;
        // The units contain no secret, and systemd warns about a unit that only root can read.
        fs::set_permissions(&path, Permissions::from_mode(0o644)).map_err(|e| disk::at(&path, &e))?;
    }
    Ok(())
}

/// Restricts the metadata service to root, and keeps jobs from the machine itself; with nft, or else with iptables for
/// both address families.
///
/// # Errors
/// Neither works.
pub fn imds_firewall() -> anyhow::Result<()> {
    kernel_settings()?;
    let Err(nft) = call("nft", &["-f", "-"], Some(RULES)) else {
        accept_forwarded();
        let over = ["ct", "state", "new", "ct", "count", "over", CONNECTIONS, "reject"];
        bound_connections("nft", &[&["add", "rule", "inet", "runyard", "bound"][..], &over].concat());
        return Ok(());
    };
    let both = || {
        tables("iptables", RULES_4, &["filter INPUT", "filter FORWARD", "filter OUTPUT", "nat POSTROUTING"])?;
        let new = ["-m", "conntrack", "--ctstate", "NEW"];
        // Counts all connections together, regardless of their addresses.
        let over =
            ["-m", "connlimit", "--connlimit-above", CONNECTIONS, "--connlimit-mask", "0", "-j", "REJECT"];
        bound_connections("iptables", &[&["-A", "runyard-BOUND"][..], &new, &over].concat());
        // A kernel without IPv6 cannot reach the service over IPv6 either.
        if !has_ipv6() {
            return Ok(());
        }
        tables("ip6tables", RULES_6, &["filter INPUT", "filter FORWARD", "filter OUTPUT"])
    };
    both().with_context(|| format!("{nft:#}: jobs could take this machine's role"))
}

/// Sets kernel parameters that apply to the whole machine.
fn kernel_settings() -> anyhow::Result<()> {
    let kernel = Path::new("/proc/sys/kernel");
    let set = |path: &Path, value: &str| fs::write(path, value).map_err(|e| disk::at(path, &e));
    // Prevents a job's crash from exposing data to the next job: through programs of root that store core dumps, and
    // through the kernel log.
    set(&kernel.join("core_pattern"), "core")?;
    set(&kernel.join("dmesg_restrict"), "1")?;
    // Since Linux 6.6; the unit's filter applies to its own processes on every kernel.
    let io_uring = kernel.join("io_uring_disabled");
    if io_uring.exists() {
        set(&io_uring, "2")?;
    }
    let inotify = Path::new("/proc/sys/fs/inotify/max_user_instances");
    let most = fs::read_to_string(inotify).ok().and_then(|most| most.trim().parse::<u32>().ok());
    if most.is_some_and(|most| most < MACHINE_INOTIFY)
        && let Err(error) = set(inotify, &MACHINE_INOTIFY.to_string())
    {
        tracing::warn!(%error, "a job could have all inotify instances of this machine");
    }
    Ok(())
}

/// Limits the connections of jobs. A kernel may be unable to count connections; then one job can fill the machine's
/// table while it runs.
fn bound_connections(program: &str, rule: &[&str]) {
    if let Err(error) = call(program, rule, None) {
        tracing::warn!("the connections of jobs are not bounded: {error:#}");
    }
}

/// Accepts the forwarded traffic of jobs in iptables. Beside nft rules there may be iptables rules that drop forwarded
/// packets, for example those of Docker's engine. They are not meant for the traffic of jobs to other hosts; where
/// there is no iptables, there are none.
fn accept_forwarded() {
    let replies = ["-o", "ryjob+", "-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED"];
    for rule in [&["-i", "ryjob+"][..], &replies] {
        let with = |verb| call("iptables", &[&[verb, "FORWARD"], rule, &["-j", "ACCEPT"]].concat(), None);
        if let Err(error) = with("-C").or_else(|_| with("-I")) {
            tracing::debug!("{error:#}");
        }
    }
}

/// Writes our own chains, and makes the kernel's chains jump to them first.
fn tables(program: &str, rules: &str, chains: &[&str]) -> anyhow::Result<()> {
    call(&format!("{program}-restore"), &["--noflush"], Some(rules))?;
    for (table, chain) in chains.iter().filter_map(|words| words.split_once(' ')) {
        let own = format!("runyard-{chain}");
        let jump = |verb| call(program, &["-t", table, verb, chain, "-j", &own], None);
        if jump("-C").is_err() {
            jump("-I")?;
        }
    }
    Ok(())
}

fn call(program: &str, arguments: &[&str], input: Option<&str>) -> anyhow::Result<()> {
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    let mut child =
        Command::new(program).args(arguments).stdin(stdin).spawn().with_context(|| program.to_owned())?;
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
        stdin.write_all(text.as_bytes()).with_context(|| program.to_owned())?;
    }
    let status = child.wait().with_context(|| program.to_owned())?;
    if !status.success() {
        bail!("{program} {} ended with {status}", arguments.join(" "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_units_are_written_whole_and_call_this_program_by_words_it_knows() {
        let root = tempfile::tempdir().unwrap();
        write_units(root.path()).unwrap();
        let agents = root.path().join(UNITS).join("runyard-agent.service");
        fs::set_permissions(&agents, Permissions::from_mode(0o600)).unwrap();
        write_units(root.path()).unwrap();
        assert_eq!(
            fs::metadata(&agents).unwrap().permissions().mode() & 0o777,
            0o644,
            "whatever first boot's umask"
        );
        let read = |name: &str| fs::read_to_string(root.path().join(UNITS).join(name)).unwrap();
        let (agent, watchdog, timer) =
            (read("runyard-agent.service"), read("runyard-fuse.service"), read("runyard-fuse.timer"));
        assert!(agent.contains("Type=notify") && agent.contains("WatchdogSec="));
        assert!(agent.contains("runyard-agent wall") && watchdog.contains("runyard-agent fuse --config"));
        assert!(agent.contains("Delegate=yes"), "jobs have a control group of their own");
        assert!(agent.contains("\nSystemCallArchitectures=native\n") && agent.contains(" io_uring_setup "));
        assert!(agent.contains("\nTasksMax=80%\n"), "more than the half that a jail may take");
        assert!(timer.contains("OnBootSec=") && !timer.contains("OnCalendar="), "monotonic time only");
    }

    /// Returns the value of a key in a unit.
    fn says<'a>(unit: &str, key: &str) -> Option<&'a str> {
        let text = FILES.iter().find(|(name, _)| *name == unit).expect("it is installed").1;
        text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
    }

    #[test]
    fn the_watchdog_powers_off_after_its_third_failure_in_a_row_and_not_before() {
        let watchdog = |key| says("runyard-fuse.service", key);
        assert_eq!(watchdog("FailureAction"), None, "one failure may be a job's doing");
        assert_eq!(watchdog("OnFailure"), Some("runyard-fuse-failed.service"));
        assert_eq!(watchdog("Restart"), None, "its timer alone starts it");
        let failed = |key| says("runyard-fuse-failed.service", key);
        assert_eq!(failed("StartLimitAction"), Some("poweroff-force"));
        assert_eq!(failed("StartLimitBurst"), Some("2"), "the third start is one too many");
        let timer = |key| says("runyard-fuse.timer", key);
        assert_eq!((timer("OnUnitActiveSec"), timer("AccuracySec")), (Some("1min"), Some("5s")));
        let interval: u64 = failed("StartLimitIntervalSec").unwrap().parse().unwrap();
        let (least, most) = (60, 60 + 5);
        assert!(interval > 2 * most, "three in a row fit in");
        assert!(interval < 3 * least, "three with a success between do not");
    }

    #[test]
    fn the_watchdog_is_the_last_that_a_machine_without_memory_loses() {
        let of = |unit, key| says(unit, key).unwrap();
        let score = |unit| of(unit, "OOMScoreAdjust").parse::<i32>().unwrap();
        assert_eq!(score("runyard-fuse.service"), -950);
        assert!(score("runyard-fuse.service") < score("runyard-agent.service"));
        assert_eq!(of("runyard-fuse.service", "MemoryMin"), "16M");
        assert_eq!(
            of("runyard-fuse.service", "Slice"),
            "-.slice",
            "a parent that reserves nothing takes it back"
        );
    }
}
