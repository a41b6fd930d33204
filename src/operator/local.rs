//! Local mode: one machine as a whole yard, with an embedded DynamoDB engine, machines as child processes and a
//! stand-in GitHub. It serves trying, development and single build machines; the operator and the agent are the same as
//! on AWS.

pub mod demo;
pub mod opened_environment;
pub mod up;

pub(crate) mod options;

pub use runyard_standin::{change_notifier, compute, engine, github as standin, local_environment, process};
use runyard_standin::{files, port};

use std::fmt::Display;
use std::io::Write as _;

/// A line for whoever looks on. A reader that left ends nothing.
pub(crate) fn say(line: impl Display) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// A path as a shell reads it.
pub(crate) fn quoted(path: &std::path::Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
    if text.chars().all(plain) { text.into_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_quoted_where_a_shell_would_split_or_read_it() {
        for (path, shell) in [("/a/b-c.d", "/a/b-c.d"), ("/a b", "'/a b'"), ("/a'b$c", r"'/a'\''b$c'")] {
            assert_eq!(quoted(std::path::Path::new(path)), shell);
        }
    }
}
