//! Tests histories of claims: trusted ones, pull requests, forks, failed and killed ones, full disks, and power losses
//! at every step of a promotion. Each claim writes words of its own; no claim may ever read a word of one that was not
//! promoted, or of another repository. Runs 10 000 histories in a model, and 1 000 on real overlays.
//! Over 400 lines: the model and the disk have the same ends and the same planted mistakes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use runyard_core::model::Keep;

use super::store::{KeptStore, Promoted};
use crate::host::files::remove::remove;
use crate::host::jail::kept_mount::KeptMount;

const UID: u32 = 64_017;
const REPOSITORIES: [&str; 2] = ["acme/api", "acme/web"];

/// The end of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// A run of a trusted branch in which all jobs succeeded: the only one that is promoted.
    Trusted,
    PullRequest,
    Fork,
    /// A run of a trusted branch in which a job failed.
    Failed,
    /// A run that was cancelled, or that lost its machine's agent.
    Killed,
    /// GitHub does not answer in time: the record has no verdict on this claim, or still the one on an earlier claim.
    Unanswered,
    /// A trusted run on a full disk: its layer cannot be kept.
    DiskFull,
    /// The power was lost in the middle: the store recovers at the start.
    PowerLost,
    /// The runner was cleaned up in the middle, and the next runner started from the beginning.
    Renewed,
}

const ENDS: [End; 11] = [
    End::Trusted,
    End::PullRequest,
    End::Fork,
    End::Failed,
    End::Killed,
    End::Unanswered,
    End::DiskFull,
    End::PowerLost,
    End::Renewed,
    End::Trusted,
    End::Trusted,
];

impl End {
    /// Returns the operator's verdict on the claim's writes, from GitHub's record; `None` if GitHub does not answer.
    fn verdict(self) -> Option<bool> {
        match self {
            Self::Trusted | Self::DiskFull | Self::PowerLost => Some(true),
            Self::PullRequest | Self::Fork | Self::Failed | Self::Killed | Self::Renewed => Some(false),
            Self::Unanswered => None,
        }
    }
}

/// A bug of a machine that the histories must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// Promotes without a verdict.
    NoVerdict,
    /// Uses the verdict on an earlier claim for this one.
    AnothersVerdict,
    /// Promotes regardless of the verdict.
    AnyVerdict,
}

const BUGS: [Bug; 3] = [Bug::NoVerdict, Bug::AnothersVerdict, Bug::AnyVerdict];

/// Returns whether a machine promotes a claim's writes, given the verdict in its record on this claim or an earlier
/// one.
fn promotes(bug: Bug, claim: usize, word: Option<(usize, bool)>) -> bool {
    let answered = word.filter(|(of, _)| *of == claim);
    match bug {
        Bug::None => answered.is_some_and(|(_, yes)| yes),
        Bug::NoVerdict => answered.is_none_or(|(_, yes)| yes),
        Bug::AnothersVerdict => word.is_some_and(|(_, yes)| yes),
        Bug::AnyVerdict => answered.is_some(),
    }
}

fn keep() -> Keep {
    serde_json::from_value(serde_json::json!({"name": "cache", "path": "~/.cache/x"})).unwrap()
}

/// A model of the store: the words in the generation of each repository.
#[derive(Default)]
struct Model {
    generations: BTreeMap<usize, BTreeMap<String, String>>,
}

/// Generates a claim's changes to a directory: each writes a word to a name, or removes a name.
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

/// Checks that each of these words is from a trusted claim of this repository that succeeded.
fn only_trusted(
    words: &BTreeMap<String, String>,
    trusted: &BTreeMap<usize, usize>,
    repository: usize,
) -> Result<(), String> {
    let claim = |word: &str| word.split('.').next().unwrap().parse::<usize>().unwrap();
    match words.values().find(|word| trusted.get(&claim(word)) != Some(&repository)) {
        Some(word) => Err(format!("{word} is read by a run of {}", REPOSITORIES[repository])),
        None => Ok(()),
    }
}

