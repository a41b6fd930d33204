//! Does a program's operator hear GitHub's webhook from the queue that `init` made? Its own look would come in an hour.

use aws_sdk_sqs::Client;
use runyard_core::model::{Asked, Request};
use runyard_standin::github::JobSpec;

use crate::e2e::history;
use crate::e2e::waiting::{turn, until};
use crate::lifecycle::cloud::Cloud;
use crate::lifecycle::yard::{CLASS, REPOSITORY, TABLE, Yard};

/// The lists of a look at all open runs: queued, running, and three kinds of waiting.
const LISTS: u64 = 5;
const QUEUED: &str = include_str!("../../golden/webhooks/workflow-job-queued.json");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_hears_of_a_queued_job_from_the_queue_that_init_made() {
    let _turn = turn().await;
    let cloud = Cloud::dynoxide_and_moto();
    let sqs = Client::new(&history::sdk_as("test", &cloud.sqs));
    let mut yard = Yard::with(cloud, 0, 1, &[("RUNYARD_GITHUB__RUN_POLL", "1h")], &[]).await;
    let admitted = format!("repositories={REPOSITORY}");
    yard.runs(&["set", "pool", CLASS, "queue.runLabels=true", &admitted, "--allow-widening"]).await;
    // The repository's first look comes by itself, with a list of each status, and the second in an hour.
    until("the first look", async || {
        let calls = yard.github.calls();
        let lists = calls.iter().filter(|(call, _)| call.path.ends_with("/actions/runs"));
        (lists.map(|(_, count)| count).sum::<u64>() >= LISTS).then_some(())
    })
    .await;
    let job = JobSpec {
        name: "build".into(),
        runs_on: vec![format!("42-{CLASS}")],
        steps: vec!["true".into()],
        ..JobSpec::default()
    };
    yard.github.enqueue_run(REPOSITORY, Some(42), "build", vec![job], true).unwrap();
    let url =
        sqs.get_queue_url().queue_name(format!("{TABLE}-jobs")).send().await.unwrap().queue_url.unwrap();
    let body = QUEUED.replace("Acme/Web", REPOSITORY);
    sqs.send_message().queue_url(&url).message_body(body).send().await.unwrap();
    until("the request of the queued job", async || {
        let seen = yard.look().await;
        seen.all::<Request>().into_iter().find(|request| {
            let (run, name) = (request.id.run_id.as_str(), request.id.name.as_str());
            (run, name, request.intent.asked) == ("42", CLASS, Asked::Job)
        })
    })
    .await;
    yard.stop().await;
}
