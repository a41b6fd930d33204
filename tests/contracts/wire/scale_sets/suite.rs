//! What every implementation of the port promises, on whatever world it lives in.

use std::time::Duration;

use runyard_core::ports::ScaleSets;
use runyard_core::ports::github::{JobConfig, Scope};
use runyard_core::ports::scale_sets::{JobNews, Message, Session, SetSpec};
use runyard_standin::github::SetBehaviour;

use super::letter;

/// A GitHub with scale sets, and what happens in it that the port does not do.
pub(super) trait World {
    fn sets(&self) -> &dyn ScaleSets;
    /// Lets the service behave like this.
    fn behave(&self, behaviour: SetBehaviour);
    /// Lets time pass.
    fn pass(&self, time: Duration);
    /// Queues a job of `octo/app`.
    fn queue(&self, name: &str, label: &str);
    /// Lets the listener of a runner take a job and begin it.
    async fn begin(&self, runner: &JobConfig);
    /// Lets it end that job well.
    async fn end(&self, runner: &JobConfig);
    /// Ends a session without a word.
    fn evict(&self, set: u64);
    /// Ends the credentials of all sessions.
    fn expire(&self);
    /// Deletes a set as somebody else does.
    fn vanish(&self, set: u64);
}

/// A poll that ends soon.
pub(super) fn quick() -> SetBehaviour {
    SetBehaviour { poll: Duration::from_millis(20), ..SetBehaviour::default() }
}

pub(super) fn scope() -> Scope {
    Scope::Repository { owner: "octo".into(), name: "app".into() }
}

pub(super) fn spec(name: &str) -> SetSpec {
    SetSpec { name: name.into(), labels: vec![name.into(), "linux".into()], group_id: 1 }
}

async fn listening(world: &impl World, name: &str) -> Session {
    let set = world.sets().create(&scope(), &spec(name)).await.unwrap();
    world.sets().open(&scope(), set.id, "yard").await.unwrap()
}

/// The next message, which must come; it is deleted.
async fn told(world: &impl World, session: &Session) -> Message {
    let message = world.sets().message(session, None, 10).await.unwrap().expect("there is news");
    world.sets().delete_message(session, message.id).await.unwrap();
    message
}

/// Runs the whole suite, each part in a world of its own.
pub(super) async fn holds<W: World>(world: impl AsyncFn() -> W) {
    sets(&world().await).await;
    sessions(&world().await).await;
    a_job_s_way(&world().await).await;
    runners(&world().await).await;
    failures(&world().await).await;
    capacity(&world().await).await;
    kinds_of_news(&world().await).await;
    a_waiting_poll_is_woken(&world().await).await;
}

async fn sets(world: &impl World) {
    let (github, here) = (world.sets(), scope());
    assert_eq!(github.group(&here, "default").await.unwrap(), Some(1));
    assert_eq!(github.group(&here, "nobody").await.unwrap(), None);
    assert_eq!(github.find(&here, 1, "small").await.unwrap(), None);
    let made = github.create(&here, &spec("small")).await.unwrap();
    assert_eq!(made.spec, spec("small"));
    assert_eq!(github.find(&here, 1, "small").await.unwrap(), Some(made.clone()));
    assert_eq!(github.find(&here, 2, "small").await.unwrap(), None);
    let elsewhere = Scope::Organization { owner: "octo".into() };
    assert_eq!(github.find(&elsewhere, 1, "small").await.unwrap(), None);
    assert_eq!(letter(&github.create(&here, &spec("small")).await), 'k');
    let other = github.update(&here, made.id, &spec("large")).await.unwrap();
    assert_eq!((other.id, other.spec), (made.id, spec("large")));
    assert_eq!(letter(&github.update(&here, made.id + 99, &spec("tiny")).await), 'n');
    for _ in 0..2 {
        github.delete(&here, made.id).await.unwrap();
    }
    assert_eq!(github.find(&here, 1, "large").await.unwrap(), None);
}

