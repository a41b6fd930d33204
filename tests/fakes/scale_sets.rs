//! GitHub's runner scale sets in memory: the stand-in's service without its wire, and faults on order. Its times are the
//! clock's; a poll waits on tokio's time, so both must go together (`TokioClock` under paused time).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use runyard_core::ports::Clock;
use runyard_core::ports::github::{JobConfig, Runner, Scope};
use runyard_core::ports::scale_sets::{
    JobMessage, JobNews, Message, ScaleSet, ScaleSetError, ScaleSets, Session, SetSpec,
};
use runyard_standin::github::SetBehaviour;
use runyard_standin::github::scale_sets::{
    Batch, JobWish, NewsKind, ScaleSetService, Set, SetJob, SetRefusal, SetRunner,
};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::script::{Fault, Script, locked};

/// How often a poll looks again although nobody changed anything: time alone changes things, too.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The scale sets of one GitHub in memory. Clones share them.
#[derive(Clone)]
pub struct FakeScaleSets(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    faults: Script<ScaleSetError>,
    changed: Notify,
    site: Mutex<Site>,
}

#[derive(Default)]
struct Site {
    service: ScaleSetService,
    numbers: u64,
    calls: BTreeMap<&'static str, u64>,
    /// The capacities that were announced, in order.
    capacities: Vec<u32>,
    outage: Option<ScaleSetError>,
    /// What every call of a verb meets.
    outages: BTreeMap<&'static str, ScaleSetError>,
    /// What the next calls of a verb meet.
    scripts: BTreeMap<&'static str, Script<ScaleSetError>>,
    /// How long the answer to a verb takes.
    takes: BTreeMap<&'static str, Duration>,
}

impl Site {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
}

