use super::*;

/// Returns the last output of GitHub's `run.sh` for an exit code of the listener.
fn exits(code: u32) -> &'static str {
    match code {
        0 => {
            "Runner listener exit with 0 return code, stop the service, no retry needed.\nExiting runner...\n"
        }
        1 => {
            "Runner listener exit with terminated error, stop the service, no retry needed.\nExiting runner...\n"
        }
        2 => "Runner listener exit with retryable error, re-launch runner in 5 seconds.\n",
        5 => "Runner listener exit with Session Conflict error, stop the service.\nExiting runner...\n",
        7 => "Runner listener exit with deprecated version exit code: 7.\nExiting runner...\n",
        _ => "Exiting with unknown error code: 137\nExiting runner...\n",
    }
}

const CONNECTED: &str = "\n\u{221a} Connected to GitHub\n\nCurrent runner version: '2.336.0'\n";
const HEARD: &str = "2026-11-27 08:00:00Z: Listening for Jobs\n";
const AWAY: &str = "2026-11-27 08:00:00Z: Runner connect error: Response status code does not indicate success: 503 (Service Unavailable).. Retrying until reconnected.\n";
const BACK: &str = "2026-11-27 08:01:00Z: Runner reconnected.\n";
const DELETED: &str = "Failed to create a session. The runner registration has been deleted from the server, please re-configure. Runner registrations are automatically deleted for runners that have not connected to the service recently.\n";
const UNAUTHORIZED: &str = "Failed to create session. You are not authorized to access https://broker.actions.githubusercontent.com.\n";
const OLD: &str = "An error occurred: Runner version v2.300.0 is deprecated and cannot receive messages.\n";
const GONE: &str = "The runner no longer exists on the server. Cleaning up local configuration.\n\u{221a} Removed .credentials\n\u{221a} Removed .runner\n";

/// Returns the meaning of an end as one word.
fn meaning(said: &[&str]) -> &'static str {
    match end_of_listener(&said.concat()) {
        RunnerEnd::Lost(_) => "lost",
        RunnerEnd::Forgotten(_) => "forgotten",
        RunnerEnd::Failed(GithubFailure::Unreachable(_)) => "away",
        RunnerEnd::Failed(GithubFailure::Conflict(_)) => "conflict",
        RunnerEnd::Failed(GithubFailure::Refused(_)) => "refused",
        RunnerEnd::Failed(GithubFailure::Deprecated(_)) => "deprecated",
    }
}

#[test]
fn an_end_is_judged_by_words_and_code_whether_it_had_listened_or_not() {
    let rows: [(&str, &[&str], &str); 20] = [
        ("deprecated on the message poll", &[CONNECTED, HEARD, OLD, exits(7)], "deprecated"),
        ("deprecated before", &[CONNECTED, OLD, exits(7)], "deprecated"),
        ("deleted while it listened", &[CONNECTED, HEARD, GONE, exits(0)], "forgotten"),
        ("deleted before its session", &[CONNECTED, DELETED, exits(1)], "forgotten"),
        ("deleted after a hiccup: the last word counts", &[CONNECTED, AWAY, DELETED, exits(1)], "forgotten"),
        (
            "it has no configuration",
            &["Not configured. Run config.(sh/cmd) to configure the runner.\n", exits(1)],
            "forgotten",
        ),
        ("killed while it listened", &[CONNECTED, HEARD, exits(137)], "lost"),
        ("killed after an outage that is over", &[CONNECTED, HEARD, AWAY, BACK, exits(137)], "lost"),
        ("killed in an outage", &[CONNECTED, HEARD, AWAY, exits(137)], "lost"),
        ("run.sh itself was killed", &[CONNECTED, HEARD], "lost"),
        ("somebody asked it to end", &[CONNECTED, HEARD, "Exiting...\n", exits(0)], "lost"),
        ("its next session is held by its dead one", &[CONNECTED, HEARD, AWAY, exits(5)], "lost"),
        ("its first session is held by another", &[CONNECTED, AWAY, exits(5)], "conflict"),
        ("without a token it was refused", &[CONNECTED, AWAY, UNAUTHORIZED, exits(1)], "away"),
        ("the same while it listened", &[CONNECTED, HEARD, AWAY, UNAUTHORIZED, exits(1)], "away"),
        ("refused with a token", &[CONNECTED, UNAUTHORIZED, exits(1)], "refused"),
        ("refused after an outage that is over", &[AWAY, BACK, UNAUTHORIZED, exits(1)], "refused"),
        ("a crash at its start", &["Couldn't find a valid ICU package\n", exits(134)], "refused"),
        ("away from the start", &["Name or service not known\n"], "away"),
        ("ended between two rounds of run.sh", &[CONNECTED, HEARD, exits(2)], "away"),
    ];
    for (row, said, wanted) in rows {
        assert_eq!(meaning(said), wanted, "{row}");
    }
}

