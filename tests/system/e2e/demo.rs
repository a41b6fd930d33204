//! Does the demonstration show what it claims, and would it notice if that were not so?

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::e2e::program::{Ended, agent, environment, verb};
use crate::e2e::waiting::turn;

/// An agent on a machine that is haunted: what was cleaned away of the jobs' traces comes back, by somebody who is
/// neither the agent's descendant nor marked as the machine's.
const HAUNTED: &str = r#"#!/bin/bash
( env -u RUNYARD_MACHINE setsid bash -c '
  kept=()
  while kill -0 "$0" 2> /dev/null; do
    while read -r trace; do kept+=("$trace"); done < <(find "$PWD" -name "demo-canary-*" 2> /dev/null)
    for trace in "${kept[@]}"; do
      [ -e "$trace" ] || { mkdir -p "${trace%/*}" && touch "$trace"; }
    done
    sleep 0.02
  done' "$$" < /dev/null > /dev/null 2>&1 & )
exec AGENT "$@"
"#;

async fn demonstration(more: &[(&str, &str)]) -> Ended {
    verb(&environment(more.iter().copied()), &["demo"]).await
}

#[tokio::test]
async fn the_demonstration_passes_says_why_and_leaves_nothing() {
    let _turn = turn().await;
    let place = tempfile::tempdir().expect("a place for files");
    let ended = demonstration(&[("TMPDIR", place.path().to_str().expect("UTF-8"))]).await;
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.stdout, ended.stderr);
    let held = ended.stdout.lines().filter(|line| line.trim_start().starts_with('✓')).count();
    assert!(held >= 6 && !ended.stdout.contains('✗'), "{}", ended.stdout);
    let left: Vec<_> = fs::read_dir(place.path()).expect("the place is there").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_demonstration_whose_machines_do_not_stay_clean_fails() {
    let _turn = turn().await;
    let place = tempfile::tempdir().expect("a place for files");
    let haunted = place.path().join("haunted-agent");
    fs::write(&haunted, HAUNTED.replace("AGENT", agent().to_str().expect("UTF-8"))).expect("a script");
    fs::set_permissions(&haunted, fs::Permissions::from_mode(0o700)).expect("a script");
    let place_name = place.path().to_str().expect("UTF-8");
    let settings = [("TMPDIR", place_name), ("RUNYARD_AGENT", haunted.to_str().expect("UTF-8"))];
    let ended = demonstration(&settings).await;
    assert_eq!(ended.code, Some(1), "{}\n{}", ended.stdout, ended.stderr);
}
