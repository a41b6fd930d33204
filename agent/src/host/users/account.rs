//! Checks that the job user cannot return by any way other than a job. Its account has no shell, no password, an expiry
//! date in the past, no second name, no other group, no range of subordinate users, and an empty home that root owns;
//! so no daemon of the machine does anything for it.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::host::Account;
use crate::system::disk;

/// Shells that permit no session.
const NO_SHELLS: [&str; 4] = ["/usr/sbin/nologin", "/sbin/nologin", "/usr/bin/false", "/bin/false"];
/// An account that expired before this day, counted from 1970, is expired regardless of the machine's clock.
const LONG_AGO: u32 = 10_000;

/// The contents of the machine's account files.
#[derive(Clone, Debug, Default)]
struct Files {
    passwd: String,
    shadow: String,
    group: String,
    subuid: String,
    subgid: String,
}

/// Returns the ways in which the account can come back, as messages; empty if there are none.
///
/// # Errors
/// The machine's files cannot be read.
pub(crate) fn ways_back(etc: &Path, account: &Account, home: &Path) -> io::Result<Vec<String>> {
    let optional = |name: &str| match fs::read_to_string(etc.join(name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(disk::at(&etc.join(name), &error)),
        text => Ok(text.unwrap_or_default()),
    };
    let files = Files {
        passwd: optional("passwd")?,
        shadow: optional("shadow")?,
        group: optional("group")?,
        subuid: optional("subuid")?,
        subgid: optional("subgid")?,
    };
    let mut found = by_files(&files, account);
    found.extend(by_home(home));
    Ok(found)
}

fn by_files(files: &Files, account: &Account) -> Vec<String> {
    let mut found = Vec::new();
    let (uid, gid) = (account.uid.to_string(), account.gid.to_string());
    let Some(own) = entry(&files.passwd, &account.name) else {
        return vec!["/etc/passwd does not know it".to_owned()];
    };
    let shell = own.get(6).copied().unwrap_or_default();
    if !NO_SHELLS.contains(&shell) {
        found.push(format!("it has the shell {shell:?}"));
    }
    let others = files.passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    for other in others.filter(|other| other.first() != Some(&account.name.as_str())) {
        if other.get(2) == Some(&uid.as_str()) || other.get(3) == Some(&gid.as_str()) {
            found.push(format!("{} has its number or its group", other[0]));
        }
    }
    let shadow = entry(&files.shadow, &account.name).unwrap_or_default();
    if !shadow.get(1).is_some_and(|password| password.starts_with(['!', '*'])) {
        found.push("it may have a password".to_owned());
    }
    let ends = shadow.get(7).and_then(|day| day.parse::<u32>().ok());
    if !ends.is_some_and(|day| (1..LONG_AGO).contains(&day)) {
        found.push("it does not expire".to_owned());
    }
    for group in files.group.lines().map(|line| line.split(':').collect::<Vec<_>>()) {
        let member = group.get(3).is_some_and(|list| list.split(',').any(|name| name == account.name));
        let shared = group.get(2) == Some(&gid.as_str()) && group.get(3).is_some_and(|list| !list.is_empty());
        if member || shared {
            found.push(format!("group {} has it or shares its number", group[0]));
        }
    }
    for (file, text, id) in [("subuid", &files.subuid, account.uid), ("subgid", &files.subgid, account.gid)] {
        let gives = |line: &&str| {
            let mut fields = line.split(':');
            let owner = fields.next().unwrap_or_default();
            let mut number = || fields.next().and_then(|field| field.trim().parse::<u64>().ok());
            let range = (number().unwrap_or_default(), number().unwrap_or_default());
            owner == account.name || owner == uid || (range.0..range.0 + range.1).contains(&u64::from(id))
        };
        found.extend(text.lines().filter(gives).map(|line| format!("/etc/{file} has {line}")));
    }
    found
}

/// Returns the fields of the line for a name.
fn entry<'a>(table: &'a str, name: &str) -> Option<Vec<&'a str>> {
    table.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields[0] == name)
}

