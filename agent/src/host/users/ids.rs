//! The user ids of the job account: its own id, the subordinate ids that it may map into a user namespace, and the ids
//! of the users in its containers. A process or file of any of them counts as the job's own.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;

use crate::host::Account;
use crate::system::disk;

/// The ids of container users other than root, as the machine numbers them: outside of the ranges for accounts
/// (`useradd`), for systemd's own containers and for its dynamic users.
pub(crate) const SUBORDINATE: Range<u32> = 0x7000_0000..0x7001_0000;

/// The ids of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ids {
    uids: Vec<Range<u32>>,
    gids: Vec<Range<u32>>,
}

impl Ids {
    /// Returns the account's own ids, those of its containers, and the ranges that `subuid(5)` and `subgid(5)` assign
    /// to it.
    ///
    /// # Errors
    /// One of the two files exists and cannot be read.
    pub(crate) fn of(account: &Account) -> io::Result<Self> {
        let ranges = |path: &str, own: u32| {
            let table = disk::read(Path::new(path))?.unwrap_or_default();
            let more = subordinate(&String::from_utf8_lossy(&table), account);
            Ok::<_, io::Error>([own..own + 1, SUBORDINATE].into_iter().chain(more).collect())
        };
        Ok(Self { uids: ranges("/etc/subuid", account.uid)?, gids: ranges("/etc/subgid", account.gid)? })
    }

    /// Returns whether a user id belongs to the account.
    pub(crate) fn owns(&self, uid: u32) -> bool {
        self.uids.iter().any(|range| range.contains(&uid))
    }

    /// Returns whether a group id belongs to the account.
    pub(crate) fn has(&self, gid: u32) -> bool {
        self.gids.iter().any(|range| range.contains(&gid))
    }

    /// Returns whether a mode grants the account read (4), write (2) or search (1) access to a file of another user.
    pub(crate) fn may(&self, mode: u16, gid: u32, right: u16) -> bool {
        let bits = if self.has(gid) { mode >> 3 } else { mode };
        bits & right != 0
    }

    /// Returns whether any user id of a process belongs to the account: the four of the line `Uid` of
    /// `proc_pid_status(5)`. Unlike the owner of the process's directory, they are also correct for a process that
    /// cannot be dumped.
    pub(crate) fn run(&self, pid: i32) -> bool {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let users = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
        users.split_whitespace().filter_map(|uid| uid.parse().ok()).any(|uid| self.owns(uid))
    }
}

/// Returns the ranges of an account in a table of lines `name or id:first:count`.
fn subordinate(table: &str, account: &Account) -> Vec<Range<u32>> {
    let uid = account.uid.to_string();
    let range = |line: &str| {
        let mut fields = line.trim().split(':');
        let whose = fields.next()?;
        let (first, count) = (fields.next()?.parse::<u32>().ok()?, fields.next()?.parse::<u32>().ok()?);
        (whose == account.name || whose == uid).then(|| first..first.saturating_add(count))
    };
    table.lines().filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "a range of ids is what is meant")]
    fn the_ranges_of_an_account_are_its_own_by_name_or_by_number() {
        let account = Account { name: "runner".to_owned(), uid: 1001, gid: 1001 };
        let table = "ubuntu:100000:65536\nrunner:165536:65536\n1001:300000:2\nrunner2:1:9\nbroken\n";
        let uids = [vec![1001..1002], subordinate(table, &account)].concat();
        let ids = Ids { uids, gids: vec![1001..1002] };
        let owned: Vec<_> = [1001, 165_536, 231_071, 300_001].map(|uid| ids.owns(uid)).to_vec();
        assert_eq!(owned, [true; 4]);
        let others: Vec<_> = [0, 1002, 100_000, 231_072, 300_002, 5].map(|uid| ids.owns(uid)).to_vec();
        assert_eq!(others, [false; 6]);
        assert!(ids.may(0o664, 1001, 2) && !ids.may(0o664, 0, 2) && ids.may(0o666, 0, 2));
        assert!(!ids.may(0o606, 1001, 2), "the bits of its group are what counts for the group");
    }
}