impl FakeScaleSets {
    /// A GitHub without scale sets.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let inner =
            Inner { clock, faults: Script::default(), changed: Notify::new(), site: Mutex::default() };
        Self(Arc::new(inner))
    }

    /// What the next call meets; several stand in line.
    pub fn next(&self, fault: Fault<ScaleSetError>) {
        self.0.faults.add(fault);
    }

    /// What the next call of this verb meets; several stand in line.
    pub fn next_of(&self, verb: &'static str, fault: Fault<ScaleSetError>) {
        locked(&self.0.site).scripts.entry(verb).or_default().add(fault);
    }

    /// Forgets the faults that no call has met yet.
    pub fn forget_faults(&self) {
        self.0.faults.clear();
        locked(&self.0.site).scripts.clear();
    }

    /// What every call meets from now on; none ends the outage. Polls that wait meet it at once.
    pub fn outage(&self, error: Option<ScaleSetError>) {
        locked(&self.0.site).outage = error;
        self.0.changed.notify_waiters();
    }

    /// What every call of this verb meets from now on; none ends the outage.
    pub fn outage_of(&self, verb: &'static str, error: Option<ScaleSetError>) {
        let mut site = locked(&self.0.site);
        match error {
            Some(error) => drop(site.outages.insert(verb, error)),
            None => drop(site.outages.remove(verb)),
        }
        drop(site);
        self.0.changed.notify_waiters();
    }

    /// How long the answers to this verb take from now on.
    pub fn takes(&self, verb: &'static str, time: Duration) {
        locked(&self.0.site).takes.insert(verb, time);
    }

    /// How often each verb was called, refused calls included.
    pub fn calls(&self) -> BTreeMap<&'static str, u64> {
        locked(&self.0.site).calls.clone()
    }

    /// The capacities that polls announced, in order.
    pub fn capacities(&self) -> Vec<u32> {
        locked(&self.0.site).capacities.clone()
    }

    /// How GitHub behaves from now on: late news, stale counts, and its other bad days.
    pub fn behave(&self, behaviour: SetBehaviour) {
        self.change(|service, _| service.behave(behaviour));
    }

    /// Queues a job and returns its number.
    pub fn queue_job(&self, owner: &str, repository: &str, run_id: u64, name: &str, labels: &[&str]) -> u64 {
        let number = locked(&self.0.site).number();
        let wish = JobWish {
            owner: owner.to_owned(),
            repository: repository.to_owned(),
            run_id,
            name: name.to_owned(),
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
        };
        self.change(|service, now| service.queue_job(number, wish, now));
        number
    }

    /// Lets the listener of a runner ask for a job, and returns the job that is on its way to it.
    pub fn connect(&self, runner: u64) -> Option<u64> {
        self.change(|service, now| service.runner_connects(runner, now))
    }

    /// Begins the job that is on its way to a runner, or any of its set, and returns it.
    pub fn start_job(&self, runner: u64) -> Option<u64> {
        self.change(|service, now| {
            let job = service.runner_connects(runner, now)?;
            service.job_starts(job, now);
            Some(job)
        })
    }

    /// Ends a job, begun or not, with a result such as `succeeded`; its single-use runner is gone.
    pub fn finish_job(&self, job: u64, result: &str) {
        self.change(|service, now| service.job_ends(job, result, now));
    }

    /// Ends the process of a runner without a word to GitHub, as when its machine is lost: a job on its way to it lapses, one
    /// that it has begun fails. A runner without a begun job stays in GitHub's list until somebody removes it.
    pub fn lose_runner(&self, runner: u64) {
        self.change(|service, now| {
            let job = service.runners().find(|own| own.id == runner).and_then(|own| own.job);
            let Some(job) = job else { return };
            if service.job(job).is_some_and(|job| job.place.running()) {
                service.job_ends(job, "abandoned", now);
            } else {
                service.job_returns(job, now);
            }
        });
    }

    /// Ends the session of a set without a word to its listener.
    pub fn evict(&self, set: u64) {
        self.change(|service, _| service.evict(set));
    }

    /// Ends the credentials of all sessions, which can be renewed.
    pub fn expire_tokens(&self) {
        self.change(|service, _| service.expire_tokens());
    }

    /// Deletes a set as somebody else does.
    pub fn vanish(&self, set: u64) {
        self.change(|service, now| {
            let scope = service.sets().find(|own| own.id == set).map(|own| own.scope.clone());
            // One that is gone already cannot vanish.
            let _gone = service.delete_set(&scope.unwrap_or_default(), set, now);
        });
    }

    /// Every set, with its session.
    pub fn sets(&self) -> Vec<Set> {
        self.change(|service, _| service.sets().cloned().collect())
    }

    /// Every runner of every set.
    pub fn runners(&self) -> Vec<SetRunner> {
        self.change(|service, _| service.runners().cloned().collect())
    }

    /// The sets that have a session, each with the name of its listener.
    pub fn sessions(&self) -> Vec<(u64, String)> {
        let of = |set: Set| Some((set.id, set.session?.owner));
        self.sets().into_iter().filter_map(of).collect()
    }

    /// Every job that is not over.
    pub fn jobs(&self) -> Vec<SetJob> {
        self.change(|service, _| service.jobs().cloned().collect())
    }

    /// Changes or reads the service itself.
    pub fn change<T>(&self, act: impl FnOnce(&mut ScaleSetService, Timestamp) -> T) -> T {
        let mut site = locked(&self.0.site);
        let (now, before) = (self.0.clock.now(), site.service.revision());
        site.service.tick(now);
        let outcome = act(&mut site.service, now);
        if site.service.revision() != before {
            drop(site);
            self.0.changed.notify_waiters();
        }
        outcome
    }

    async fn call<T>(
        &self,
        verb: &'static str,
        act: impl FnOnce(&mut Site, Timestamp) -> Result<T, SetRefusal>,
    ) -> Result<T, ScaleSetError> {
        *locked(&self.0.site).calls.entry(verb).or_default() += 1;
        self.answering(verb).await;
        let exit = self.0.faults.enter()?;
        let now = self.0.clock.now();
        let mut site = locked(&self.0.site);
        let own = site.scripts.get(verb).map(Script::enter).transpose()?;
        site.outage_for(verb)?;
        let before = site.service.revision();
        site.service.tick(now);
        let outcome = act(&mut site, now).map_err(|refusal| error(verb, &refusal));
        let changed = site.service.revision() != before;
        drop(site);
        if changed {
            self.0.changed.notify_waiters();
        }
        let outcome = own.into_iter().fold(outcome, |outcome, own| own.answer(outcome));
        exit.answer(outcome)
    }

    async fn answering(&self, verb: &'static str) {
        let time = locked(&self.0.site).takes.get(verb).copied();
        if let Some(time) = time {
            sleep_until(Instant::now() + time).await;
        }
    }

    /// Looks once for a message.
    fn look(
        &self,
        session: &Session,
        last: Option<u64>,
        capacity: u32,
    ) -> Result<Option<Batch>, ScaleSetError> {
        locked(&self.0.site).outage_for("message")?;
        let own = (session.id.as_str(), session.token.as_str());
        let found = self.change(|service, now| service.message(session.set, own, last, capacity, now));
        found.map_err(|refusal| error("message", &refusal))
    }
}

