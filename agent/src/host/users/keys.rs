//! Empties the kernel's keyrings of the job user. Keyrings outlive every process, and only their user can empty them:
//! the agent's own program does so as that user, and afterwards the kernel must count no key of the user.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroI32;
use std::path::Path;
use std::time::Duration;

use linux_keyutils::{Key, KeyError, KeyRing, KeyRingIdentifier, KeySerialId};

use super::child::as_user;
use super::ids::Ids;
use crate::host::Account;
use crate::system::disk;

/// How often keyrings are emptied, and the time limit for the kernel to collect unreferenced keys: keys of a job's user
/// namespace, which no other process can reach, disappear some time after the namespace.
const TRIES: u32 = 6;
const GONE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(50);
/// The maximum number of registers that may remain; the kernel gives a user 200 keys.
const REGISTERS: u64 = 16;
/// The kernel's name of the register: the keyring in which a user namespace stores those of its users. No user can
/// create one of that name.
const REGISTER: &str = ".user_reg";
/// The keys that this process may see.
const KEYS: &str = "/proc/keys";
/// The kernel's count of each user's keys.
const COUNTS: &str = "/proc/key-users";

/// Empties the keyrings of this process's user: the user's own, those of its sessions, the persistent one, and those of
/// user namespaces. Returns the number of namespaces that still have a register of keyrings.
///
/// # Errors
/// The user is not permitted to empty one of them.
pub fn empty_keyrings() -> io::Result<usize> {
    // Each keyring is linked into a keyring of this process to learn its serial number: its special id would create it
    // again.
    let holder = KeyRing::from_special_id(KeyRingIdentifier::Process, true).map_err(said)?;
    for special in [KeyRingIdentifier::UserSession, KeyRingIdentifier::User] {
        let ring = KeyRing::from_special_id(special, false).map_err(said)?;
        holder.link_keyring(ring).map_err(said)?;
        ring.clear().map_err(said)?;
    }
    match KeyRing::get_persistent(KeyRingIdentifier::Process) {
        // The kernel may have no persistent keyrings.
        Err(KeyError::OperationNotSupported) => {}
        ring => ring.and_then(|ring| ring.clear()).map_err(said)?,
    }
    let holder = Key::from_id(KeySerialId::from(KeyRingIdentifier::Process as i32));
    let links = holder.read_to_vec().map_err(said)?;
    let (numbers, _) = links.as_chunks::<4>();
    let rings = numbers.iter().map(|number| Key::from_id(KeySerialId::from(i32::from_ne_bytes(*number))));
    // The keyrings themselves count, too, and so do their changed attributes, such as permissions.
    rings.into_iter().try_for_each(|ring| ring.invalidate()).map_err(said)?;
    empty_rings_of_namespaces()
}

/// Empties and removes the keyrings that user namespaces hold for this process's user. Such a namespace, and each key
/// in it, may outlive its processes (through a connection that no process holds), and cannot be entered then; but its
/// keyrings are listed, and grant their user all rights, regardless of possession. The register of these keyrings
/// remains as long as the namespace does: only the kernel writes to it.
fn empty_rings_of_namespaces() -> io::Result<usize> {
    let listed = disk::read(Path::new(KEYS))?.unwrap_or_default();
    let own = nix::unistd::geteuid().as_raw();
    let (registers, rings): (Vec<_>, Vec<_>) =
        rings(&String::from_utf8_lossy(&listed), own).into_iter().partition(|(_, name)| name == REGISTER);
    for (ring, _) in rings {
        // The keyring may have disappeared meanwhile; if its permissions were removed, the count reveals it.
        let emptied = keyutils_raw::keyctl_clear(ring).and_then(|()| keyutils_raw::keyctl_invalidate(ring));
        if let Err(error) = emptied {
            tracing::debug!(%error, ring = ring.get(), "a keyring cannot be emptied");
        }
    }
    Ok(registers.len())
}

/// Returns the serial numbers and names of a user's keyrings in `/proc/keys`. Its columns are: a number in hexadecimal,
/// flags, uses, a time, rights, user, group, kind and name.
fn rings(table: &str, own: u32) -> Vec<(NonZeroI32, String)> {
    let ring = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [number, _, _, _, _, user, _, "keyring", name, ..] = fields[..] else { return None };
        let number = i32::from_str_radix(number, 16).ok().filter(|_| user.parse() == Ok(own))?;
        Some((NonZeroI32::new(number)?, name.trim_end_matches(':').to_owned()))
    };
    table.lines().filter_map(ring).collect()
}