#[test]
fn the_words_of_an_end_name_its_cause_for_people_and_for_debug() {
    let words = |said: &[&str]| match end_of_listener(&said.concat()) {
        RunnerEnd::Lost(why) | RunnerEnd::Forgotten(why) => why,
        RunnerEnd::Failed(
            GithubFailure::Unreachable(why)
            | GithubFailure::Conflict(why)
            | GithubFailure::Refused(why)
            | GithubFailure::Deprecated(why),
        ) => why,
    };
    for (said, wanted) in [
        (&[HEARD, OLD, exits(7)][..], "GitHub takes no runner of this version any more"),
        (&[HEARD, GONE, exits(0)], "GitHub does not know it any more"),
        (&[HEARD, exits(137)], "its listener died"),
        (&[HEARD, "Exiting...\n", exits(0)], "nobody asked for it"),
        (&[CONNECTED, exits(5)], "its name is connected from elsewhere"),
    ] {
        let why = words(said);
        assert!(why.contains(wanted) && why.starts_with("run.sh ended"), "{why}");
    }
}

#[test]
fn a_job_that_began_is_seen_and_a_log_too_long_says_yes() {
    assert!(!worked(&[CONNECTED, HEARD, exits(0)].concat()));
    assert!(worked("2026-11-27 08:00:00Z: Running job: build\n"));
    assert!(worked("2026-11-27 08:00:00Z: Job build completed with result: Succeeded\n"));
    assert!(worked(&"x".repeat(usize::try_from(LOOKED_AT).unwrap())));
}

#[test]
fn what_keeps_a_listener_from_listening_is_told_while_it_goes_on_trying() {
    let kind = |said: &[&str]| trouble(&said.concat()).map(|trouble| trouble.kind);
    let conflict = "A session for this runner already exists.\n";
    assert_eq!(kind(&[CONNECTED]), None);
    assert_eq!(kind(&[CONNECTED, AWAY]), Some(TroubleKind::Unreachable));
    assert_eq!(kind(&[CONNECTED, conflict, AWAY]), Some(TroubleKind::Conflict));
    assert_eq!(kind(&[CONNECTED, AWAY, BACK]), None);
    let words = trouble(&[CONNECTED, AWAY].concat()).unwrap().words;
    assert!(words.starts_with("its runner cannot reach GitHub: ") && words.contains("503"), "{words}");
}

#[test]
fn the_last_end_of_a_listener_is_read_from_the_words_of_its_script() {
    let cases = [
        (0, ListenerEnd::Done),
        (1, ListenerEnd::Terminated),
        (2, ListenerEnd::Again),
        (5, ListenerEnd::Conflict),
        (7, ListenerEnd::Deprecated),
        (134, ListenerEnd::Died),
    ];
    for (code, wanted) in cases {
        let said = format!("Runner listener exit because of updating\n{}", exits(code)).to_lowercase();
        assert_eq!(ListenerEnd::of(&said), wanted, "{code}");
    }
    assert_eq!(ListenerEnd::of("listening for jobs"), ListenerEnd::Died, "nothing was written any more");
}
