//! Histories of claims: trusted ones, pull requests, forks, failed and killed ones, full disks, and losses of power at
//! every step of a promotion. Each claim writes words of its own; none may ever read a word of one that was not
//! promoted, or of another repository. In a model of 10 000 histories, and in 1 000 on real overlays.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use runyard_core::model::Keep;

use super::store::{KeptStore, Promoted};

const UID: u32 = 64_017;
const REPOSITORIES: [&str; 2] = ["acme/api", "acme/web"];

/// How a claim ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// A trusted run that succeeded: it is promoted.
    Trusted,
    /// A pull request, a fork, or a failed or killed run: the operator names nothing.
    Untrusted,
    /// Nobody answered in time, or the agent began again.
    Unanswered,
    /// A trusted run on a full disk: its layer cannot be kept.
    DiskFull,
    /// The power was lost in the middle: at the start the store recovers.
    PowerLost,
    /// Its runner was cleaned away in the middle, and its next one began anew.
    Renewed,
}

const ENDS: [End; 8] = [
    End::Trusted,
    End::Untrusted,
    End::Untrusted,
    End::Unanswered,
    End::DiskFull,
    End::PowerLost,
    End::Renewed,
    End::Trusted,
];

fn keep() -> Keep {
    serde_json::from_value(serde_json::json!({"name": "cache", "path": "~/.cache/x"})).unwrap()
}

/// A store as the model has it: the words that a generation of each repository holds.
#[derive(Default)]
struct Model {
    generations: BTreeMap<usize, BTreeMap<String, String>>,
}

/// What a claim does to a directory: writes a word under a name, or removes a name.
fn changes(random: &mut StdRng, claim: usize) -> Vec<(String, Option<String>)> {
    let number = random.random_range(0..5);
    (0..number)
        .map(|at| {
            let name =
                format!("{}{}", ["", "d/", "d/e/"][random.random_range(0..3)], random.random_range(0..4));
            (name, (random.random_range(0..4) > 0).then(|| format!("{claim}.{at}")))
        })
        .collect()
}

impl Model {
    fn promote(&mut self, repository: usize, changes: &[(String, Option<String>)]) {
        let words = self.generations.entry(repository).or_default();
        for (name, word) in changes {
            match word {
                Some(word) => drop(words.insert(name.clone(), word.clone())),
                None => drop(words.remove(name)),
            }
        }
    }
}

/// One that keeps words beside what they are allowed to be: whose they are and whether their claim was promoted.
fn read_only_promoted(
    words: &BTreeMap<String, String>,
    promoted: &BTreeMap<usize, usize>,
    repository: usize,
) {
    for word in words.values() {
        let claim: usize = word.split('.').next().unwrap().parse().unwrap();
        assert_eq!(promoted.get(&claim), Some(&repository), "{word} is read by a run of {repository}");
    }
}

#[test]
fn in_ten_thousand_histories_no_run_reads_a_byte_that_was_not_promoted() {
    for seed in 0..10_000 {
        let mut random = StdRng::seed_from_u64(seed);
        let (mut model, mut promoted) = (Model::default(), BTreeMap::new());
        for claim in 0..8 {
            let repository = random.random_range(0..REPOSITORIES.len());
            let found = model.generations.get(&repository).cloned().unwrap_or_default();
            read_only_promoted(&found, &promoted, repository);
            let made = changes(&mut random, claim);
            match ENDS[random.random_range(0..ENDS.len())] {
                End::Trusted => {
                    promoted.insert(claim, repository);
                    model.promote(repository, &made);
                }
                End::Untrusted | End::Unanswered | End::DiskFull | End::Renewed => {}
                // Either the old one or the new one, and nothing between.
                End::PowerLost => {
                    if random.random_bool(0.5) {
                        promoted.insert(claim, repository);
                        model.promote(repository, &made);
                    }
                }
            }
        }
    }
}

