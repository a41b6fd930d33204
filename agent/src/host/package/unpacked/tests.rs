use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use super::*;

/// Builds a package with programs, a link among them, and a file that everybody could write to.
fn archive() -> (Vec<u8>, String) {
    let gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut tar = tar::Builder::new(gz);
    let files = [
        ("config.sh", 0o755),
        ("run-helper.sh.template", 0o666),
        ("bin/Runner.Listener", 0o777),
        ("externals/node24/bin/node", 0o755),
    ];
    for (name, mode) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(mode);
        header.set_size(name.len() as u64);
        tar.append_data(&mut header, name, name.as_bytes()).unwrap();
    }
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    tar.append_link(&mut header, "externals/node24/bin/npm", "../lib/npm").unwrap();
    let archive = tar.into_inner().unwrap().finish().unwrap();
    let sha256 = Sha256::digest(&archive).iter().map(|byte| format!("{byte:02x}")).collect();
    (archive, sha256)
}

/// Returns the files of a package with an existing archive.
fn place(dir: &Path, apart: bool) -> Place {
    let (content, sha256) = archive();
    let place = Place {
        tree: dir.join(&sha256),
        archive: dir.join(format!("{sha256}.tar.gz")),
        complete: dir.join(format!("{sha256}.complete")),
        sha256,
        apart,
    };
    fs::write(&place.archive, content).unwrap();
    place
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().mode() & 0o7777
}

#[test]
fn a_package_is_unpacked_once_and_nobody_else_may_write_to_it() {
    let dir = tempfile::tempdir().unwrap();
    for apart in [true, false] {
        let (place, mut slot) = (place(dir.path(), apart), None);
        assert_eq!(found(&place, &mut slot).unwrap(), Found::Whole);
        for (file, wanted) in
            [("config.sh", 0o755), ("run-helper.sh.template", 0o644), ("bin/Runner.Listener", 0o755)]
        {
            assert_eq!(mode(&place.tree.join(file)), wanted, "{file}");
        }
        assert_eq!(mode(&place.tree), 0o700);
        // It is not unpacked again.
        fs::remove_file(&place.archive).unwrap();
        assert_eq!(found(&place, &mut slot).unwrap(), Found::Whole);
    }
}

#[test]
fn of_an_archive_with_another_digest_nothing_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (place, mut slot) = (place(dir.path(), true), None);
    let (whole, _) = archive();
    let longer = [&whole[..], b"x"].concat();
    for content in [&b"no archive"[..], &longer, &whole[..whole.len() - 9], b""] {
        fs::write(&place.archive, content).unwrap();
        let Found::Other(digest) = found(&place, &mut slot).unwrap() else { panic!("{content:?} was taken") };
        assert_ne!(digest, place.sha256);
        assert!(slot.is_none());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
    assert_eq!(found(&place, &mut slot).unwrap(), Found::Nothing);
}

/// Waits until the file system's clock, which is coarser than the system's, has advanced.
fn goes_on(dir: &Path) {
    let file = dir.join("now");
    let now = || {
        fs::write(&file, "x").unwrap();
        let found = file.metadata().unwrap();
        (found.ctime(), found.ctime_nsec())
    };
    let begun = now();
    while now() <= begun {
        std::thread::yield_now();
    }
    fs::remove_file(file).unwrap();
}

