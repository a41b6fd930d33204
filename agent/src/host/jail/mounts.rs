//! The file system view of a job. The job sees the machine's disks read-only and through an overlay, so that no socket
//! or pipe on them leads anywhere. It can only write to memory and to the claim's directories. Anything that is not
//! listed here does not exist for the job.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use anyhow::Context;
use nix::fcntl::OFlag;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{Mode, SFlag, mknod, umask};
use nix::unistd::{chdir, pivot_root};

use super::network;
use crate::host::files::layout::RUNNERS;
use crate::host::files::remove::by_number;
use crate::host::jail::Jail;
use crate::host::jail::kept_mount::{KeptMount, place_for};
use crate::host::package::unpacked::PROGRAMS;
use crate::system::disk;

/// File systems on disks; each job gets a view of these. The others (network, FUSE, memory) hold data that is not the
/// machine's, or nothing that existed before the first claim.
const DISKS: [&str; 9] = ["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "squashfs", "erofs"];
/// Directories that are mounted anew for each job; nothing of the machine's is visible below these.
const ANEW: [&str; 6] = ["/proc", "/sys", "/dev", "/run", "/tmp", "/var/tmp"];
/// Directory in which podman mounts something while it creates a network; it uses the parent directory if this one is
/// missing.
const NETWORKS: &str = "/var/lib/cni";
/// The claim's directories that also appear at another path, with that path. Every user may write to them, as is usual
/// there.
const SHARED: [(&str, &str); 2] = [("tmp", "/tmp"), ("var-tmp", "/var/tmp")];
/// Devices that everybody may use, if they exist, and likewise all devices with a prefix from the second list.
const DEVICES: [&str; 9] = ["null", "zero", "full", "random", "urandom", "tty", "kvm", "fuse", "net/tun"];
const FAMILIES: [&str; 4] = ["nvidia", "neuron", "dri/renderD", "infiniband/uverbs"];
const LINKS: [(&str, &str); 5] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("pts/ptmx", "ptmx"),
];

/// Flags that disable set-user-id programs and devices on a mount.
const TAME: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);

/// Mounts the file system view of a job for this process, in its own mount namespace.
///
/// # Errors
/// The file system that could not be mounted.
pub(crate) fn make(jail: &Jail) -> anyhow::Result<()> {
    umask(Mode::S_IWGRP | Mode::S_IWOTH);
    let (machine, resolvers) = (fs::read_to_string("/proc/self/mountinfo")?, network::resolvers());
    mount_at(None, Path::new("/"), None, MsFlags::MS_REC | MsFlags::MS_PRIVATE, "")?;
    let base = &jail.scaffold;
    mount_at(Some("tmpfs"), base, Some("tmpfs"), TAME, "mode=0700")?;
    let [frame, nothing, root] = ["frame", "nothing", "root"].map(|name| base.join(name));
    for dir in [&nothing, &root] {
        fs::create_dir(dir)?;
    }
    let anew = ANEW.into_iter().map(Path::new);
    let places = anew.chain([jail.home.as_path()]).chain(jail.hidden.iter().map(PathBuf::as_path));
    let kept = jail.kept.iter().map(|kept| kept.path.as_path()).filter(|path| !path.starts_with(&jail.home));
    for place in places.chain([Path::new("/etc"), Path::new(NETWORKS)]).chain(kept) {
        frame_for(&frame, place)?;
    }
    fs::write(frame.join("etc/resolv.conf"), resolvers)?;
    view(&[&frame, Path::new("/")], &root)?;
    for disk in disks(&machine, &jail.hidden) {
        if disk.is_dir() {
            view(&[&nothing, &disk], &within(&root, &disk))?;
        }
    }
    devices(&root.join("dev"))?;
    kernel(&root)?;
    for hidden in &jail.hidden {
        let place = within(&root, hidden);
        // The path is missing below a directory that is mounted anew.
        fs::create_dir_all(&place).with_context(|| hidden.display().to_string())?;
        // GitHub's runner lists all directories above its own; the entries there are those that the claim may see.
        let above = jail.inside.starts_with(hidden);
        let mode = fs::metadata(hidden).map_or(0o700, |there| there.mode() & 0o777);
        let mode = if above { 0o755 } else { mode };
        mount_at(Some("tmpfs"), &place, Some("tmpfs"), TAME, &format!("mode={mode:o},size=64k"))?;
    }
    if let Some(claim) = &jail.claim {
        own(jail, claim, &root)?;
        jail.kept.iter().for_each(|kept| keep(jail, kept, &root));
    }
    for hidden in &jail.hidden {
        read_only(&within(&root, hidden))?;
    }
    // Detaches the machine's own tree; nothing remains from which it could be reached.
    chdir(&root)?;
    pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    Ok(chdir("/")?)
}