impl Site {
    fn outage_for(&self, verb: &'static str) -> Result<(), ScaleSetError> {
        match self.outage.clone().or_else(|| self.outages.get(verb).cloned()) {
            Some(outage) => Err(outage),
            None => Ok(()),
        }
    }
}

/// What the adapter makes of a refusal.
fn error(verb: &'static str, refusal: &SetRefusal) -> ScaleSetError {
    let said = refusal.to_string();
    let by_session = ["message", "delete_message", "acquire"].contains(&verb);
    match refusal {
        SetRefusal::Unauthorized => ScaleSetError::Denied(said),
        SetRefusal::TokenExpired => ScaleSetError::Expired(said),
        SetRefusal::NoSet(_) if verb == "renew" || by_session => ScaleSetError::SessionOver(said),
        SetRefusal::NoSet(_) | SetRefusal::NoGroup(_) | SetRefusal::NoRunner(_) => {
            ScaleSetError::NotFound(said)
        }
        SetRefusal::SetExists(_) | SetRefusal::RunnerExists(_) => ScaleSetError::NameTaken(said),
        SetRefusal::SessionConflict(_) => ScaleSetError::SessionHeld(said),
        SetRefusal::NoSession => ScaleSetError::SessionOver(said),
        SetRefusal::JobStillRunning(_) => ScaleSetError::Busy(said),
        SetRefusal::Invalid(_) => ScaleSetError::Invalid(said),
    }
}

fn name_of(scope: &Scope) -> String {
    match scope {
        Scope::Repository { owner, name } => format!("{owner}/{name}"),
        Scope::Organization { owner } => owner.clone(),
    }
}

fn shown(set: &Set) -> ScaleSet {
    let spec = SetSpec { name: set.name.clone(), labels: set.labels.clone(), group_id: set.group_id };
    ScaleSet { id: set.id, spec }
}

/// A runner as the service tells of it: not whether it is online, or has a job.
fn runner(runner: &SetRunner) -> Runner {
    Runner { id: runner.id, name: runner.name.clone(), online: false, busy: false, labels: Vec::new() }
}

fn message(batch: Batch) -> Message {
    let (mut jobs, mut unknown) = (Vec::new(), 0);
    for news in batch.news {
        let kind = match news.kind {
            NewsKind::Available => JobNews::Available,
            NewsKind::Assigned => JobNews::Assigned,
            NewsKind::Started => JobNews::Started,
            NewsKind::Completed => JobNews::Completed,
            NewsKind::Unknown => {
                unknown += 1;
                continue;
            }
        };
        jobs.push(JobMessage {
            news: kind,
            runner_request_id: news.job.number,
            job_id: news.job.job_id,
            owner: news.job.owner,
            repository: news.job.repository,
            run_id: news.job.run_id,
            name: news.job.name,
            labels: news.job.labels,
            queued_at: Some(news.job.queued_at),
            runner: news.runner.map(|(_, name)| name).unwrap_or_default(),
            result: news.result,
        });
    }
    Message { id: batch.id, statistics: batch.statistics, jobs, unknown }
}

fn absent_is_fine<T: Default>(outcome: Result<T, ScaleSetError>) -> Result<T, ScaleSetError> {
    match outcome {
        Err(ScaleSetError::NotFound(_)) => Ok(T::default()),
        outcome => outcome,
    }
}

#[async_trait]
impl ScaleSets for FakeScaleSets {
    async fn find(
        &self,
        scope: &Scope,
        group_id: u64,
        name: &str,
    ) -> Result<Option<ScaleSet>, ScaleSetError> {
        let scope = name_of(scope);
        self.call("find", |site, _| {
            let meant = |set: &&Set| {
                set.scope.eq_ignore_ascii_case(&scope)
                    && set.group_id == group_id
                    && set.name.eq_ignore_ascii_case(name)
            };
            Ok(site.service.sets().find(meant).map(shown))
        })
        .await
    }

