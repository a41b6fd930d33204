use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use runyard_core::model::Keep;
use rustix::fs::{Gid, Uid};

use super::merge::{build, measure};
use super::store::{KeptStore, Promoted};

fn keep(name: &str, path: &str) -> Keep {
    serde_json::from_value(serde_json::json!({"name": name, "path": path})).unwrap()
}

/// Creates a store that belongs to the current user, so that it needs no root.
fn store(root: &Path) -> KeptStore {
    let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    KeptStore::new(root.join("keep"), (uid, gid)).leaving_free(0)
}

/// Runs a claim that writes one file, and promotes its layer if it is named.
fn claim(store: &KeptStore, id: &str, repository: &str, keep: &[Keep], names: &[&str]) -> Promoted {
    let mounts = store.lend(id, repository, keep, Path::new("/home/x")).unwrap();
    fs::write(mounts[0].upper.join("file"), id).unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    store.settle(id, repository, keep, &names).unwrap().remove(&keep[0].name).unwrap()
}

fn found(store: &KeptStore, repository: &str, keep: &[Keep]) -> Option<String> {
    let mounts = store.lend("look", repository, keep, Path::new("/home/x")).unwrap();
    let found = fs::read_to_string(mounts[0].lower.join("file")).ok();
    store.forget("look").unwrap();
    found
}

#[test]
fn only_what_the_operator_names_is_kept_and_only_for_its_repository() {
    let dir = tempfile::tempdir().unwrap();
    let (store, keep) = (store(dir.path()), [keep("npm", "~/.npm")]);
    assert!(matches!(claim(&store, "c1", "acme/web", &keep, &[]), Promoted::Dropped(_)));
    assert!(matches!(claim(&store, "c2", "acme/web", &keep, &["cargo"]), Promoted::Dropped(_)));
    assert_eq!(found(&store, "acme/web", &keep), None);
    assert_eq!(claim(&store, "c3", "acme/web", &keep, &["npm"]), Promoted::As(1));
    assert_eq!(claim(&store, "c4", "acme/web", &keep, &["npm"]), Promoted::As(2));
    assert_eq!(found(&store, "acme/web", &keep).as_deref(), Some("c4"));
    assert_eq!(found(&store, "acme/api", &keep), None);
    assert_eq!(found(&store, "acme/web", &[self::keep("npm", "~/.npm2")]), None, "another path");
    let kept = store.kept().unwrap();
    assert_eq!((kept.len(), kept["npm"].repository.as_str(), kept["npm"].generation), (1, "acme/web", 2));
}

#[test]
fn the_second_repository_of_a_name_has_a_number_behind_it() {
    let dir = tempfile::tempdir().unwrap();
    let (store, keep) = (store(dir.path()), [keep("npm", "~/.npm")]);
    for n in 0..12 {
        assert_eq!(claim(&store, "c", &format!("acme/{n}"), &keep, &["npm"]), Promoted::As(1));
    }
    let kept = store.kept().unwrap();
    assert_eq!(kept.len(), 10, "no more than a record shows");
    assert!(
        kept.contains_key("npm") && kept.contains_key("npm#2") && kept.contains_key("npm#10"),
        "{kept:?}"
    );
}

#[test]
fn a_crash_at_any_moment_leaves_the_old_generation_or_the_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let (store, keep) = (store(dir.path()), [keep("npm", "~/.npm")]);
    claim(&store, "c1", "acme/web", &keep, &["npm"]);
    let mounts = store.lend("c2", "acme/web", &keep, Path::new("/home/x")).unwrap();
    let place = mounts[0].lower.parent().unwrap().parent().unwrap().to_owned();
    fs::write(mounts[0].upper.join("file"), "c2").unwrap();
    // While the next generation was built.
    fs::create_dir_all(place.join("next/tree")).unwrap();
    fs::write(place.join("next/tree/file"), "half").unwrap();
    fs::create_dir_all(dir.path().join("keep/taken/npm/upper")).unwrap();
    store.recover().unwrap();
    assert!(!place.join("next").exists() && !dir.path().join("keep/taken").exists());
    assert!(mounts[0].upper.join("file").exists(), "its jobs may still run");
    assert_eq!(found(&store, "acme/web", &keep).as_deref(), Some("c1"));
    // After the next generation got its number, before the last one was removed.
    fs::create_dir_all(place.join("2/tree")).unwrap();
    fs::write(place.join("2/tree/file"), "whole").unwrap();
    fs::copy(place.join("1/about"), place.join("2/about")).unwrap();
    store.recover().unwrap();
    assert!(!place.join("1").exists());
    assert_eq!(found(&store, "acme/web", &keep).as_deref(), Some("whole"));
    // Unreadable generations are removed, and nothing else.
    fs::write(place.join("2/about"), "{").unwrap();
    assert_eq!(found(&store, "acme/web", &keep), None);
    assert_eq!(claim(&store, "c3", "acme/web", &keep, &["npm"]), Promoted::As(1));
}

