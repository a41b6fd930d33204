//! The container engine of a claim: podman's service with Docker's protocol, in the namespaces of the runner's jail and
//! a user namespace of its own, in which root is the job user and all other ids are used by nobody else. It has no
//! rights on the machine beyond the job's, its network is the job's, its images, containers and volumes are in the
//! claim's directories, and it ends with the jail.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::SigSet;
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid, setsid};
use runyard_core::model::Jobs;

use crate::host::jail::{Jail, NO_JAIL, map_users, mapped, stage};
use crate::host::users::bounds::bound;
use crate::host::users::child::PATH;
use crate::host::users::ids::SUBORDINATE;
use crate::host::users::keys::own_session;

mod answers;
mod docker;
mod front;
mod health;
mod message;

pub(crate) use self::answers::answers;

/// The name of the stage of the agent's program that becomes the engine.
pub(crate) const STAGE: &str = "engine";
/// Interval between two checks whether the engine responds.
const LOOK: Duration = Duration::from_millis(20);
/// Number of checks until the engine counts as failed: half a minute.
const LOOKS: u32 = 1500;

/// Directory in the jail's own `/run` that only the engine and the job user can enter.
const RUNTIME: &str = "/run/podman";
const SOCKET: &str = "/run/podman/podman.sock";
/// Podman's own socket, which only the front end uses.
const PODMAN: &str = "/run/podman/engine.sock";
/// The path at which actions and Docker's own command expect the socket.
const DOCKER: &str = "/run/docker.sock";
/// Directory of root that everybody can read.
const OWN: &str = "/run/runyard-job";

/// Programs that an image must contain, each under one of these names.
const PROGRAMS: [&[&str]; 4] = [&["podman"], &["conmon"], &["crun", "runc"], &["slirp4netns", "pasta"]];
const NETWORKS: &str = "netavark";
/// Directories in which podman looks for its helpers (`containers.conf(5)`, `helper_binaries_dir`).
const HELPERS: [&str; 4] =
    ["/usr/local/libexec/podman", "/usr/local/lib/podman", "/usr/libexec/podman", "/usr/lib/podman"];

/// The `docker` command of jobs. Podman's command accepts Docker's arguments, and is correct where Docker's own command
/// gets too little information from podman: that one loses the exit status of a container of `run --rm`, and the
/// address of a published port, which GitHub's runner needs. Subcommands that podman lacks are run by Docker's own
/// command. The runner logs in with `--config`.
const COMMAND: &str = r#"#!/bin/sh
here=/run/runyard-job/bin
case "$1" in
--config)
    export DOCKER_CONFIG="$2" REGISTRY_AUTH_FILE="$2/config.json"
    shift 2
    ;;
run | create | container)
    # What is missing and named from here, podman's command refuses by itself.
    before=
    for word; do
        case "$before $word" in
        "-v ."*:* | "--volume ."*:*) mkdir -p "${word%%:*}" ;;
        *" --volume=."*:*) word="${word#--volume=}" && mkdir -p "${word%%:*}" ;;
        esac
        before="$word"
    done
    ;;
stop | restart)
    # As Docker calls `--time` by now.
    for word; do
        shift
        case "$word" in --timeout | --timeout=*) word="--time${word#--timeout}" ;; esac
        set -- "$@" "$word"
    done
    ;;
--version | buildx | compose | context)
    IFS=:
    for dir in $PATH; do
        [ "$dir" != "$here" ] && [ -x "$dir/docker" ] || continue
        # These two are programs of their own, which an image may have or not.
        case "$1" in buildx | compose) "$dir/docker" "$1" version >/dev/null 2>&1 || continue ;; esac
        exec "$dir/docker" "$@"
    done
    unset IFS
    [ "$1" = compose ] && command -v podman-compose >/dev/null && shift && exec podman-compose "$@"
    ;;
esac
# Another has no place for the health check of an image.
export BUILDAH_FORMAT="${BUILDAH_FORMAT:-docker}"
exec podman --remote --url unix:///run/podman/podman.sock "$@"
"#;
/// Control groups are disabled in the engine: they belong to the machine, which gives the claim one group for all of
/// its processes.
const ENGINE: &str = r#"[containers]
cgroups = "disabled"
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
"#;
/// Image names without a registry refer to Docker's, as everywhere, unless the machine's image configures another. This
/// line precedes the configuration of the machine's image.
const REGISTRIES: &str = "unqualified-search-registries = [\"docker.io\"]\n";
const MACHINES: &str = "/etc/containers/registries.conf";