    async fn create(&self, scope: &Scope, spec: &SetSpec) -> Result<ScaleSet, ScaleSetError> {
        let scope = name_of(scope);
        self.call("create", |site, now| site.service.create_set(&scope, spec, now).map(|set| shown(&set)))
            .await
    }

    async fn update(&self, scope: &Scope, id: u64, spec: &SetSpec) -> Result<ScaleSet, ScaleSetError> {
        let scope = name_of(scope);
        self.call("update", |site, _| site.service.update_set(&scope, id, spec).map(|set| shown(&set))).await
    }

    async fn delete(&self, scope: &Scope, id: u64) -> Result<(), ScaleSetError> {
        let scope = name_of(scope);
        absent_is_fine(self.call("delete", |site, now| site.service.delete_set(&scope, id, now)).await)
    }

    async fn group(&self, _: &Scope, name: &str) -> Result<Option<u64>, ScaleSetError> {
        self.call("group", |_, _| Ok(name.eq_ignore_ascii_case("Default").then_some(1))).await
    }

    async fn open(&self, scope: &Scope, set: u64, owner: &str) -> Result<Session, ScaleSetError> {
        let name = name_of(scope);
        self.call("open", |site, now| {
            site.service.set_in(&name, set)?;
            let (id, token) = (format!("session-{}", site.number()), format!("token-{}", site.number()));
            site.service.open(set, owner, (&id, &token), now)?;
            let queue_url = format!("https://queue.example/{set}/{id}");
            let statistics = site.service.statistics(set);
            Ok(Session { scope: scope.clone(), set, id, queue_url, token, statistics })
        })
        .await
    }

    async fn renew(&self, session: &Session) -> Result<Session, ScaleSetError> {
        self.call("renew", |site, now| {
            let token = format!("token-{}", site.number());
            site.service.renew(session.set, &session.id, &token, now)?;
            Ok(Session { token, statistics: site.service.statistics(session.set), ..session.clone() })
        })
        .await
    }

    async fn close(&self, session: &Session) -> Result<(), ScaleSetError> {
        let outcome = self.call("close", |site, now| site.service.close(session.set, &session.id, now)).await;
        match absent_is_fine(outcome) {
            Err(ScaleSetError::SessionOver(_)) => Ok(()),
            outcome => outcome,
        }
    }

    async fn message(
        &self,
        session: &Session,
        last: Option<u64>,
        capacity: u32,
    ) -> Result<Option<Message>, ScaleSetError> {
        let capacity = capacity.max(1);
        let begun = Instant::now();
        self.call("message", |site, _| {
            site.capacities.push(capacity);
            Ok(())
        })
        .await?;
        let until = begun + locked(&self.0.site).service.behaviour().poll;
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            // A change from here on is not missed, though nobody waits yet.
            changed.as_mut().enable();
            if let Some(batch) = self.look(session, last, capacity)? {
                return Ok(Some(message(batch)));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            // Neither a change nor the time alone says that there is news: the next look does.
            let _either = timeout_at(until.min(Instant::now() + LOOK_AGAIN), changed).await;
        }
    }

    async fn delete_message(&self, session: &Session, id: u64) -> Result<(), ScaleSetError> {
        let own = (session.id.as_str(), session.token.as_str());
        let delete = |site: &mut Site, now| site.service.delete_message(session.set, own, id, now);
        self.call("delete_message", delete).await
    }

    async fn acquire(&self, session: &Session, jobs: &[u64]) -> Result<(), ScaleSetError> {
        self.call("acquire", |site, now| {
            site.service.session_of(session.set, &session.token, now)?;
            site.service.acquire(session.set, jobs, now);
            Ok(())
        })
        .await
    }

    async fn job_config(
        &self,
        scope: &Scope,
        set: u64,
        name: &str,
        _work_folder: &str,
    ) -> Result<JobConfig, ScaleSetError> {
        let scope = name_of(scope);
        self.call("job_config", |site, _| {
            site.service.set_in(&scope, set)?;
            let id = site.number();
            let runner = site.service.add_runner(set, id, name)?;
            Ok(JobConfig { runner_id: runner.id, encoded: format!("jit-{id}") })
        })
        .await
    }