/// Returns the parts of the machine that a job's view is made of and that may change by themselves: disks, devices and
/// resolvers.
///
/// # Errors
/// A part cannot be read.
pub(crate) fn made_of() -> io::Result<String> {
    let machine = fs::read_to_string("/proc/self/mountinfo")?;
    let on_disk = |line: &&str| {
        let kind = line.split_once(" - ").and_then(|(_, kind)| kind.split(' ').next());
        kind.is_some_and(|kind| DISKS.contains(&kind))
    };
    let devices = found_devices().into_iter().map(|(name, there)| {
        format!("{} {} {:o} {} {}", name.display(), there.rdev(), there.mode(), there.uid(), there.gid())
    });
    let disks = machine.lines().filter(on_disk).map(str::to_owned);
    let lines: Vec<String> = disks.chain(devices).chain([network::resolvers()]).collect();
    Ok(lines.join("\n"))
}

/// Mounts a read-only view of directories, the first above the others. A socket or a pipe in the view is a different
/// one from that in the directory.
fn view(lower: &[&Path], place: &Path) -> anyhow::Result<()> {
    let layers: Vec<String> = lower.iter().map(|path| escaped(path)).collect();
    let options = format!("lowerdir={}", layers.join(":"));
    mount_at(Some("overlay"), place, Some("overlay"), MsFlags::MS_RDONLY | TAME, &options)
}

/// Mounts a claim's own layer over the files kept from earlier claims. If a directory cannot be mounted, its job only
/// loses the time to fetch the contents again.
fn keep(jail: &Jail, kept: &KeptMount, root: &Path) {
    let mounted = || {
        let covers = |dir: &PathBuf| dir.starts_with(&kept.path) || kept.path.starts_with(dir);
        anyhow::ensure!(!jail.hidden.iter().any(covers), "the agent's own directories are there");
        let home = kept.path.strip_prefix(&jail.home).ok();
        let (from, below, owner) = match home {
            Some(below) => (within(root, &jail.home), below, Some((jail.uid, jail.gid))),
            None => (root.to_owned(), kept.path.as_path(), None),
        };
        let place = place_for(&from, below, owner)?;
        // The image's directory shows through, unless its path contains a link.
        let plain = kept.path.canonicalize().is_ok_and(|whole| whole == kept.path);
        let image = home.is_none() && plain && kept.path.is_dir();
        let lower = [Some(kept.lower.as_path()), image.then_some(kept.path.as_path())];
        let lower: Vec<String> = lower.into_iter().flatten().map(escaped).collect();
        let (upper, work) = (escaped(&kept.upper), escaped(&kept.work));
        let options = format!(
            "lowerdir={},upperdir={upper},workdir={work},redirect_dir=nofollow,metacopy=off,index=off,xino=off",
            lower.join(":")
        );
        let place = PathBuf::from(format!("/proc/self/fd/{}", place.as_raw_fd()));
        mount_at(Some("overlay"), &place, Some("overlay"), TAME, &options)
    };
    if let Err(error) = mounted() {
        eprintln!("runyard: {} is not kept: {error:#}", kept.path.display());
    }
}

/// Escapes a path for the layer options of overlayfs.
fn escaped(path: &Path) -> String {
    let path = path.to_string_lossy();
    path.chars().flat_map(|c| "\\:,".contains(c).then_some('\\').into_iter().chain([c])).collect()
}

