//! Limits a claim's share of resources that the kernel counts per user and that are few. Namespaces can outlive every
//! process, and count for root, who created the jail. The limits are those of a user namespace, and jobs have no right
//! to change them there; the container engine has this right in its own.

use std::fs;

use anyhow::Context;

/// The number of namespaces that the sandboxes and containers of one job need at the same time.
const NAMESPACES: u32 = 256;
/// Less than [`MACHINE_INOTIFY`] by the number that a machine needs itself.
const INOTIFY: u32 = 512;
/// The limit for all users of a machine; Ubuntu's default is 128, which one job could use up alone.
pub(crate) const MACHINE_INOTIFY: u32 = 2048;
/// Limits by their names in `namespaces(7)` and `inotify(7)`.
const BOUNDS: [(&str, u32); 4] = [
    ("max_net_namespaces", NAMESPACES),
    ("max_user_namespaces", NAMESPACES),
    ("max_mnt_namespaces", NAMESPACES),
    ("max_inotify_instances", INOTIFY),
];

/// Sets the limits of this process's user namespace, in which it has all rights.
///
/// # Errors
/// The kernel does not permit it.
pub(crate) fn bound() -> anyhow::Result<()> {
    for (name, most) in BOUNDS {
        let path = format!("/proc/sys/user/{name}");
        // The kernel may lack that kind of namespace.
        if fs::exists(&path)? {
            fs::write(&path, most.to_string()).context(path)?;
        }
    }
    Ok(())
}