/// The device through which containers get a network.
const TUN: &str = "/dev/net/tun";

/// Returns a message that lists the requirements of the engine that an image lacks, or `None` if it lacks none.
pub(crate) fn lacks() -> Option<String> {
    let there = |dirs: &[&str], name: &str| dirs.iter().any(|dir| Path::new(dir).join(name).exists());
    let path: Vec<&str> = PATH.split(':').collect();
    let programs = PROGRAMS.iter().filter(|names| !names.iter().any(|name| there(&path, name)));
    let mut lacking: Vec<String> = programs.map(|names| names.join(" or ")).collect();
    if !there(&HELPERS, NETWORKS) {
        lacking.push(NETWORKS.to_owned());
    }
    if !Path::new(TUN).exists() {
        lacking.push(format!("{TUN} (modprobe tun)"));
    }
    (!lacking.is_empty()).then(|| {
        format!(
            "its class gives jobs rootless containers, and this machine's image lacks {}",
            lacking.join(", ")
        )
    })
}

/// Sets PATH and CONTAINER_HOST so that the script finds the engine.
pub(crate) fn tell(command: &mut Command, jobs: &Jobs) {
    let path = command.get_envs().find(|(name, _)| *name == "PATH").and_then(|(_, value)| value?.to_str());
    let path = format!("{OWN}/bin:{}", path.unwrap_or(PATH));
    command.env("PATH", path).env("CONTAINER_HOST", format!("unix://{SOCKET}"));
    // Podman does not implement BuildKit's requests; its own builder accepts the same files.
    if !jobs.environment.contains_key("DOCKER_BUILDKIT") {
        command.env("DOCKER_BUILDKIT", "0");
    }
}

/// Starts the engine from the first process of a jail, and waits until it responds.
///
/// # Errors
/// It does not respond; the error contains its output.
pub(crate) fn begin(jail: &Jail, spec: &str, environment: &BTreeMap<String, String>) -> anyhow::Result<()> {
    furnish(jail)?;
    let home = home(jail);
    let log = home.join("engine.log");
    let out = write_new(&log)?;
    let (mut here, there) = UnixStream::pair()?;
    let mut engine = stage(STAGE, spec);
    engine.env_clear().envs(environment.iter().filter(|(name, _)| passed(name)));
    engine.stdin(Stdio::from(OwnedFd::from(there))).stdout(out.try_clone()?).stderr(out);
    let mut child = engine.spawn().context("the container engine")?;
    let users = |own: u32| format!("0 {own} 1\n1 {} {}", SUBORDINATE.start, SUBORDINATE.len());
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id())?);
    map_users(&mut here, pid, [&users(jail.uid), &users(jail.gid)]).context("a user namespace")?;
    drop(here);
    if begun(&mut child, SOCKET)? {
        return Ok(());
    }
    let mut said = String::new();
    let _ = File::open(&log).and_then(|file| file.take(4096).read_to_string(&mut said));
    bail!("the container engine does not answer: {}", said.trim())
}

fn begun(child: &mut Child, socket: &str) -> io::Result<bool> {
    for _ in 0..LOOKS {
        if answers(Path::new(socket)) {
            return Ok(true);
        }
        if child.try_wait()?.is_some() {
            return Ok(false);
        }
        sleep(LOOK);
    }
    Ok(false)
}

/// Returns whether a variable is passed to the engine: the marks that identify its processes, and the proxies for
/// fetching images.
fn passed(name: &str) -> bool {
    name.starts_with("RUNYARD_") || name.to_ascii_lowercase().ends_with("_proxy")
}

/// Returns the engine's directory among the claim's directories.
fn home(jail: &Jail) -> PathBuf {
    jail.inside.join("engine")
}

