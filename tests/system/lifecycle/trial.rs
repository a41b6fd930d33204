//! Does `runyard try` show a machine of EC2 booting, and end it, where EC2 has its bad days?

use runyard_core::model::{Instance, Phase, Request, State};

use crate::e2e::waiting::turn;
use crate::lifecycle::cloud::Cloud;
use crate::lifecycle::yard::{CLASS, REPOSITORY, Yard};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trial_at_ec2_shows_the_console_and_leaves_no_machine() {
    let _turn = turn().await;
    let mut yard = Yard::on(Cloud::with_bad_days(), 0, 2).await;
    let peer = yard.cloud.peer.as_ref().expect("the peer");
    peer.rules(|rules| {
        rules.consoles = b"Linux version 6.8\r\nrunyard: first boot installs the agent\r\n".to_vec()
    });
    let ended = yard.runs_configured(&["try", CLASS, "--repository", REPOSITORY, "--timeout", "10m"]).await;
    for told in ["console: first boot installs the agent", "its runner is registered and listens", "s  ended"]
    {
        assert!(ended.stdout.contains(told), "{told}: {ended:?}");
    }
    assert!(!ended.stdout.contains("Linux version"), "only our own lines: {ended:?}");
    let seen = yard.look().await;
    let requests = seen.all::<Request>();
    assert_eq!(requests.iter().map(Request::phase).collect::<Vec<_>>(), [Phase::Released], "{requests:?}");
    assert!(requests[0].intent.trial, "GitHub has no such run, and was not asked for it");
    assert!(seen.all::<Instance>().iter().all(|instance| instance.state() == State::Terminated));
    assert!(yard.alive().await.is_empty());
    yard.stop().await;
}