async fn sessions(world: &impl World) {
    let (github, here) = (world.sets(), scope());
    assert_eq!(letter(&github.open(&here, 99, "yard").await), 'n');
    let session = listening(world, "small").await;
    assert_eq!(letter(&github.open(&here, session.set, "other").await), 'h');
    assert_eq!(github.message(&session, None, 1).await.unwrap(), None);
    let renewed = github.renew(&session).await.unwrap();
    assert_eq!((&renewed.id, &renewed.queue_url), (&session.id, &session.queue_url));
    assert_ne!(renewed.token, session.token);
    assert_eq!(letter(&github.message(&session, None, 1).await), 'e');
    assert_eq!(github.message(&renewed, None, 1).await.unwrap(), None);
    // A killed listener's session is held for about 50 s.
    world.pass(Duration::from_secs(49));
    assert_eq!(letter(&github.open(&here, session.set, "other").await), 'h');
    world.pass(Duration::from_secs(1));
    let next = github.open(&here, session.set, "other").await.unwrap();
    assert_eq!(letter(&github.renew(&renewed).await), 'o');
    for _ in 0..2 {
        github.close(&next).await.unwrap();
    }
    assert_eq!(letter(&github.open(&here, session.set, "yard").await), '.');
    assert!(!format!("{next:?}").contains(&next.token));
}

async fn a_job_s_way(world: &impl World) {
    let (github, here) = (world.sets(), scope());
    let session = listening(world, "small").await;
    world.queue("build", "small");
    let first = github.message(&session, None, 10).await.unwrap().unwrap();
    let again = github.message(&session, None, 10).await.unwrap().unwrap();
    assert_eq!((again.id, &again.jobs), (first.id, &first.jobs), "it comes again until it is deleted");
    assert_eq!(github.message(&session, Some(first.id), 10).await.unwrap(), None);
    for _ in 0..2 {
        github.delete_message(&session, first.id).await.unwrap();
    }
    let job = &first.jobs[0];
    assert_eq!(
        (job.news, job.name.as_str(), job.labels.as_slice()),
        (JobNews::Assigned, "build", &["small".into()][..])
    );
    assert_eq!((job.owner.as_str(), job.repository.as_str(), job.run_id > 0), ("octo", "app", true));
    assert!(job.queued_at.is_some() && !job.job_id.is_empty() && job.runner.is_empty());
    assert_eq!((first.statistics.assigned, first.statistics.running, first.unknown), (1, 0, 0));
    let runner = github.job_config(&here, session.set, "r1", "_work").await.unwrap();
    world.begin(&runner).await;
    let started = told(world, &session).await;
    assert_eq!((started.jobs[0].news, started.jobs[0].runner.as_str()), (JobNews::Started, "r1"));
    assert!(started.id > first.id);
    assert_eq!((started.statistics.running, started.statistics.busy, started.statistics.idle), (1, 1, 0));
    assert_eq!(letter(&github.remove_runner(&here, runner.runner_id).await), 'b');
    world.end(&runner).await;
    let ended = told(world, &session).await;
    assert_eq!((ended.jobs[0].news, ended.jobs[0].result.as_str()), (JobNews::Completed, "succeeded"));
    assert_eq!((ended.statistics.assigned, ended.statistics.registered), (0, 0));
    assert_eq!(ended.jobs[0].job_id, job.job_id);
    github.remove_runner(&here, runner.runner_id).await.unwrap();
}

async fn runners(world: &impl World) {
    let (github, here) = (world.sets(), scope());
    assert_eq!(letter(&github.job_config(&here, 99, "r1", "_work").await), 'n');
    let set = github.create(&here, &spec("small")).await.unwrap().id;
    let config = github.job_config(&here, set, "r1", "_work").await.unwrap();
    assert!(!config.encoded.is_empty());
    assert_eq!(letter(&github.job_config(&here, set, "r1", "_work").await), 'k');
    let found = github.runner(&here, "r1").await.unwrap().unwrap();
    assert_eq!((found.id, found.name.as_str()), (config.runner_id, "r1"));
    assert_eq!(github.runner_by_id(&here, found.id).await.unwrap(), Some(found.clone()));
    assert_eq!(github.runner(&here, "r2").await.unwrap(), None);
    for _ in 0..2 {
        github.remove_runner(&here, found.id).await.unwrap();
    }
    assert_eq!(github.runner_by_id(&here, found.id).await.unwrap(), None);
}

