//! What `check-workflow` tells of workflows, with which code it ends, and that it needs nothing but their files.

use std::io::Write as _;
use std::process::Stdio;

use crate::cli::yard::{command, ends, finished};

const FINE: &str = "jobs:\n  a:\n    runs-on: ubuntu-latest\n    steps:\n      - run: make\n";
const BAD: &str = "jobs:\n  a:\n    runs-on: ubuntu-latest\n    steps:\n      - run: sudo make\n";

#[test]
fn workflows_are_checked_without_a_table() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("it is written");
        path.display().to_string()
    };
    let (fine, bad, unreadable) =
        (file("fine.yml", FINE), file("bad.yml", BAD), file("tab.yml", "jobs:\n\ta: 1\n"));
    let said = ends(command(&["check-workflow", &fine]), 0).stdout;
    assert!(said.contains("runs-on: ${{ github.run_id }}-linux-x64"), "{said}");
    let said = ends(command(&["check-workflow", &fine, &bad]), 1);
    assert!(said.stdout.contains(&format!("{bad}:5: fails: job a: `sudo`")), "{said:?}");
    assert_eq!(said.stderr, "");
    let document = ends(command(&["check-workflow", &fine, &bad, "-o", "json"]), 1).json();
    assert_eq!(
        (&document["items"][0]["fails"], &document["items"][1]["fails"]),
        (&false.into(), &true.into())
    );
    let error = ends(command(&["check-workflow", &unreadable, "-o", "json"]), 2).error();
    assert_eq!(error["field"], format!("{unreadable}:2"));
    let pools = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/pools.yaml");
    let said = ends(command(&["check-workflow", &fine, "--pool", pools, "--class", "untrusted"]), 0).stdout;
    assert!(said.contains("class untrusted: x86_64"), "{said}");
    assert!(said.contains("runs-on: ${{ needs.provision.outputs.label }}"), "{said}");
    let refused = ends(command(&["check-workflow", &fine, "--pool", pools, "--class", "gpu"]), 2).stderr;
    assert!(refused.contains("--class") && refused.contains("untrusted"), "{refused}");
}

#[test]
fn a_workflow_is_read_from_standard_input() {
    let mut reading = command(&["check-workflow", "-"]);
    let piped = reading.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("the program starts");
    child.stdin.take().expect("it is piped").write_all(BAD.as_bytes()).expect("it reads");
    assert!(finished(child, 1).stdout.contains("-:5: fails"));
}
