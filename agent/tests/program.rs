//! What does the program say when it is started wrongly? (That this file is here also has `cargo test --workspace`
//! build the program, which the tests of whole yards start.)

use std::process::Command;

#[test]
fn a_missing_or_unreadable_configuration_is_named_and_is_a_failure() {
    let cases: [(&[&str], &str); 2] =
        [(&["--config"], "--config"), (&["--config", "/nowhere/agent.toml"], "/nowhere/agent.toml")];
    for (arguments, named) in cases {
        let output = Command::new(env!("CARGO_BIN_EXE_runyard-agent")).args(arguments).output();
        let output = output.expect("the agent starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(named), "{arguments:?}: {said}");
    }
}