/// Checks the home directory: files that daemons read there (keys for logins, rules for mail) must come neither from a
/// job nor from an image.
fn by_home(home: &Path) -> Option<String> {
    let is = |what: &str| Some(format!("its home {} {what}", home.display()));
    match home.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => is(&format!("cannot be seen: {error}")),
        Ok(metadata) if !metadata.is_dir() => is("is no directory"),
        Ok(metadata) if metadata.uid() != 0 || metadata.permissions().mode() & 0o022 != 0 => {
            is("is not root's alone")
        }
        Ok(_) => match fs::read_dir(home).map(|mut entries| entries.next().is_none()) {
            Ok(true) => None,
            Ok(false) => is("is not empty"),
            Err(error) => is(&format!("cannot be read: {error}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Files {
        Files {
            passwd: "root:x:0:0:root:/root:/bin/bash\n\
                     ubuntu:x:1000:1000::/home/ubuntu:/bin/bash\n\
                     runyard-job:x:990:990::/home/runyard-job:/usr/sbin/nologin\n"
                .to_owned(),
            shadow: "root:*:1:0:99999:7:::\nrunyard-job:!:20000:::::1:\n".to_owned(),
            group: "docker:x:900:ubuntu\nrunyard-job:x:990:\n".to_owned(),
            subuid: "ubuntu:100000:65536\n".to_owned(),
            subgid: "ubuntu:100000:65536\n".to_owned(),
        }
    }

    fn found(change: impl FnOnce(&mut Files)) -> String {
        let mut files = good();
        change(&mut files);
        let account = Account { name: "runyard-job".to_owned(), uid: 990, gid: 990 };
        by_files(&files, &account).join("; ")
    }

    #[test]
    fn an_account_as_it_is_installed_has_no_way_back() {
        assert_eq!(found(|_| ()), "");
    }

    #[test]
    fn each_way_in_which_an_account_could_come_back_is_named() {
        let says = |words: &str, change: &dyn Fn(&mut Files)| {
            let said = found(|files| change(files));
            assert!(said.contains(words), "{words}: {said:?}");
        };
        says("the shell \"/bin/bash\"", &|f| {
            f.passwd = f.passwd.replace("/usr/sbin/nologin", "/bin/bash");
        });
        says("does not know it", &|f| f.passwd = f.passwd.replace("runyard-job", "other"));
        says("alias has its number", &|f| f.passwd += "alias:x:990:1::/:/bin/sh\n");
        says("other has its number or its group", &|f| f.passwd += "other:x:5:990::/:/bin/sh\n");
        says("password", &|f| f.shadow = f.shadow.replace(":!:", ":$6$salt$hash:"));
        says("password", &|f| f.shadow = f.shadow.replace(":!:", "::"));
        says("expire", &|f| f.shadow = f.shadow.replace(":1:\n", "::\n"));
        says("expire", &|f| f.shadow = f.shadow.replace(":1:\n", ":99999:\n"));
        says("expire", &|f| f.shadow.clear());
        says("group docker", &|f| f.group = f.group.replace(":ubuntu", ":ubuntu,runyard-job"));
        says("group runyard-job", &|f| f.group = f.group.replace("990:", "990:ubuntu"));
        says("/etc/subuid", &|f| f.subuid += "runyard-job:165536:65536\n");
        says("/etc/subgid", &|f| f.subgid += "990:165536:65536\n");
        says("/etc/subuid", &|f| f.subuid += "ubuntu:900:100\n");
    }

    #[test]
    fn a_home_that_is_anothers_or_holds_anything_is_a_way_back() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(by_home(&dir.path().join("none")), None);
        fs::write(dir.path().join("authorized_keys"), "").unwrap();
        let said = by_home(dir.path()).unwrap();
        assert!(said.contains("not empty") || said.contains("not root's"), "{said}");
        fs::remove_file(dir.path().join("authorized_keys")).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(by_home(dir.path()).unwrap().contains("not root's alone"));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/root", &link).unwrap();
        assert!(by_home(&link).unwrap().contains("no directory"));
    }
}
