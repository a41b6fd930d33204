//! `runyard demo`.

use crate::local::programs::{machines_in, runyard, said, text};

#[test]
fn the_demonstration_ends_well_fits_a_terminal_and_leaves_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let output = runyard().arg("demo").env("TMPDIR", temp.path()).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let told = text(&output.stdout);
    assert_eq!(told.matches("  ✓ ").count(), 6, "{told}");
    for line in told.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    for word in ["created → running", "idle → claimed", "running → idle", "idle → terminated"] {
        assert!(told.contains(word), "nothing tells {word}:\n{told}");
    }
    assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0, "its directory is gone");
    assert_eq!(machines_in(temp.path()), Vec::<String>::new());
}

#[test]
fn without_an_agent_the_demonstration_says_so_and_how_to_get_one() {
    let temp = tempfile::tempdir().unwrap();
    let absent = temp.path().join("absent");
    let output =
        runyard().arg("demo").env("TMPDIR", temp.path()).env("RUNYARD_AGENT", &absent).output().unwrap();
    assert!(!output.status.success());
    let told = text(&output.stderr);
    assert!(told.contains(absent.to_str().unwrap()) && told.contains("runyard-agent"), "{told}");
}