#[test]
fn a_layer_is_laid_over_the_generation_below_it_although_the_disk_is_short() {
    let dir = tempfile::tempdir().unwrap();
    let (store, keep) = (store(dir.path()), [keep("npm", "~/.npm")]);
    let short = store.clone().leaving_free(u64::MAX);
    let home = Path::new("/home/x");
    claim(&store, "c1", "acme/web", &keep, &["npm"]);
    let mounts = store.lend("c2", "acme/web", &keep, home).unwrap();
    fs::write(mounts[0].upper.join("more"), "c2").unwrap();
    assert_eq!(short.lend("c2", "acme/web", &keep, home).unwrap(), mounts, "its runner is started again");
    assert_eq!(fs::read_to_string(mounts[0].lower.join("file")).unwrap(), "c1");
    let settled = short.settle("c2", "acme/web", &keep, &["npm".to_owned()]).unwrap();
    assert_eq!(settled["npm"], Promoted::As(2), "over the first, before room is made");
    assert_eq!(found(&store, "acme/web", &keep), None, "and then it goes whole");
}

#[test]
fn a_layer_whose_generation_is_gone_is_dropped() {
    /// Damages a generation or the layer above it.
    type Spoil = fn(&Path, &Path);
    let npm = [keep("npm", "~/.npm")];
    let spoils: [(&str, Spoil); 4] = [
        ("it cannot be read", |generation, _| fs::write(generation.join("about"), "{").unwrap()),
        ("it was removed", |generation, _| fs::remove_dir_all(generation).unwrap()),
        ("another is there", |generation, _| {
            fs::rename(generation, generation.with_file_name("7")).unwrap();
        }),
        ("none is named", |_, layer| fs::remove_file(layer.join("base")).unwrap()),
    ];
    for (why, spoil) in spoils {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path());
        claim(&store, "c1", "acme/web", &npm, &["npm"]);
        let mounts = store.lend("c2", "acme/web", &npm, Path::new("/home/x")).unwrap();
        fs::write(mounts[0].upper.join("more"), "c2").unwrap();
        spoil(mounts[0].lower.parent().unwrap(), mounts[0].upper.parent().unwrap());
        let settled = store.settle("c2", "acme/web", &npm, &["npm".to_owned()]).unwrap();
        assert!(matches!(settled["npm"], Promoted::Dropped(_)), "{why}: {settled:?}");
        let more = store.lend("look", "acme/web", &npm, Path::new("/home/x")).unwrap()[0].lower.join("more");
        assert!(!more.exists(), "{why}");
    }
}

#[test]
fn what_grew_too_large_begins_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (store, mut keep) = (store(dir.path()), [keep("npm", "~/.npm")]);
    claim(&store, "c1", "acme/web", &keep, &["npm"]);
    let mounts = store.lend("c2", "acme/web", &keep, Path::new("/home/x")).unwrap();
    fs::write(mounts[0].upper.join("file"), "c2").unwrap();
    keep[0].max_gib = 0;
    let settled = store.settle("c2", "acme/web", &keep, &["npm".to_owned()]).unwrap();
    assert!(matches!(settled["npm"], Promoted::Dropped(_)), "{settled:?}");
    keep[0].max_gib = 1;
    assert_eq!(found(&store, "acme/web", &keep), None);
}

#[test]
fn nothing_is_kept_that_covers_the_home_or_another_directory() {
    let home = Path::new("/home/x");
    let usable = |keep: &[Keep]| -> Vec<String> {
        crate::host::jail::kept_mount::usable(keep, home).into_iter().map(|keep| keep.path.clone()).collect()
    };
    assert_eq!(usable(&[keep("a", "~/.npm"), keep("b", "/home/x/.npm/x")]), ["~/.npm"]);
    assert_eq!(usable(&[keep("a", "/home/x")]), Vec::<String>::new());
    assert_eq!(usable(&[keep("a", "/etc/x"), keep("b", "~/.npm")]), Vec::<String>::new());
}