fn said(error: KeyError) -> io::Error {
    io::Error::other(format!("keyring: {error:?}"))
}

/// Moves this thread, and everything that it starts from now on, to a new session keyring. A process in a session
/// possesses everything that is linked to its keyring, regardless of the namespace.
///
/// # Errors
/// The kernel refuses the keyring.
pub(crate) fn own_session() -> io::Result<()> {
    let joined = keyutils_raw::keyctl_join_session_keyring(None).map_err(io::Error::from).map(drop);
    alone(joined, || KeyRing::from_special_id(KeyRingIdentifier::User, false).is_ok())
}

/// Checks that no other keys are accessible, given the result of joining a new session. A refusal only proves this if
/// the whole system call is refused, as in containers: a filter also applies to all processes that are started.
fn alone(joined: io::Result<()>, finds_a_ring: impl FnOnce() -> bool) -> io::Result<()> {
    match joined {
        // The kernel may have no keys.
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !finds_a_ring() => Ok(()),
        joined => joined.map_err(|e| io::Error::new(e.kind(), format!("no session keyring of its own: {e}"))),
    }
}

/// Starts a process in a session keyring that no other process is in: neither the agent's, nor that of an earlier
/// process.
///
/// # Errors
/// The process cannot be started, or there is no such keyring.
pub(crate) fn in_own_session<T>(start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    own_session()?;
    let started = start();
    // A process inherits the session of the thread that starts it; the thread leaves it again.
    own_session()?;
    started
}

/// Empties the keyrings of an account, for each of its ids that has any. Registers of namespaces that nothing else
/// keeps alive may remain: they contain nothing.
///
/// # Errors
/// Keys are left, or may be left.
pub(crate) fn no_keys(program: &Path, account: &Account, ids: &Ids) -> io::Result<()> {
    let mut why = String::from("they do not go");
    for _ in 0..TRIES {
        // Counted before the registers, since no job creates any more of these: a key that disappears between the two
        // counts only makes this one larger.
        let before = holders(ids)?;
        let mut registers = BTreeMap::new();
        for uid in before.keys() {
            let whose = Account { uid: *uid, ..account.clone() };
            // Keys that the kernel has yet to collect may use up the user's quota: then nothing can be emptied before.
            match as_user(program, &whose, &["empty-keyrings".into()]) {
                Ok(said) => drop(registers.insert(*uid, said.trim().parse().unwrap_or(0))),
                Err(error) => why = error.to_string(),
            }
        }
        if only_registers(&before, &registers) {
            return Ok(());
        }
        for _ in 0..GONE.as_millis() / LOOK.as_millis() {
            let left = holders(ids)?;
            if left.is_empty() {
                return Ok(());
            }
            if only_registers(&left, &registers) {
                break;
            }
            std::thread::sleep(LOOK);
        }
    }
    Err(io::Error::other(format!("the keyrings of {} hold keys: {why}", account.name)))
}

/// Returns whether each user has no keys other than its registers, and only a few of these: registers count toward the
/// number of keys that a user may have.
fn only_registers(keys: &BTreeMap<u32, u64>, registers: &BTreeMap<u32, u64>) -> bool {
    keys.iter().all(|(uid, keys)| registers.get(uid).is_some_and(|most| keys <= most) && *keys <= REGISTERS)
}

/// Returns the ids of an account for which the kernel counts keys, and the counts.
fn holders(ids: &Ids) -> io::Result<BTreeMap<u32, u64>> {
    // A kernel without keys has no such table.
    let table = disk::read(Path::new(COUNTS))?.unwrap_or_default();
    Ok(counted(&String::from_utf8_lossy(&table)).into_iter().filter(|(uid, _)| ids.owns(*uid)).collect())
}

