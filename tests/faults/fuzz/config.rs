//! The configuration file: laid over the defaults, or every problem told.

use runyard_operator::config::Config;

use crate::fuzz::{executions, fuzz_times, seeds};

#[test]
fn a_configuration_of_any_shape_is_used_or_every_problem_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runyard.toml");
    let words =
        ["[timing]", "[github]", "table", "=", "\"", "\"\"\"", "'''", "[[", "]]", "5m", "0s", "100y", "kind"];
    // It reads a file of two hundred keys each time.
    let times = executions().div_ceil(20);
    fuzz_times("config", &seeds("config", &["config/default.toml"]), &words, times, |input| {
        std::fs::write(&path, input).unwrap();
        if let Err(errors) = Config::load(Some(&path), std::iter::empty()) {
            assert!(!errors.problems().is_empty());
            assert!(!errors.to_string().is_empty());
        }
    });
}