/// The words in a tree.
fn words(tree: &Path) -> BTreeMap<String, String> {
    let (mut found, mut open) = (BTreeMap::new(), vec![tree.to_owned()]);
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).unwrap().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                open.push(entry.path());
            } else if kind.is_file() {
                let name = entry.path().strip_prefix(tree).unwrap().display().to_string();
                found.insert(name, fs::read_to_string(entry.path()).unwrap());
            }
        }
    }
    found
}

/// Nothing in a generation is a device, a pipe or a socket, lends rights, has attributes, or is somebody else's.
fn only_plain(tree: &Path) {
    for entry in fs::read_dir(tree).unwrap().flatten() {
        let (path, found) = (entry.path(), entry.metadata().unwrap());
        let kind = found.file_type();
        assert!(kind.is_dir() || kind.is_file() || kind.is_symlink(), "{}", path.display());
        assert!(kind.is_symlink() || found.mode() & 0o6000 == 0, "{}", path.display());
        assert_eq!((found.uid(), found.gid()), (UID, UID), "{}", path.display());
        assert_eq!(rustix::fs::llistxattr(&path, &mut [0; 256][..]), Ok(0), "{}", path.display());
        if kind.is_dir() {
            only_plain(&path);
        }
    }
}

/// A mount that ends with the test.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(&self.0, nix::mount::MntFlags::MNT_DETACH);
    }
}

fn overlay(kept: &super::KeptMount, place: &Path) -> Mounted {
    let options = format!(
        "lowerdir={},upperdir={},workdir={},redirect_dir=nofollow,metacopy=off,index=off,xino=off",
        kept.lower.display(),
        kept.upper.display(),
        kept.work.display()
    );
    let flags = nix::mount::MsFlags::MS_NOSUID | nix::mount::MsFlags::MS_NODEV;
    nix::mount::mount(Some("overlay"), place, Some("overlay"), flags, Some(options.as_str())).unwrap();
    Mounted(place.to_owned())
}

/// As root, and where overlays can be mounted: in memory, which keeps what they note.
fn arena() -> Option<(tempfile::TempDir, Mounted)> {
    let aloud = |why: &str| {
        let text = format!("\n******\nkeep/histories.rs: NOT RUN: {why}\n******\n");
        std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes()).unwrap();
        None
    };
    if !nix::unistd::geteuid().is_root() {
        return aloud("it needs root");
    }
    let dir = tempfile::tempdir().unwrap();
    let options = Some("size=64m,mode=0700");
    match nix::mount::mount(Some("tmpfs"), dir.path(), Some("tmpfs"), nix::mount::MsFlags::empty(), options) {
        Ok(()) => {
            let mounted = Mounted(dir.path().to_owned());
            Some((dir, mounted))
        }
        Err(why) => aloud(&format!("tmpfs cannot be mounted: {why}")),
    }
}

/// Writes as a job does, and leaves what no cache should hold.
fn write(place: &Path, changes: &[(String, Option<String>)], random: &mut StdRng) {
    for (name, word) in changes {
        let path = place.join(name);
        match word {
            Some(word) => {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                // Anew, as tools do; now and then in place.
                if random.random_bool(0.5) {
                    let _ = fs::remove_file(&path);
                }
                fs::write(&path, word).unwrap();
                chown(&path, Some(UID), Some(UID)).unwrap();
            }
            None => drop(fs::remove_file(&path)),
        }
    }
    match random.random_range(0..6) {
        0 => {
            let _ = fs::remove_dir_all(place.join("d"));
            let _ = fs::create_dir(place.join("d"));
        }
        1 => drop(symlink("/etc/passwd", place.join("link"))),
        2 => {
            let _ = fs::write(place.join("suid"), "0.suid");
            let _ = fs::set_permissions(place.join("suid"), fs::Permissions::from_mode(0o6755));
            let _ = fs::remove_file(place.join("suid"));
        }
        3 => drop(nix::unistd::mkfifo(&place.join("pipe"), nix::sys::stat::Mode::S_IRWXU)),
        _ => {}
    }
}

