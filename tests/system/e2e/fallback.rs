//! Do the jobs of a workflow run although the yard has no machine in time? `provision --fallback` without an operator, of
//! a class at its `max`, and with a machine in time.

use runyard_core::model::{Launch, Phase, Request};

use crate::e2e::history;
use crate::e2e::operators::Yard;
use crate::e2e::program::Ended;
use crate::e2e::simulator::Agents;
use crate::e2e::waiting::{turn, until};

const ELSEWHERE: &str = "ubuntu-latest";

/// Asks for a machine of `linux`, as a workflow does; returns the end of the step and its outputs.
async fn provision(yard: &Yard, run: &str, attempt: &str, timeout: &str, more: &[&str]) -> (Ended, String) {
    let output = yard.file(&format!("output-{run}-{attempt}"));
    let step = [
        ("GITHUB_ACTIONS", "true"),
        ("GITHUB_RUN_ID", run),
        ("GITHUB_RUN_ATTEMPT", attempt),
        ("GITHUB_REPOSITORY", "acme/web"),
        ("GITHUB_OUTPUT", &*output),
    ];
    let asking = ["provision", "--class", "linux", "--count", "1", "--wait", "--timeout", timeout];
    let ended = yard.verb(&step, &[&asking[..], more].concat()).await;
    (ended, std::fs::read_to_string(&output).unwrap_or_default())
}

async fn request(yard: &Yard, run: &str, attempt: u32) -> Option<Request> {
    let requests = history::snapshot(&yard.store).await?.all::<Request>();
    requests.into_iter().find(|one| one.id.run_id.as_str() == run && one.id.attempt == attempt)
}

async fn reaches(yard: &Yard, run: &str, attempt: u32, phase: Phase) -> Request {
    until(&format!("request {run}/default/{attempt} to be {phase}"), async || {
        request(yard, run, attempt).await.filter(|request| request.phase() == phase)
    })
    .await
}

fn fell_back(ended: &Ended, outputs: &str, phase: &str) {
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let wanted = format!("label={ELSEWHERE}\nphase={phase}\ninstances=[]\nready-at=\nfallback=true\n");
    assert_eq!(outputs, wanted, "{ended:?}");
    let warning =
        format!("::warning title=Runyard::the jobs run on {ELSEWHERE} instead of machines of Runyard: ");
    assert!(ended.stderr.contains(&warning), "{ended:?}");
}

#[tokio::test]
async fn without_an_operator_the_jobs_run_elsewhere_and_a_late_one_launches_nothing() {
    let _turn = turn().await;
    let mut yard = Yard::new(0, 5, 100).await;
    let (ended, outputs) = provision(&yard, "1", "1", "1s", &["--fallback", ELSEWHERE]).await;
    fell_back(&ended, &outputs, "Pending");
    assert!(ended.stdout.contains("fallback: runs-on ubuntu-latest"), "{ended:?}");
    // A step that is tried again in the same attempt finds a request that is over.
    let (ended, _) = provision(&yard, "1", "1", "1s", &["--fallback", ELSEWHERE]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("being released"), "{ended:?}");

    let _late = yard.operator().await;
    let _agents = Agents::play(yard.store.clone());
    let released = reaches(&yard, "1", 1, Phase::Released).await;
    assert!(released.status.served.is_empty(), "{released:?}");
    let launches = until("a look", async || history::snapshot(&yard.store).await).await.all::<Launch>();
    assert!(launches.is_empty(), "{launches:?}");
    // The next attempt has a key of its own.
    let (ended, outputs) = provision(&yard, "1", "2", "10m", &["--fallback", ELSEWHERE]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(outputs.starts_with("label=1\nphase=Ready\n") && !outputs.contains("fallback"), "{outputs}");
    assert!(!ended.stderr.contains("::warning"), "{ended:?}");
}

#[tokio::test]
async fn a_class_at_its_max_sends_the_jobs_elsewhere_and_a_later_attempt_gets_the_machine() {
    let _turn = turn().await;
    let mut yard = Yard::new(0, 1, 100).await;
    let _operator = yard.operator().await;
    let _agents = Agents::play(yard.store.clone());
    let (ended, outputs) = provision(&yard, "7", "1", "10m", &["--fallback", ELSEWHERE]).await;
    assert!(outputs.starts_with("label=7\nphase=Ready\n"), "a machine in time is used: {ended:?}");
    let (ended, outputs) = provision(&yard, "8", "1", "2s", &["--fallback", ELSEWHERE]).await;
    fell_back(&ended, &outputs, "Failed");
    let missing =
        "request acme/web run 8/default/1: failed: DeadlinePassed: 0 of 1 machine ran at the deadline";
    assert!(ended.stderr.contains(missing), "{ended:?}");
    assert_eq!(request(&yard, "8", 1).await.expect("it was asked for").status.served, []);
    let busy = request(&yard, "7", 1).await.expect("it is there");
    assert_eq!(busy.phase(), Phase::Ready, "the other run keeps its machine");
    yard.release(&busy).await;
    let (ended, outputs) = provision(&yard, "8", "2", "10m", &["--fallback", ELSEWHERE]).await;
    assert!(outputs.starts_with("label=8\nphase=Ready\n"), "{ended:?}");
}

#[tokio::test]
async fn a_table_that_nobody_serves_sends_the_jobs_elsewhere_and_is_an_error_otherwise() {
    let yard = Yard::new(0, 1, 100).await;
    let output = yard.file("output");
    let away =
        [("AWS_ENDPOINT_URL", "http://127.0.0.1:9"), ("GITHUB_ACTIONS", "true"), ("GITHUB_OUTPUT", &*output)];
    let asking =
        ["provision", "--run-id", "1", "--repository", "acme/web", "--class", "linux", "--count", "1"];
    let asking = [&asking[..], &["--wait", "--timeout", "1s"]].concat();
    let ended = yard.verb(&away, &[&asking[..], &["--fallback", ELSEWHERE]].concat()).await;
    fell_back(&ended, &std::fs::read_to_string(&output).expect("the outputs"), "");
    assert!(ended.stderr.contains("nothing listens there"), "{ended:?}");
    assert_eq!(yard.verb(&away, &asking).await.code, Some(1));
    let mistaken = yard.verb(&away, &[&asking[..], &["--fallback", "two words"]].concat()).await;
    assert_eq!(mistaken.code, Some(2), "{mistaken:?}");
}
