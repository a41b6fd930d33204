//! Does the demonstration show what it claims, and would it notice if that were not so?

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::program::{Ended, agent, environment, verb};
use crate::waiting::turn;

/// An agent whose machine brings back, behind its back, whatever it cleans away of the jobs' traces.
const UNCLEAN: &str = r#"#!/bin/bash
shopt -s nullglob
machine=$PWD
(
  agent=$$
  kept=()
  while kill -0 "$agent" 2> /dev/null; do
    while read -r canary; do kept+=("$canary"); done < <(find "$machine" -name 'demo-canary-*' 2> /dev/null)
    for canary in "${kept[@]}"; do
      [ -e "$canary" ] || [ ! -d "${canary%/*}" ] || touch "$canary" 2> /dev/null || true
    done
    sleep 0.02
  done
) < /dev/null > /dev/null 2>&1 &
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
    let unclean = place.path().join("unclean-agent");
    fs::write(&unclean, UNCLEAN.replace("AGENT", agent().to_str().expect("UTF-8"))).expect("a script");
    fs::set_permissions(&unclean, fs::Permissions::from_mode(0o700)).expect("a script");
    let place_name = place.path().to_str().expect("UTF-8");
    let settings = [("TMPDIR", place_name), ("RUNYARD_AGENT", unclean.to_str().expect("UTF-8"))];
    let ended = demonstration(&settings).await;
    assert_eq!(ended.code, Some(1), "{}\n{}", ended.stdout, ended.stderr);
}