/// Creates a directory to mount on, and its parents with the mode and owner that they have on the machine.
fn frame_for(frame: &Path, place: &Path) -> io::Result<()> {
    let above: Vec<&Path> = place.ancestors().collect();
    for dir in above.into_iter().rev() {
        let made = within(frame, dir);
        let (mode, owner) = match fs::metadata(dir) {
            Ok(there) => (there.mode() & 0o7777, (there.uid(), there.gid())),
            Err(_) => (0o755, (0, 0)),
        };
        match fs::create_dir(&made) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        chown(&made, Some(owner.0), Some(owner.1))?;
        fs::set_permissions(&made, Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Returns the mount points of disks from `/proc/self/mountinfo` (`proc_pid_mountinfo(5)`), except the root.
fn disks(mountinfo: &str, hidden: &[PathBuf]) -> Vec<PathBuf> {
    let anew = |place: &Path| {
        ANEW.iter().any(|dir| place.starts_with(dir)) || hidden.iter().any(|dir| place.starts_with(dir))
    };
    let mut found: Vec<PathBuf> = Vec::new();
    for line in mountinfo.lines() {
        let Some((fields, kind)) = line.split_once(" - ") else { continue };
        let (Some(place), Some(kind)) = (fields.split(' ').nth(4), kind.split(' ').next()) else { continue };
        let place = PathBuf::from(unescaped(place));
        if DISKS.contains(&kind) && place != Path::new("/") && !anew(&place) && !found.contains(&place) {
            found.push(place);
        }
    }
    found.sort();
    found
}

/// Decodes blanks, which the kernel writes as octal numbers.
fn unescaped(place: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(place.to_owned(), |text, (octal, plain)| text.replace(octal, plain))
}

/// Mounts the claim's directories: all of them at the path that the agent uses, and some at the paths that every
/// program uses. A job may have replaced one of them by a link.
fn own(jail: &Jail, claim: &Path, root: &Path) -> anyhow::Result<()> {
    let inside = within(root, &jail.inside);
    fs::create_dir_all(&inside).context("the claim's place")?;
    bind(claim, &inside)?;
    for (name, place) in SHARED {
        let dir = bind(&claim.join(name), &within(root, Path::new(place)))?;
        dir.set_permissions(Permissions::from_mode(0o1777))?;
    }
    let hook = within(root, &jail.hook);
    fs::create_dir_all(&hook).context("the hook's place")?;
    bind(&jail.hook, &hook)?;
    read_only(&hook)?;
    if let Some(tree) = &jail.programs {
        programs(tree, &inside)?;
    }
    let home = within(root, &jail.home);
    // The home may be below a hidden directory.
    fs::create_dir_all(&home).context("the home's place")?;
    bind(&claim.join("home"), &home).map(drop)
}

/// Mounts the programs of the machine's one unpacked runner in each runner's directory. The directories of a claim
/// belong to its jobs: links in them are not followed.
fn programs(tree: &Path, inside: &Path) -> anyhow::Result<()> {
    for runner in RUNNERS.into_iter().filter(|runner| inside.join(runner).symlink_metadata().is_ok()) {
        for name in PROGRAMS.into_iter().filter(|name| tree.join(name).is_dir()) {
            let below = Path::new(runner).join(name);
            let open = || place_for(inside, &below, None).with_context(|| below.display().to_string());
            let (source, place) = (disk::open_dir(&tree.join(name))?, open()?);
            mount_at(Some(&by_number(&source)), Path::new(&by_number(&place)), None, MsFlags::MS_BIND, "")?;
            // The descriptor opened before refers to the directory below the new mount.
            read_only(Path::new(&by_number(&open()?)))?;
        }
    }
    Ok(())
}

/// Makes a mount read-only.
fn read_only(place: &Path) -> anyhow::Result<()> {
    mount_at(None, place, None, MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | TAME, "")
}

/// Mounts a directory, not the target of a link, at a second path.
fn bind(dir: &Path, place: &Path) -> anyhow::Result<File> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
    let open = OpenOptions::new().read(true).custom_flags(flags.bits()).open(dir);
    let open = open.with_context(|| dir.display().to_string())?;
    let source = format!("/proc/self/fd/{}", open.as_raw_fd());
    mount_at(Some(&source), place, None, MsFlags::MS_BIND, "")?;
    mount_at(None, place, None, MsFlags::MS_REMOUNT | MsFlags::MS_BIND | TAME, "")?;
    Ok(open)
}

/// Returns the machine's devices that jobs may use.
fn found_devices() -> Vec<(PathBuf, fs::Metadata)> {
    let mut names: Vec<PathBuf> = DEVICES.iter().map(PathBuf::from).collect();
    for family in FAMILIES {
        let dir = Path::new(family).parent().unwrap_or(Path::new(""));
        let entries = fs::read_dir(Path::new("/dev").join(dir)).into_iter().flatten().flatten();
        let entries = entries.map(|entry| dir.join(entry.file_name()));
        names.extend(entries.filter(|name| name.to_string_lossy().starts_with(family)));
    }
    names.sort();
    names.dedup();
    let found = names.into_iter().filter_map(|name| {
        let there = fs::symlink_metadata(Path::new("/dev").join(&name)).ok()?;
        there.file_type().is_char_device().then_some((name, there))
    });
    found.collect()
}

fn devices(dev: &Path) -> anyhow::Result<()> {
    let quiet = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    mount_at(Some("tmpfs"), dev, Some("tmpfs"), quiet, "mode=0755,size=1m")?;
    for (name, there) in found_devices() {
        let own = dev.join(&name);
        own.parent().map_or(Ok(()), fs::create_dir_all)?;
        mknod(&own, SFlag::S_IFCHR, Mode::empty(), there.rdev())
            .with_context(|| own.display().to_string())?;
        chown(&own, Some(there.uid()), Some(there.gid()))?;
        fs::set_permissions(&own, there.permissions())?;
    }
    for (target, name) in LINKS {
        symlink(target, dev.join(name))?;
    }
    for dir in ["pts", "shm", "mqueue"] {
        fs::create_dir(dev.join(dir))?;
    }
    mount_at(Some("devpts"), &dev.join("pts"), Some("devpts"), quiet, "newinstance,ptmxmode=0666,mode=0620")?;
    mount_at(Some("tmpfs"), &dev.join("shm"), Some("tmpfs"), TAME, "mode=1777")?;
    mount_at(Some("mqueue"), &dev.join("mqueue"), Some("mqueue"), TAME | MsFlags::MS_NOEXEC, "")
}

/// Mounts the kernel's file systems of these namespaces.
fn kernel(root: &Path) -> anyhow::Result<()> {
    let flags = TAME | MsFlags::MS_NOEXEC;
    mount_at(Some("tmpfs"), &root.join("run"), Some("tmpfs"), TAME, "mode=0755,size=10%")?;
    let lock = root.join("run/lock");
    fs::create_dir(&lock)?;
    fs::set_permissions(&lock, Permissions::from_mode(0o1777))?;
    mount_at(Some("proc"), &root.join("proc"), Some("proc"), flags, "")?;
    mount_at(Some("sysfs"), &root.join("sys"), Some("sysfs"), flags | MsFlags::MS_RDONLY, "")?;
    // Programs read their memory limit here; some machines do not have it.
    let groups = root.join("sys/fs/cgroup");
    let _ = mount_at(Some("cgroup2"), &groups, Some("cgroup2"), flags | MsFlags::MS_RDONLY, "");
    Ok(())
}

fn within(root: &Path, place: &Path) -> PathBuf {
    root.join(place.strip_prefix("/").unwrap_or(place))
}

fn mount_at(
    source: Option<&str>,
    place: &Path,
    kind: Option<&str>,
    flags: MsFlags,
    options: &str,
) -> anyhow::Result<()> {
    mount(source, place, kind, flags, Some(options)).with_context(|| {
        format!("{} cannot be mounted at {}", kind.or(source).unwrap_or("it"), place.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: &str = "\
22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw
23 22 0:21 / /proc rw - proc proc rw
24 22 0:22 / /dev/shm rw - tmpfs tmpfs rw
25 22 259:2 / /data/a\\040b rw - xfs /dev/nvme1n1 rw
26 22 0:40 / /mnt/share rw - nfs4 10.0.0.1:/ rw
27 22 259:3 / /var/lib/runyard rw - ext4 /dev/nvme2n1 rw
28 22 7:1 / /snap/core rw - squashfs /dev/loop1 ro
29 22 259:4 / /tmp rw - ext4 /dev/nvme3n1 rw
30 22 0:41 / /home rw - tmpfs tmpfs rw
";

    #[test]
    fn jobs_see_disks_and_nothing_of_the_network_of_memory_or_of_the_agents() {
        let seen = disks(MACHINE, &["/var/lib/runyard".into()]);
        assert_eq!(seen, [PathBuf::from("/data/a b"), PathBuf::from("/snap/core")]);
    }

    #[test]
    fn no_name_of_a_layer_is_taken_for_two() {
        assert_eq!(escaped(Path::new("/a:b,c\\d e")), "/a\\:b\\,c\\\\d e");
    }

    #[test]
    fn places_are_found_below_another_root() {
        assert_eq!(within(Path::new("/new"), Path::new("/var/tmp")), Path::new("/new/var/tmp"));
        assert_eq!(within(Path::new("/new"), Path::new("/")), Path::new("/new/"));
    }
}
