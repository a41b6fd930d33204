//! Interprets the output of scripts: takes the tail of a log without secrets, and decides whether it reports an
//! unreachable GitHub or a refusal.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use nix::fcntl::AT_FDCWD;

use crate::system::disk;
use crate::task::GithubFailure;

/// Longest detail of a signal, in characters.
pub(crate) const DETAIL: usize = 500;
/// The longest word of a normal sentence, in bytes; credentials that a script might print are longer.
const LONGEST_WORD: usize = 160;
/// The size of the part of a log that is read, in bytes.
pub(crate) const LOOKED_AT: u64 = 64 * 1024;

/// The line that the listener prints once jobs can reach it.
pub(crate) const LISTENING: &str = "Listening for Jobs";

/// Phrases that .NET and GitHub's runner print when the other side is unreachable or failing, never when it refuses.
const UNREACHABLE: [&str; 21] = [
    "connection refused",
    "connection reset",
    "connection timed out",
    "could not resolve",
    "name or service not known",
    "temporary failure in name resolution",
    "resource temporarily unavailable",
    "network is unreachable",
    "no route to host",
    "ssl connection could not be established",
    "an error occurred while sending the request",
    "error sending request",
    "httpclient.timeout",
    "a task was canceled",
    "retrying until reconnected",
    // GitHub regards the runner as busy, which it is not; this passes (actions/runner, `RunnerDotcomServer.cs`).
    "unprocessableentity from 'delete",
    "toomanyrequests",
    "internalservererror",
    "badgateway",
    "serviceunavailable",
    "gatewaytimeout",
];
/// HTTP status codes with the same meaning.
const UNWELL: [&str; 6] = ["429", "500", "502", "503", "504", "408"];

/// Returns the end of a log, with any content; empty if there is none, or if it is no longer a plain file.
pub(crate) fn end_of(log: &Path) -> String {
    let read = || -> io::Result<String> {
        let mut file = disk::open_plain(AT_FDCWD, log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOOKED_AT)))?;
        let mut bytes = Vec::new();
        file.take(LOOKED_AT).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_default()
}

/// Returns whether the listener that wrote this log may ever have accepted a job. A log that is too long to be read
/// whole counts as yes.
pub(crate) fn has_listened(log: &Path) -> bool {
    let said = end_of(log);
    said.contains(LISTENING) || said.len() as u64 >= LOOKED_AT
}

/// Combines a reason and the end of a log into a text for a record: short, printable, without the secrets.
pub(crate) fn detail(reason: &str, said: &str, secrets: &[&str]) -> String {
    let mut said = said.to_owned();
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        said = said.replace(secret, "***");
    }
    let said: String = said.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let shown = |word| if str::len(word) > LONGEST_WORD { "***" } else { word };
    let said = said.split_whitespace().map(shown).collect::<Vec<_>>().join(" ");
    let room = DETAIL.saturating_sub(reason.chars().count() + 2);
    let skip = said.chars().count().saturating_sub(room);
    let tail: String = said.chars().skip(skip).collect();
    let whole = if tail.is_empty() { reason.to_owned() } else { format!("{reason}: {tail}") };
    whole.chars().take(DETAIL).collect()
}

/// Returns whether `config.sh remove` failed because GitHub does not know the runner: the admin flow, which newer
/// registrations use, reports this as an error (actions/runner, `RunnerDotcomServer.cs`).
pub(crate) fn is_gone(said: &str) -> bool {
    said.to_lowercase().contains("notfound from 'delete")
}

/// Classifies a script's failure by its output.
pub(crate) fn judge(said: &str, detail: String) -> GithubFailure {
    if said.to_lowercase().lines().any(is_away) {
        GithubFailure::Unreachable(detail)
    } else {
        GithubFailure::Refused(detail)
    }
}

/// Returns whether a line, in lower case, reports that the other side is unreachable or failing.
pub(crate) fn is_away(line: &str) -> bool {
    let status = line.contains("status code") || line.contains("response code");
    let mut numbers = line.split(|c: char| !c.is_ascii_digit());
    UNREACHABLE.iter().any(|words| line.contains(words))
        || (status && numbers.any(|word| UNWELL.contains(&word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_github_that_is_away_is_told_from_one_that_refuses() {
        let away = [
            "Connection refused (api.github.com:443)",
            "Name or service not known (api.github.com:443)",
            "Response status code does not indicate success: 503 (Service Unavailable).",
            "Http response code: BadGateway from 'POST https://api.github.com/actions/runner-registration'",
            "Http response code: UnprocessableEntity from 'Delete https://api.github.com/repos/a/b/actions/runners/7'",
            "The request was canceled due to the configured HttpClient.Timeout of 100 seconds elapsing.",
        ];
        for said in away {
            assert!(matches!(judge(said, String::new()), GithubFailure::Unreachable(_)), "{said}");
        }
        let refused = [
            "Http response code: NotFound from 'POST https://api.github.com/actions/runner-registration'",
            "Response status code does not indicate success: 401 (Unauthorized).",
            "Must not run with sudo",
            "runner-500 is not a valid name",
            "",
        ];
        for said in refused {
            assert!(matches!(judge(said, String::new()), GithubFailure::Refused(_)), "{said}");
        }
    }

    #[test]
    fn a_listener_took_no_job_only_where_its_whole_log_shows_that_it_never_listened() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("run.log");
        let says = |said: &str| {
            std::fs::write(&log, said).unwrap();
            has_listened(&log)
        };
        assert!(!says("\u{221a} Connected to GitHub\n"));
        assert!(says("2026-01-05 12:00:00Z: Listening for Jobs\nRunning job: build\n"));
        // The line is before the part that is read.
        assert!(says(&("Listening for Jobs\n".to_owned() + &"x".repeat(LOOKED_AT as usize))));
        std::fs::remove_file(&log).unwrap();
        assert!(!has_listened(&log));
    }

    #[test]
    fn a_removal_of_a_runner_that_is_gone_is_told_from_one_without_a_right() {
        let gone =
            "Http response code: NotFound from 'Delete https://api.github.com/repos/a/b/actions/runners/7'";
        assert!(is_gone(gone));
        let refused =
            "Http response code: NotFound from 'POST https://api.github.com/actions/runner-registration'";
        assert!(!is_gone(refused) && !is_gone(""));
    }

    #[test]
    fn a_detail_is_the_tail_without_secrets_or_control_characters() {
        let said = format!("{}\n{}\n\u{1b}[31mtoken SECRET refused\0", "x ".repeat(1000), "Z".repeat(300));
        let detail = detail("config.sh failed", &said, &["SECRET"]);
        assert_eq!(detail.chars().count(), DETAIL);
        assert!(
            detail.starts_with("config.sh failed: ") && detail.ends_with("token *** refused"),
            "{detail}"
        );
        assert!(!detail.contains(char::is_control) && !detail.contains('Z'));
    }

    #[test]
    fn a_log_that_is_not_there_is_empty() {
        assert_eq!(end_of(Path::new("/nonexistent/log")), "");
        assert_eq!(detail("it failed", "", &[]), "it failed");
    }

    #[test]
    fn a_log_that_leads_elsewhere_or_has_no_end_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let (secret, link, pipe) =
            (dir.path().join("secret"), dir.path().join("link"), dir.path().join("pipe"));
        std::fs::write(&secret, "a secret").unwrap();
        std::os::unix::fs::symlink(&secret, &link).unwrap();
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(
            (end_of(&secret).as_str(), end_of(&link), end_of(&pipe)),
            ("a secret", "".into(), "".into())
        );
    }
}