/// Runs one history of claims in the model.
fn modelled(seed: u64, bug: Bug) -> Result<(), String> {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut model, mut trusted, mut word) = (Model::default(), BTreeMap::new(), None);
    for claim in 0..8 {
        let repository = random.random_range(0..REPOSITORIES.len());
        let found = model.generations.get(&repository).cloned().unwrap_or_default();
        only_trusted(&found, &trusted, repository)?;
        let made = changes(&mut random, claim);
        let end = ENDS[random.random_range(0..ENDS.len())];
        // Decided by the kind of the run alone, independent of how the machine interprets the verdict.
        if matches!(end, End::Trusted | End::PowerLost) {
            trusted.insert(claim, repository);
        }
        word = end.verdict().map(|yes| (claim, yes)).or(word);
        // Either the old generation or the new one, and nothing between.
        let whole = end != End::DiskFull && (end != End::PowerLost || random.random_bool(0.5));
        if whole && promotes(bug, claim, word) {
            model.promote(repository, &made);
        }
    }
    Ok(())
}

#[test]
fn in_ten_thousand_histories_no_run_reads_a_byte_that_was_not_promoted() {
    for seed in 0..10_000 {
        modelled(seed, Bug::None).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
}

#[test]
fn the_histories_find_a_promotion_without_a_verdict_and_others_of_its_kind() {
    for bug in BUGS {
        let found = (0..10_000).filter(|seed| modelled(*seed, bug).is_err()).count();
        eprintln!("{bug:?}: found by {found} of 10000 histories");
        assert!(found > 100, "{bug:?}: {found}");
    }
}

/// Returns the words in a tree.
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

/// Checks that a generation contains no device, pipe, socket, set-user-id or set-group-id bit, attribute, or file of
/// another user.
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

fn overlay(kept: &KeptMount, place: &Path) -> Mounted {
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

/// Prints past the capture of the output of passing tests: a test that did not run must not look as if it had.
fn aloud(why: &str) {
    let text = format!("\n******\nkeep/histories.rs: NOT RUN: {why}\n******\n");
    std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes()).unwrap();
}

/// Runs an ignored test of this file in its own mount namespace. In the shared one, any process that creates a
/// namespace meanwhile gets a copy of the overlays, which are still mounted there after the test has unmounted them.
fn apart(test: &str) {
    let machine = || {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation=private"]);
        command
    };
    let may = nix::unistd::geteuid().is_root()
        && machine()
            .args(["mount", "-t", "tmpfs", "none", "/mnt"])
            .status()
            .is_ok_and(|status| status.success());
    if !may {
        return aloud("it needs root and leave to mount");
    }
    let test = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
    let output = machine()
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", &test, "--nocapture"])
        .output()
        .unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    println!("{said}");
}

/// Mounts a small disk in memory that stores the attributes of overlays.
fn arena() -> (tempfile::TempDir, Mounted) {
    let dir = tempfile::tempdir().unwrap();
    let options = Some("size=8m,mode=0700");
    nix::mount::mount(Some("tmpfs"), dir.path(), Some("tmpfs"), nix::mount::MsFlags::empty(), options)
        .unwrap();
    let mounted = Mounted(dir.path().to_owned());
    (dir, mounted)
}

/// Writes as a job does, and leaves files that no cache should contain.
fn write(place: &Path, changes: &[(String, Option<String>)], random: &mut StdRng) {
    for (name, word) in changes {
        let path = place.join(name);
        match word {
            Some(word) => {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                // Creates the file anew, as tools do; now and then writes in place.
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

/// Fills the free space of a disk, until it is dropped.
struct Full(PathBuf);

impl Full {
    fn of(root: &Path) -> Self {
        let (path, disk) = (root.join("full"), rustix::fs::statvfs(root).unwrap());
        let file = fs::File::create(&path).unwrap();
        let flags = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&file, flags, 0, disk.f_bavail * disk.f_frsize).unwrap();
        assert_eq!(rustix::fs::statvfs(root).unwrap().f_bavail, 0);
        Self(path)
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Ends a claim. The machine promotes its writes if `promoted` is set; `right` becomes the words that the repository
/// may read from then on.
fn finish(
    root: &Path,
    store: &KeptStore,
    (id, repository): (&str, &str),
    keep: &[Keep],
    (end, promoted): (End, bool),
    (right, after): (&mut BTreeMap<String, String>, BTreeMap<String, String>),
) {
    let names = [if promoted { "cache" } else { "other" }.to_owned()];
    match end {
        End::Trusted => {
            store.settle(id, repository, keep, &names).unwrap();
            *right = after;
        }
        End::PullRequest | End::Fork | End::Failed | End::Killed | End::Unanswered | End::Renewed => {
            store.settle(id, repository, keep, &names).unwrap();
        }
        End::DiskFull if id.ends_with(['1', '3', '5']) => {
            let full = Full::of(root);
            let settled = store.settle(id, repository, keep, &names).unwrap();
            assert!(!matches!(settled["cache"], Promoted::As(_)), "{settled:?}");
            drop(full);
        }
        End::DiskFull => {
            // Nothing fits in a directory of size zero; it is dropped and starts empty.
            let mut none = keep.to_vec();
            none[0].max_gib = 0;
            let settled = store.settle(id, repository, &none, &names).unwrap();
            match &settled["cache"] {
                Promoted::Dropped(_) => *right = BTreeMap::new(),
                // Only directories are left in it, which take no space.
                Promoted::As(_) => *right = after,
                Promoted::Unchanged => {}
            }
        }
        End::PowerLost => {
            // The layer was taken, and partly applied to a copy that was never numbered.
            fs::rename(root.join("keep/layers").join(id), root.join("keep/taken")).unwrap();
            store.recover().unwrap();
            assert!(!root.join("keep/taken").exists());
        }
    }
}

/// Runs one history on the disk. Returns the number of promotions, or the first word that a claim read without
/// permission.
fn history(root: &Path, seed: u64, bug: Bug) -> Result<u32, String> {
    let mut random = StdRng::seed_from_u64(seed);
    let place = root.join("place");
    let store = KeptStore::new(root.join("keep"), (UID, UID)).leaving_free(0);
    let (keep, home) = ([keep()], Path::new("/home/x"));
    // The words that each repository may read.
    let (mut right, mut promotions) = ([BTreeMap::new(), BTreeMap::new()], 0);
    let mut word = None;
    fs::create_dir_all(&place).unwrap();
    for claim in 0..6 {
        let at = random.random_range(0..REPOSITORIES.len());
        // Claim names are unique: a mount is found by the name in it.
        let (id, repository) = (format!("i-{}.{seed}.{claim}", std::process::id()), REPOSITORIES[at]);
        let mut mounts = store.lend(&id, repository, &keep, home).unwrap();
        assert_eq!(mounts[0].path, home.join(".cache/x"));
        let mut mounted = overlay(&mounts[0], &place);
        let found = words(&place);
        if found != right[at] {
            return Err(format!("seed {seed} claim {claim}: {found:?} is read, {:?} is right", right[at]));
        }
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
        word = end.verdict().map(|yes| (claim, yes)).or(word);
        let ends = (end, promotes(bug, claim, word));
        finish(root, &store, (&id, repository), &keep, ends, (&mut right[at], after));
        if let Some(tree) = tree(&store, repository, &keep[0]) {
            only_plain(&tree);
        }
        assert!(store.kept().unwrap().len() <= REPOSITORIES.len());
    }
    Ok(promotions)
}

fn tree(store: &KeptStore, repository: &str, keep: &Keep) -> Option<PathBuf> {
    let kept = store.lend("look", repository, std::slice::from_ref(keep), Path::new("/home/x")).unwrap();
    store.forget("look").unwrap();
    (!kept[0].lower.ends_with("empty")).then(|| kept[0].lower.clone())
}

/// Runs the histories of these seeds on real overlays, each in its own directory.
fn histories(dir: &Path, seeds: std::ops::Range<u64>, bug: Bug) -> Vec<Result<u32, String>> {
    let one = |seed: u64| {
        let root = dir.join(seed.to_string());
        fs::create_dir(&root).unwrap();
        let told = history(&root, seed, bug);
        remove(&root).unwrap();
        told
    };
    seeds.map(one).collect()
}

#[test]
fn on_a_thousand_real_overlays_no_run_reads_a_byte_that_was_not_promoted() {
    apart("on_real_overlays_a_thousand_histories");
}

#[test]
#[ignore = "the test above calls it in a mount namespace of its own"]
fn on_real_overlays_a_thousand_histories() {
    let (dir, _mounted) = arena();
    let told = histories(dir.path(), 0..1000, Bug::None);
    let promotions: u32 = told.into_iter().map(|told| told.unwrap_or_else(|wrong| panic!("{wrong}"))).sum();
    assert!(promotions > 1000, "{promotions}");
}

#[test]
fn on_real_overlays_a_promotion_without_a_verdict_is_found() {
    apart("on_real_overlays_the_planted_mistakes");
}

#[test]
#[ignore = "the test above calls it in a mount namespace of its own"]
fn on_real_overlays_the_planted_mistakes() {
    let (dir, _mounted) = arena();
    for bug in BUGS {
        let found = histories(dir.path(), 0..50, bug).into_iter().filter(Result::is_err).count();
        eprintln!("{bug:?}: found by {found} of 50 histories");
        assert!(found > 0, "{bug:?}");
    }
}
