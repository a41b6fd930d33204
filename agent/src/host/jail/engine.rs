//! The container engine of a claim: podman's service that speaks Docker's protocol, in the namespaces of the runner's
//! jail and a user namespace of its own, in which root is the job user and all others are users that nobody else has.
//! It has no rights on the machine beyond the job's, its network is the job's, its images, containers and volumes are
//! in the claim's directories, and it ends with the jail.

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

/// How the stage of the agent's program is called that becomes the engine.
pub(crate) const STAGE: &str = "engine";
/// How long it is between two looks whether the engine answers.
const LOOK: Duration = Duration::from_millis(20);
/// After how many of them it will not: half a minute.
const LOOKS: u32 = 1500;

/// What only the engine and the job's user enter, in the jail's own `/run`.
const RUNTIME: &str = "/run/podman";
const SOCKET: &str = "/run/podman/podman.sock";
/// Where podman itself answers, which only what stands before it asks.
const PODMAN: &str = "/run/podman/engine.sock";
/// Where actions and Docker's own command expect it.
const DOCKER: &str = "/run/docker.sock";
/// What is root's there, and everybody reads.
const OWN: &str = "/run/runyard-job";

/// What an image has to have, by any of these names.
const PROGRAMS: [&[&str]; 4] = [&["podman"], &["conmon"], &["crun", "runc"], &["slirp4netns", "pasta"]];
const NETWORKS: &str = "netavark";
/// Where podman looks for its helpers (`containers.conf(5)`, `helper_binaries_dir`).
const HELPERS: [&str; 4] =
    ["/usr/local/libexec/podman", "/usr/local/lib/podman", "/usr/libexec/podman", "/usr/lib/podman"];

/// Podman's command takes Docker's words, and is right where Docker's own is told too little by podman: it loses how a
/// container of `run --rm` ended, and the address of a published port, which GitHub's runner wants. What podman has not,
/// Docker's own does. The runner logs in with `--config`.
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
/// The control groups are the machine's, which give the claim one for all that is its.
const ENGINE: &str = r#"[containers]
cgroups = "disabled"
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
"#;
/// Names without a registry are Docker's, as everywhere, where the image does not say otherwise. It comes before what the
/// image does say.
const REGISTRIES: &str = "unqualified-search-registries = [\"docker.io\"]\n";
const MACHINES: &str = "/etc/containers/registries.conf";

/// By which containers have a network.
const TUN: &str = "/dev/net/tun";

/// What an image lacks that the engine needs, in words; none where it lacks nothing.
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

/// Has a script find the engine, whatever else its class grants.
pub(crate) fn tell(command: &mut Command, jobs: &Jobs) {
    let path = command.get_envs().find(|(name, _)| *name == "PATH").and_then(|(_, value)| value?.to_str());
    let path = format!("{OWN}/bin:{}", path.unwrap_or(PATH));
    command.env("PATH", path).env("CONTAINER_HOST", format!("unix://{SOCKET}"));
    // What BuildKit asks for, podman does not answer; its own way of building takes the same files.
    if !jobs.environment.contains_key("DOCKER_BUILDKIT") {
        command.env("DOCKER_BUILDKIT", "0");
    }
}

/// Begins the engine, as the first process of a jail, and waits until it answers.
///
/// # Errors
/// It does not, and what it says.
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

/// The marks by which its processes are known, and how images are fetched.
fn passed(name: &str) -> bool {
    name.starts_with("RUNYARD_") || name.to_ascii_lowercase().ends_with("_proxy")
}

/// Where the engine keeps what it has, of the claim's directories.
fn home(jail: &Jail) -> PathBuf {
    jail.inside.join("engine")
}

/// The places that the engine and the job's programs look for, in the jail's own `/run`.
fn furnish(jail: &Jail) -> anyhow::Result<()> {
    let dir =
        |place: &str, mode: u32| DirBuilder::new().mode(mode).create(place).with_context(|| place.to_owned());
    dir(RUNTIME, 0o700)?;
    chown(RUNTIME, Some(jail.uid), Some(jail.gid))?;
    symlink(SOCKET, DOCKER)?;
    // For everybody, as on most machines: what may be done with it, the network's owner decides.
    fs::set_permissions(TUN, Permissions::from_mode(0o666)).context(TUN)?;
    let (bin, conf) = (format!("{OWN}/bin"), format!("{OWN}/engine"));
    [OWN, &bin, &conf].into_iter().try_for_each(|place| dir(place, 0o755))?;
    // Anybody of the jail may look for them there.
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

/// Whether a machine's settings say where images without the name of a registry are.
fn says_where(settings: &str) -> bool {
    settings.lines().any(|line| line.trim_start().starts_with("unqualified-search-registries"))
}

/// Layers are shared where the file system can be a layer of others, and copied where it cannot.
fn driver(home: &Path) -> &'static str {
    let overlay = nix::sys::statfs::statfs(home).is_ok_and(|found| {
        found.filesystem_type() == nix::sys::statfs::OVERLAYFS_SUPER_MAGIC
            || found.filesystem_type() == nix::sys::statfs::TMPFS_MAGIC
    });
    if overlay { "vfs" } else { "overlay" }
}

/// Nobody else is there yet; what an engine of the same claim left gives way.
fn write_new(place: &Path) -> anyhow::Result<File> {
    let _ = fs::remove_file(place);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(place);
    file.with_context(|| place.display().to_string())
}

/// Gives away everything that is root's on the machine and becomes the engine: podman, and what stands before it and has
/// it do as Docker does.
pub(crate) fn become_the_engine(jail: &Jail) -> anyhow::Result<u8> {
    let mut init = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    setsid()?;
    fs::write("/proc/self/oom_score_adj", "0")?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    // Those of the agent have no name in there, and could not be given up there.
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
    // Of which it is the owner: what the machine mounted stays as it is.
    unshare(CloneFlags::CLONE_NEWNS).context("a mount namespace")?;
    SigSet::empty().thread_set_mask()?;
    let mut command = Command::new("podman");
    command.args(["--log-level", "error", "system", "service", "--time", "0", &format!("unix://{PODMAN}")]);
    command.env("PATH", PATH).env("LANG", "C.UTF-8").env("HOME", home(jail)).env("TMPDIR", "/var/tmp");
    command.env("XDG_RUNTIME_DIR", RUNTIME).env("CONTAINERS_CONF", format!("{OWN}/engine/containers.conf"));
    command.env("CONTAINERS_STORAGE_CONF", format!("{OWN}/engine/storage.conf"));
    command.env("CONTAINERS_REGISTRIES_CONF", format!("{OWN}/engine/registries.conf"));
    // By which podman knows that it is in a user namespace that somebody else made, and for whom.
    command.env("_CONTAINERS_USERNS_CONFIGURED", "done");
    command.env("_CONTAINERS_ROOTLESS_UID", jail.uid.to_string());
    command.env("_CONTAINERS_ROOTLESS_GID", jail.gid.to_string());
    // There is no systemd; `health` does what its timers would.
    command.env("DISABLE_HC_SYSTEMD", "true");
    let mut podman = command.current_dir("/").stdin(Stdio::null()).spawn().context("podman")?;
    if begun(&mut podman, PODMAN)? {
        health::begin(Path::new(PODMAN)).context("podman's events")?;
        front::begin(Path::new(SOCKET), Path::new(PODMAN)).context(SOCKET)?;
    }
    let ended = podman.wait()?;
    Ok(ended.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(NO_JAIL))
}