/// Ends a claim, and what its repository has by right from then on.
fn finish(
    root: &Path,
    store: &KeptStore,
    (id, repository): (&str, &str),
    keep: &[Keep],
    end: End,
    (right, after): (&mut BTreeMap<String, String>, BTreeMap<String, String>),
) {
    let names = ["cache".to_owned()];
    match end {
        End::Trusted => {
            store.settle(id, repository, keep, &names).unwrap();
            *right = after;
        }
        End::Untrusted | End::Unanswered | End::Renewed => {
            store.settle(id, repository, keep, &["other".to_owned()]).unwrap();
        }
        End::DiskFull => {
            // Nothing is small enough for a directory of no size; it begins anew.
            let mut none = keep.to_vec();
            none[0].max_gib = 0;
            let settled = store.settle(id, repository, &none, &names).unwrap();
            match &settled["cache"] {
                Promoted::Dropped(_) => *right = BTreeMap::new(),
                // Only directories are left in it, which take no room.
                Promoted::As(_) => *right = after,
                Promoted::Unchanged => {}
            }
        }
        End::PowerLost => {
            // It was taken, and partly laid over a copy that never got its number.
            fs::rename(root.join("keep/layers").join(id), root.join("keep/taken")).unwrap();
            store.recover().unwrap();
            assert!(!root.join("keep/taken").exists());
        }
    }
}

/// One history on the disk; how often something was promoted.
fn history(root: &Path, seed: u64) -> u32 {
    let mut random = StdRng::seed_from_u64(seed);
    let place = root.join("place");
    let store = KeptStore::new(root.join("keep"), (UID, UID)).leaving_free(0);
    let (keep, home) = ([keep()], Path::new("/home/x"));
    // The words that each repository has by right.
    let (mut right, mut promotions) = ([BTreeMap::new(), BTreeMap::new()], 0);
    fs::create_dir_all(&place).unwrap();
    for claim in 0..6 {
        let at = random.random_range(0..REPOSITORIES.len());
        let (id, repository) = (format!("i-{seed}.{claim}"), REPOSITORIES[at]);
        let mut mounts = store.lend(&id, repository, &keep, home).unwrap();
        assert_eq!(mounts[0].path, home.join(".cache/x"));
        let mut mounted = overlay(&mounts[0], &place);
        assert_eq!(words(&place), right[at], "seed {seed} claim {claim}");
        let made = changes(&mut random, claim);
        write(&place, &made, &mut random);
        let end = ENDS[random.random_range(0..ENDS.len())];
        assert!(store.settle(&id, repository, &keep, &[]).is_err(), "it is mounted");
        if end == End::Renewed {
            drop(mounted);
            store.forget(&id).unwrap();
            mounts = store.lend(&id, repository, &keep, home).unwrap();
            mounted = overlay(&mounts[0], &place);
            assert_eq!(words(&place), right[at], "seed {seed} claim {claim}: what the first runner wrote");
        }
        let after = words(&place);
        drop(mounted);
        promotions += u32::from(end == End::Trusted);
        let claim = (id.as_str(), repository);
        finish(root, &store, claim, &keep, end, (&mut right[at], after));
        if let Some(tree) = tree(&store, repository, &keep[0]) {
            only_plain(&tree);
        }
        assert!(store.kept().unwrap().len() <= REPOSITORIES.len());
    }
    promotions
}

fn tree(store: &KeptStore, repository: &str, keep: &Keep) -> Option<PathBuf> {
    let kept = store.lend("look", repository, std::slice::from_ref(keep), Path::new("/home/x")).unwrap();
    store.forget("look").unwrap();
    (!kept[0].lower.ends_with("empty")).then(|| kept[0].lower.clone())
}

#[test]
fn on_a_thousand_real_overlays_no_run_reads_a_byte_that_was_not_promoted() {
    let Some((dir, _mounted)) = arena() else { return };
    let mut promotions = 0;
    for seed in 0..1000 {
        let root = dir.path().join(seed.to_string());
        fs::create_dir(&root).unwrap();
        promotions += history(&root, seed);
        crate::host::remove::remove(&root).unwrap();
    }
    assert!(promotions > 1000, "{promotions}");
}