#[test]
fn a_layer_is_laid_over_a_generation_without_changing_it() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for sub in ["old/kept", "old/gone", "new/kept"] {
        fs::create_dir_all(at(sub)).unwrap();
    }
    fs::write(at("old/kept/same"), "old").unwrap();
    fs::write(at("old/kept/changed"), "old").unwrap();
    fs::write(at("old/becomes-dir"), "old").unwrap();
    fs::write(at("old/gone/file"), "old").unwrap();
    fs::write(at("outside"), "not to be touched").unwrap();
    fs::set_permissions(at("outside"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(at("new/kept/changed"), "new").unwrap();
    fs::set_permissions(at("new/kept/changed"), fs::Permissions::from_mode(0o6711)).unwrap();
    fs::create_dir(at("new/becomes-dir")).unwrap();
    fs::write(at("new/gone"), "a file now").unwrap();
    symlink(at("outside"), at("new/link")).unwrap();
    symlink(at("old"), at("new/dirlink")).unwrap();
    nix::unistd::mkfifo(&at("new/pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("new/socket")).unwrap();
    let owner = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    let owner = (Uid::from_raw(owner.0), Gid::from_raw(owner.1));
    build(Some(&at("old")), &at("new"), &at("next"), owner).unwrap();
    let read = |name: &str| fs::read_to_string(at(name)).unwrap();
    assert_eq!((read("next/kept/same"), read("next/kept/changed")), ("old".to_owned(), "new".to_owned()));
    assert_eq!(read("old/kept/changed"), "old");
    assert_eq!(fs::metadata(at("next/kept/changed")).unwrap().mode() & 0o7777, 0o711);
    assert!(at("next/becomes-dir").is_dir() && read("old/becomes-dir") == "old");
    assert_eq!(read("next/gone"), "a file now");
    assert!(at("old/gone/file").exists());
    assert!(fs::symlink_metadata(at("next/link")).unwrap().is_symlink());
    assert_eq!(fs::metadata(at("outside")).unwrap().mode() & 0o7777, 0o600);
    assert!(!at("next/pipe").exists() && !at("next/socket").exists());
    let size = measure(&at("next")).unwrap();
    assert_eq!(size.entries, 7);
}

#[test]
fn a_tree_deeper_than_is_kept_is_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (store, keep) = (store(dir.path()), [keep("npm", "~/.npm")]);
    let mounts = store.lend("c", "acme/web", &keep, Path::new("/home/x")).unwrap();
    fs::create_dir_all(mounts[0].upper.join("d/".repeat(300))).unwrap();
    let settled = store.settle("c", "acme/web", &keep, &["npm".to_owned()]).unwrap();
    assert!(matches!(settled["npm"], Promoted::Dropped(_)), "{settled:?}");
    assert_eq!(store.kept().unwrap().len(), 0);
}

#[test]
fn attributes_by_which_an_overlay_takes_files_from_elsewhere_are_not_believed() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("\n****** keep/tests.rs: NOT RUN: attributes of overlays need root ******\n");
        return;
    }
    let owner = (Uid::from_raw(0), Gid::from_raw(0));
    for (name, value, good) in [
        ("trusted.overlay.redirect", "/etc", false),
        ("trusted.overlay.metacopy", "", false),
        ("trusted.overlay.opaque", "x", false),
        ("trusted.overlay.opaque", "y", true),
        ("user.overlay.redirect", "/etc", true),
        ("user.overlay.opaque", "y", true),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("old/d")).unwrap();
        fs::write(at("old/d/below"), "old").unwrap();
        fs::create_dir_all(at("new/d")).unwrap();
        fs::write(at("new/d/file"), "new").unwrap();
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::lsetxattr(at("new/d"), name, value.as_bytes(), flags).unwrap();
        let built = build(Some(&at("old")), &at("new"), &at("next"), owner);
        assert_eq!(built.is_ok(), good, "{name}={value}: {built:?}");
        if good {
            assert_eq!(at("next/d/below").exists(), name.starts_with("user"), "{name}={value}");
        }
    }
}
