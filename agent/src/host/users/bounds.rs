//! Bounds what a claim may have of what the kernel counts for each user and has few of. Namespaces can outlive every
//! process, and count for root, who made the jail. The bounds are those of a user namespace, and jobs have no right to
//! change them there; the engine of containers has, in its own.

use std::fs;

use anyhow::Context;

/// As much as the sandboxes and containers of one job need at the same time.
const NAMESPACES: u32 = 256;
/// Less than [`MACHINE_INOTIFY`] by as much as a machine needs itself.
const INOTIFY: u32 = 512;
/// What a machine has for all its users; Ubuntu's default is 128, which one job could have alone.
pub(crate) const MACHINE_INOTIFY: u32 = 2048;
/// By the names of `namespaces(7)` and `inotify(7)`.
const BOUNDS: [(&str, u32); 4] = [
    ("max_net_namespaces", NAMESPACES),
    ("max_user_namespaces", NAMESPACES),
    ("max_mnt_namespaces", NAMESPACES),
    ("max_inotify_instances", INOTIFY),
];

/// Bounds the user namespace of this process, which has all rights in it.
///
/// # Errors
/// The kernel does not let it.
pub(crate) fn bound() -> anyhow::Result<()> {
    for (name, most) in BOUNDS {
        let path = format!("/proc/sys/user/{name}");
        // A kernel without that kind of namespace.
        if fs::exists(&path)? {
            fs::write(&path, most.to_string()).context(path)?;
        }
    }
    Ok(())
}