/// Creates the files that the engine and the job's programs expect in the jail's own `/run`.
fn furnish(jail: &Jail) -> anyhow::Result<()> {
    let dir =
        |place: &str, mode: u32| DirBuilder::new().mode(mode).create(place).with_context(|| place.to_owned());
    dir(RUNTIME, 0o700)?;
    chown(RUNTIME, Some(jail.uid), Some(jail.gid))?;
    symlink(SOCKET, DOCKER)?;
    // Accessible to everybody, as on most machines: the owner of the network decides what may be done with it.
    fs::set_permissions(TUN, Permissions::from_mode(0o666)).context(TUN)?;
    let (bin, conf) = (format!("{OWN}/bin"), format!("{OWN}/engine"));
    [OWN, &bin, &conf].into_iter().try_for_each(|place| dir(place, 0o755))?;
    // Every user in the jail may look for files there.
    for place in [OWN, &bin, &conf] {
        fs::set_permissions(place, Permissions::from_mode(0o755))?;
    }
    let storage = format!(
        "[storage]\ndriver = \"{}\"\ngraphroot = \"{}/storage\"\nrunroot = \"{RUNTIME}/storage\"\n\
         rootless_storage_path = \"{}/storage\"\n",
        driver(&home(jail)),
        home(jail).display(),
        home(jail).display()
    );
    let machines = fs::read_to_string(MACHINES).unwrap_or_default();
    let registries = format!("{}{machines}", if says_where(&machines) { "" } else { REGISTRIES });
    for (name, text, mode) in [
        ("bin/docker", COMMAND, 0o755),
        ("engine/containers.conf", ENGINE, 0o644),
        ("engine/storage.conf", storage.as_str(), 0o644),
        ("engine/registries.conf", registries.as_str(), 0o644),
    ] {
        let place = Path::new(OWN).join(name);
        write_new(&place)?.write_all(text.as_bytes())?;
        fs::set_permissions(&place, Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Returns whether a machine's configuration sets the registry of image names without one.
fn says_where(settings: &str) -> bool {
    settings.lines().any(|line| line.trim_start().starts_with("unqualified-search-registries"))
}

/// Returns the storage driver. Layers are shared if the file system can be a layer of an overlay, and copied otherwise.
fn driver(home: &Path) -> &'static str {
    let overlay = nix::sys::statfs::statfs(home).is_ok_and(|found| {
        found.filesystem_type() == nix::sys::statfs::OVERLAYFS_SUPER_MAGIC
            || found.filesystem_type() == nix::sys::statfs::TMPFS_MAGIC
    });
    if overlay { "vfs" } else { "overlay" }
}

/// Creates a new file. No other process uses the path yet; the file of an earlier engine of the same claim is replaced.
fn write_new(place: &Path) -> anyhow::Result<File> {
    let _ = fs::remove_file(place);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(place);
    file.with_context(|| place.display().to_string())
}

/// Drops all privileges of root on the machine and becomes the engine: podman, and the front end that makes it behave
/// like Docker.
pub(crate) fn become_the_engine(jail: &Jail) -> anyhow::Result<u8> {
    let mut init = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    setsid()?;
    fs::write("/proc/self/oom_score_adj", "0")?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    // The agent's groups are not mapped in the user namespace, and could not be dropped there.
    setgroups(&[])?;
    unshare(CloneFlags::CLONE_NEWUSER).context("a user namespace")?;
    if mapped(&mut init).is_err() {
        return Ok(NO_JAIL);
    }
    bound().context("bounds of the user namespace")?;
    own_session().context("a session keyring")?;
    let (uid, gid) = (Uid::from_raw(0), Gid::from_raw(0));
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)?;
    // The engine owns this mount namespace; the machine's mounts remain unchanged.
    unshare(CloneFlags::CLONE_NEWNS).context("a mount namespace")?;
    SigSet::empty().thread_set_mask()?;
    let mut command = Command::new("podman");
    command.args(["--log-level", "error", "system", "service", "--time", "0", &format!("unix://{PODMAN}")]);
    command.env("PATH", PATH).env("LANG", "C.UTF-8").env("HOME", home(jail)).env("TMPDIR", "/var/tmp");
    command.env("XDG_RUNTIME_DIR", RUNTIME).env("CONTAINERS_CONF", format!("{OWN}/engine/containers.conf"));
    command.env("CONTAINERS_STORAGE_CONF", format!("{OWN}/engine/storage.conf"));
    command.env("CONTAINERS_REGISTRIES_CONF", format!("{OWN}/engine/registries.conf"));
    // Podman reads from these variables that another process created its user namespace, and for which user.
    command.env("_CONTAINERS_USERNS_CONFIGURED", "done");
    command.env("_CONTAINERS_ROOTLESS_UID", jail.uid.to_string());
    command.env("_CONTAINERS_ROOTLESS_GID", jail.gid.to_string());
    // There is no systemd; `health` replaces its timers.
    command.env("DISABLE_HC_SYSTEMD", "true");
    let mut podman = command.current_dir("/").stdin(Stdio::null()).spawn().context("podman")?;
    if begun(&mut podman, PODMAN)? {
        health::begin(Path::new(PODMAN)).context("podman's events")?;
        front::begin(Path::new(SOCKET), Path::new(PODMAN)).context(SOCKET)?;
    }
    let ended = podman.wait()?;
    Ok(ended.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(NO_JAIL))
}