/// Returns the users with keys in a table. A line contains a user, a colon, uses, and the number of keys before the
/// first slash.
fn counted(table: &str) -> BTreeMap<u32, u64> {
    let holder = |line: &str| {
        let (user, rest) = line.split_once(':')?;
        let keys: u64 = rest.split_whitespace().nth(1)?.split('/').next()?.parse().ok()?;
        Some((user.trim().parse().ok()?, keys)).filter(|_| keys > 0)
    };
    table.lines().filter_map(holder).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_started_has_no_key_of_whoever_starts_it_nor_of_what_was_started_before() {
        use linux_keyutils::{KeyPermissionsBuilder, Permission};

        // A key in a keyring is visible to the processes that possess it; with these permissions, it is visible to no
        // others.
        let held = |name: &str| {
            let ring = KeyRing::from_special_id(KeyRingIdentifier::Session, true).unwrap();
            let key = ring.add_key(name, "secret").unwrap();
            key.set_perms(KeyPermissionsBuilder::builder().posessor(Permission::ALL).build()).unwrap();
        };
        let seen = |start: &dyn Fn(&mut std::process::Command) -> io::Result<std::process::Output>| {
            let output = start(std::process::Command::new("cat").arg("/proc/keys")).unwrap();
            String::from_utf8(output.stdout).unwrap().matches("CNRY-of-the-agent").count()
        };
        if own_session().is_err() || !Path::new("/proc/keys").exists() {
            eprintln!("not tried: this kernel has no keys");
            return;
        }
        held("CNRY-of-the-agent");
        assert_eq!(seen(&|command| command.output()), 1, "a child is in its parent's session");
        assert_eq!(seen(&|command| in_own_session(|| command.output())), 0);
        assert_eq!(seen(&|command| command.output()), 0, "and the starter has left both");
    }

    #[test]
    fn where_keys_can_be_used_a_refused_session_keyring_is_an_error() {
        let refused = |errno: nix::errno::Errno| Err(io::Error::from(errno));
        assert!(alone(Ok(()), || true).is_ok());
        assert!(alone(refused(nix::errno::Errno::ENOSYS), || true).is_ok(), "a kernel without keys");
        assert!(alone(refused(nix::errno::Errno::EPERM), || false).is_ok(), "nobody has keys here");
        assert!(alone(refused(nix::errno::Errno::EPERM), || true).is_err());
        assert!(alone(refused(nix::errno::Errno::EDQUOT), || false).is_err());
    }

    #[test]
    fn keyrings_of_a_user_are_told_from_its_keys_and_from_those_of_others() {
        let table = "0a1b2c3d I--Q---     2 perm 1f3f0000  1001 65534 keyring   _uid.1001: 1\n\
                     18af5728 I--Q---     1 perm 0c030000  1001 65534 keyring   .user_reg: 2\n\
                     3d3c3b3a I--Q---     1 perm 3f010000  1001  1001 user      secret: 6\n\
                     2cae9ee2 I------     4 perm 1f030000     0     0 keyring   .builtin_trusted_keys: 4\n";
        let found: Vec<_> = rings(table, 1001).into_iter().map(|(ring, name)| (ring.get(), name)).collect();
        assert_eq!(found, [(0x0a1b_2c3d, "_uid.1001".to_owned()), (0x18af_5728, REGISTER.to_owned())]);
        assert!(rings("", 1001).is_empty());
    }

    #[test]
    fn registers_of_namespaces_may_stay_while_they_are_few_and_all_that_is_left() {
        let of = |keys: u64| BTreeMap::from([(1001, keys)]);
        assert!(only_registers(&of(2), &of(2)) && only_registers(&of(1), &of(2)));
        assert!(!only_registers(&of(3), &of(2)), "a key is left");
        assert!(!only_registers(&of(1), &BTreeMap::new()), "nobody has said what it is");
        assert!(!only_registers(&of(REGISTERS + 1), &of(REGISTERS + 1)), "they leave the next run too few");
    }

    #[test]
    fn users_with_keys_are_told_from_those_without() {
        let table = "    0:    62 61/61 53/1000000 1216/25000000\n 1001:     5 4/4 4/200 61/20000\n\
                      1002:     1 0/0 0/200 0/20000\n";
        assert_eq!(counted(table), BTreeMap::from([(0, 61), (1001, 4)]));
        assert_eq!(counted(""), BTreeMap::new());
    }
}