/// Jobs of the agent's own user could make each of these changes.
#[test]
fn an_unpacked_package_that_a_job_changed_is_unpacked_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (place, mut slot) = (place(dir.path(), false), None);
    found(&place, &mut slot).unwrap();
    let program = place.tree.join("bin/Runner.Listener");
    let rewritten = || {
        let before = program.metadata().unwrap().modified().unwrap();
        let file = File::options().write(true).open(&program).unwrap();
        io::Write::write_all(&mut &file, b"BIN/Runner.Listener").unwrap();
        file.set_modified(before).unwrap();
    };
    let replaced = || {
        fs::write(dir.path().join("other"), "bin/Runner.Listener").unwrap();
        fs::rename(dir.path().join("other"), &program).unwrap();
    };
    let changes: [(&str, &dyn Fn()); 6] = [
        ("rewritten, with its time", &rewritten),
        ("replaced", &replaced),
        ("another mode", &|| fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap()),
        ("added", &|| fs::write(place.tree.join("bin/icu.so"), "").unwrap()),
        ("removed", &|| fs::remove_file(place.tree.join("externals/node24/bin/npm")).unwrap()),
        ("all gone", &|| fs::remove_dir_all(&place.tree).unwrap()),
    ];
    for (what, change) in changes {
        goes_on(dir.path());
        change();
        assert_eq!(found(&place, &mut slot).unwrap(), Found::Whole, "{what}");
        assert_eq!(fs::read_to_string(&program).unwrap(), "bin/Runner.Listener", "{what}");
        assert_eq!(
            (mode(&program), fs::read_dir(place.tree.join("bin")).unwrap().count()),
            (0o755, 1),
            "{what}"
        );
        assert!(place.tree.join("externals/node24/bin/npm").is_symlink(), "{what}");
    }
}

#[test]
fn a_later_agent_believes_what_is_marked_whole_where_no_job_could_mark_it() {
    let dir = tempfile::tempdir().unwrap();
    for (apart, marked, believed) in [(true, true, true), (true, false, false), (false, true, false)] {
        let place = place(dir.path(), apart);
        found(&place, &mut None).unwrap();
        if marked {
            complete(&place).unwrap();
            assert!(!place.archive.exists(), "it is not needed any more");
        }
        fs::write(place.tree.join("half"), "").unwrap();
        fs::write(&place.archive, archive().0).unwrap();
        assert_eq!(found(&place, &mut None).unwrap(), Found::Whole);
        assert_eq!(place.tree.join("half").exists(), believed, "{apart} {marked}");
        fs::remove_dir_all(&place.tree).unwrap();
        let _ = fs::remove_file(&place.complete);
    }
}

#[test]
fn a_mark_beside_a_link_or_another_users_tree_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let place = place(dir.path(), true);
    let elsewhere = dir.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, &place.tree).unwrap();
    fs::write(&place.complete, "").unwrap();
    assert_eq!(found(&place, &mut None).unwrap(), Found::Whole);
    assert!(!place.tree.is_symlink() && elsewhere.exists());
    if nix::unistd::geteuid().is_root() {
        complete(&place).unwrap();
        fs::write(&place.archive, archive().0).unwrap();
        fs::write(place.tree.join("planted"), "").unwrap();
        std::os::unix::fs::chown(&place.tree, Some(54321), None).unwrap();
        assert_eq!(found(&place, &mut None).unwrap(), Found::Whole);
        assert!(!place.tree.join("planted").exists());
    }
}

#[test]
fn a_claim_has_copies_of_small_files_and_the_programs_as_they_are_shared() {
    let dir = tempfile::tempdir().unwrap();
    let place = place(dir.path(), true);
    found(&place, &mut None).unwrap();
    for share in [Share::Mounted, Share::Linked, Share::Copied] {
        let into = dir.path().join(format!("{share:?}"));
        furnish(&place.tree, &into, share).unwrap();
        assert_eq!(fs::read_to_string(into.join("config.sh")).unwrap(), "config.sh");
        let same = |name: &str| {
            let number = |root: &Path| root.join(name).metadata().ok().map(|found| found.ino());
            number(&into) == number(&place.tree)
        };
        assert!(!same("config.sh") && mode(&into.join("config.sh")) == 0o755, "{share:?}");
        let node = "externals/node24/bin/node";
        let count = |name: &str| fs::read_dir(into.join(name)).unwrap().count();
        match share {
            Share::Mounted => assert_eq!((count("bin"), count("externals")), (0, 0)),
            Share::Linked | Share::Copied => {
                assert_eq!(
                    (same(node), same("bin/Runner.Listener")),
                    (share == Share::Linked, share == Share::Linked)
                );
                assert_eq!(
                    fs::read_link(into.join("externals/node24/bin/npm")).unwrap(),
                    Path::new("../lib/npm")
                );
                assert_eq!(mode(&into.join(node)), 0o755);
            }
        }
        assert!(furnish(&place.tree, &into, share).is_err(), "what is there already is not the claim's");
    }
}