/// The table of failures.
async fn failures(world: &impl World) {
    let (github, here) = (world.sets(), scope());
    let session = listening(world, "small").await;
    world.queue("build", "small");
    let sent = github.message(&session, None, 10).await.unwrap().unwrap();
    world.expire();
    assert_eq!(letter(&github.message(&session, None, 10).await), 'e');
    assert_eq!(letter(&github.delete_message(&session, sent.id).await), 'e');
    assert_eq!(letter(&github.acquire(&session, &[1]).await), 'e');
    let session = github.renew(&session).await.unwrap();
    assert_eq!(github.message(&session, None, 10).await.unwrap().unwrap().id, sent.id);
    world.evict(session.set);
    assert_eq!(letter(&github.message(&session, Some(sent.id), 10).await), 'e');
    assert_eq!(letter(&github.renew(&session).await), 'o');
    let session = github.open(&here, session.set, "yard").await.unwrap();
    assert_eq!(github.message(&session, Some(sent.id), 10).await.unwrap(), None, "the cursor is still good");
    world.vanish(session.set);
    assert_eq!(letter(&github.message(&session, None, 10).await), 'e');
    assert_eq!(letter(&github.renew(&session).await), 'o');
    assert_eq!(letter(&github.open(&here, session.set, "yard").await), 'n');
    assert_eq!(letter(&github.job_config(&here, session.set, "r", "_work").await), 'n');
    github.close(&session).await.unwrap();
    let next = listening(world, "small").await;
    assert_ne!(next.set, session.set);
    let told = github.message(&next, None, 10).await.unwrap().unwrap();
    assert_eq!((told.jobs[0].news, told.jobs[0].name.as_str()), (JobNews::Assigned, "build"));
}

/// A capacity of 0 is never announced: it is a trap door.
async fn capacity(world: &impl World) {
    let session = listening(world, "small").await;
    assert_eq!(world.sets().message(&session, None, 0).await.unwrap(), None);
    world.queue("first", "small");
    world.queue("second", "small");
    let offered = world.sets().message(&session, None, 0).await.unwrap().unwrap();
    assert_eq!((offered.jobs.len(), offered.statistics.assigned), (1, 1));
    assert_eq!(offered.jobs[0].name, "first");
    world.sets().delete_message(&session, offered.id).await.unwrap();
    assert_eq!(told(world, &session).await.jobs[0].name, "second");
}

async fn kinds_of_news(world: &impl World) {
    world.behave(SetBehaviour { acquires: true, unknown_news: true, ..quick() });
    let session = listening(world, "small").await;
    assert_eq!(world.sets().message(&session, None, 10).await.unwrap(), None);
    world.queue("build", "small");
    let offered = told(world, &session).await;
    assert_eq!((offered.jobs[0].news, offered.jobs.len(), offered.unknown), (JobNews::Available, 1, 1));
    assert_eq!((offered.statistics.available, offered.statistics.assigned), (1, 0));
    world.sets().acquire(&session, &[offered.jobs[0].runner_request_id]).await.unwrap();
    assert_eq!(told(world, &session).await.jobs[0].news, JobNews::Assigned);
}

async fn a_waiting_poll_is_woken(world: &impl World) {
    world.behave(SetBehaviour::default());
    let session = listening(world, "small").await;
    let waiting = world.sets().message(&session, None, 10);
    let queueing = async {
        tokio::task::yield_now().await;
        world.queue("build", "small");
    };
    let both = async { tokio::join!(waiting, queueing).0 };
    let woken = tokio::time::timeout(Duration::from_secs(40), both).await.expect("it is woken");
    assert_eq!(woken.unwrap().unwrap().jobs[0].name, "build");
}