    async fn runner(&self, scope: &Scope, name: &str) -> Result<Option<Runner>, ScaleSetError> {
        let scope = name_of(scope);
        self.call("runner", |site, _| {
            Ok(site.service.runners_in(&scope).find(|own| own.name == name).map(runner))
        })
        .await
    }

    async fn runner_by_id(&self, scope: &Scope, id: u64) -> Result<Option<Runner>, ScaleSetError> {
        let scope = name_of(scope);
        self.call("runner_by_id", |site, _| Ok(site.service.runner_in(&scope, id).ok().map(runner))).await
    }

    async fn remove_runner(&self, scope: &Scope, id: u64) -> Result<(), ScaleSetError> {
        let scope = name_of(scope);
        absent_is_fine(
            self.call("remove_runner", |site, now| site.service.remove_runner(&scope, id, now)).await,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TokioClock;

    fn scope() -> Scope {
        Scope::Organization { owner: "octo".into() }
    }

    async fn listening() -> (FakeScaleSets, Session) {
        let sets = FakeScaleSets::new(Arc::new(TokioClock::starting(Timestamp::UNIX_EPOCH)));
        let spec = SetSpec { name: "small".into(), labels: vec!["small".into()], group_id: 1 };
        let set = sets.create(&scope(), &spec).await.unwrap();
        let session = sets.open(&scope(), set.id, "yard").await.unwrap();
        (sets, session)
    }

    #[tokio::test(start_paused = true)]
    async fn a_poll_waits_fifty_seconds_and_is_woken_by_a_job_at_once() {
        let (sets, session) = listening().await;
        let begun = Instant::now();
        assert_eq!(sets.message(&session, None, 3).await, Ok(None));
        assert_eq!(begun.elapsed(), Duration::from_secs(50));
        let begun = Instant::now();
        let queueing = async {
            sleep_until(begun + Duration::from_secs(7)).await;
            sets.queue_job("octo", "app", 41, "build", &["small"])
        };
        let (told, job) = tokio::join!(sets.message(&session, None, 3), queueing);
        assert_eq!(told.unwrap().unwrap().jobs[0].runner_request_id, job);
        assert_eq!(begun.elapsed(), Duration::from_secs(7));
        assert_eq!(sets.capacities(), [3, 3]);
        // A job that no runner takes is assigned again under another name, though nobody changes anything.
        let lapsed = sets.message(&session, Some(1), 3);
        let again = async {
            let mut lapsed = lapsed.await.unwrap();
            while lapsed.is_none() {
                lapsed = sets.message(&session, Some(1), 3).await.unwrap();
            }
            lapsed.unwrap()
        };
        let news: Vec<JobNews> = again.await.jobs.iter().map(|job| job.news).collect();
        assert_eq!(news, [JobNews::Completed, JobNews::Assigned]);
    }

    #[tokio::test(start_paused = true)]
    async fn faults_meet_the_calls_that_they_are_for() {
        let (sets, session) = listening().await;
        let lost = || ScaleSetError::Unreachable("lost".into());
        sets.next_of("job_config", Fault::LoseAnswer(lost()));
        assert_eq!(sets.runner(&scope(), "r").await, Ok(None));
        assert_eq!(sets.job_config(&scope(), session.set, "r", "_work").await, Err(lost()));
        assert!(sets.runner(&scope(), "r").await.unwrap().is_some(), "it was created");
        sets.next(Fault::Fail(lost()));
        assert_eq!(sets.runner(&scope(), "r").await, Err(lost()));
        sets.takes("runner", Duration::from_secs(3));
        let begun = Instant::now();
        assert!(sets.runner(&scope(), "r").await.is_ok());
        assert_eq!(begun.elapsed(), Duration::from_secs(3));
        let outage = async { sets.outage_of("message", Some(lost())) };
        let (told, ()) = tokio::join!(sets.message(&session, None, 3), outage);
        assert_eq!(told, Err(lost()), "a poll that waits meets it");
        assert_eq!((sets.calls()["runner"], sets.calls()["message"]), (4, 1));
        assert_eq!(sets.sessions(), [(session.set, "yard".to_owned())]);
    }
}
