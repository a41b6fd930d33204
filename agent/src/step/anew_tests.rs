use std::time::Duration;

use runyard_core::model::{Agent, RegistrationCredential, Signal, TroubleKind};

use crate::step::local::{Boot, Local};
use crate::step::orders::Sight;
use crate::step::{Effects, Stored, View, step};
use crate::task::{GithubFailure, RunnerEnd, RunnerProcess, Task, TaskOutcome};
use crate::testing::{arn, instance, job_credential, key, run_credential, sealed, with};

const BEGIN: Duration = Duration::from_secs(1000);
const REREGISTER: Duration = Duration::from_secs(2);
const RUNNER: RunnerProcess = RunnerProcess { pid: 7, started: 70 };

/// A machine with a claim, and its clock.
struct Machine {
    local: Local,
    sight: Sight,
    now: Duration,
}

fn sight(boxed: Option<&RegistrationCredential>) -> Sight {
    let item = instance("running", "42", "c1");
    Sight::of(Some(&match boxed {
        Some(opened) => with(item, "registration", sealed(opened, &key().public())),
        None => item,
    }))
}

fn anew(seq: u64) -> RegistrationCredential {
    RegistrationCredential { seq, runner_name: format!("runyard-c1-{seq}"), ..run_credential("c1") }
}

fn ended(end: RunnerEnd) -> TaskOutcome {
    TaskOutcome::Ended { worked: false, end }
}

fn died() -> TaskOutcome {
    ended(RunnerEnd::Lost("its listener died".into()))
}

impl Machine {
    /// Creates a machine with a listening runner.
    fn listening(opened: &RegistrationCredential) -> Self {
        let local = Local { boot: Boot::Done, ..Local::default() };
        let mut machine = Self { local, sight: sight(Some(opened)), now: BEGIN };
        machine.listens();
        machine.sight = sight(None);
        machine
    }

    fn effects(&mut self) -> Effects {
        let stored = Stored::Known(Box::new(Agent::born(&arn(), jiff::Timestamp::UNIX_EPOCH)));
        let (sight, local, now) = (&self.sight, &self.local, self.now);
        let effects = step(&View { sight, stored: &stored, local, key: &key(), now, reregister: REREGISTER });
        self.local = effects.local.clone();
        effects
    }

    fn task(&mut self) -> String {
        format!("{:?}", self.effects().task)
    }

    fn ends(&mut self, outcome: TaskOutcome) {
        let effects = self.effects();
        let number = outcome.tells_of_a_registration().then_some(Some(23));
        self.local = effects.local.after_task(Some(&effects.task), outcome, self.now, 1.0, number);
    }

    /// Continues from a credential, or a registration, to a listening runner.
    fn listens(&mut self) {
        if self.effects().task.label() == "configure" {
            self.ends(TaskOutcome::Configured);
        }
        self.ends(TaskOutcome::Started(RUNNER));
        self.ends(TaskOutcome::Listening);
    }

    fn later(&mut self, by: Duration) {
        self.now += by;
    }
}

#[test]
fn a_listener_that_died_is_registered_anew_and_says_so_until_it_listens() {
    let mut machine = Machine::listening(&run_credential("c1"));
    machine.ends(died());
    let effects = machine.effects();
    assert_eq!(effects.status.registration_done, Some(1), "the next box is asked for at once");
    let trouble = effects.status.trouble.unwrap();
    assert_eq!((trouble.kind, trouble.words.as_str()), (TroubleKind::Ended, "its listener died"));
    assert!(matches!(effects.task, Task::Renew { registered: true, .. }), "in a fresh directory");
    assert_eq!(effects.status.runner_id, Some(23), "the operator removes the dead one by it");
    assert_eq!(effects.status.say, None, "the claim has its runner, by the record");
    machine.ends(TaskOutcome::Renewed);
    assert_eq!(machine.task(), "idle");
    machine.sight = sight(Some(&anew(2)));
    let Task::Configure { registration, .. } = machine.effects().task else { panic!("it does not register") };
    assert_eq!(registration.runner_name, "runyard-c1-2");
    assert!(machine.effects().status.trouble.is_some());
    machine.listens();
    let effects = machine.effects();
    assert_eq!((effects.status.trouble, effects.task.label()), (None, "serve"));
    assert_eq!(effects.status.say.unwrap().signal, Signal::RegOk);
}

#[test]
fn without_a_new_box_it_is_started_again_as_it_was_until_the_box_comes() {
    let mut machine = Machine::listening(&run_credential("c1"));
    machine.ends(died());
    machine.ends(TaskOutcome::Renewed);
    machine.later(REREGISTER - Duration::from_millis(1));
    assert_eq!(machine.task(), "idle");
    machine.later(Duration::from_millis(1));
    assert_eq!(machine.task(), "start c1", "its operator may be away");
    machine.ends(TaskOutcome::Started(RUNNER));
    let conflict = crate::task::Trouble { kind: TroubleKind::Conflict, words: "connected".into() };
    machine.ends(TaskOutcome::Troubled(conflict));
    assert_eq!(machine.task(), "listen c1");
    machine.sight = sight(Some(&anew(2)));
    assert!(matches!(machine.effects().task, Task::Renew { runner: Some(RUNNER), registered: false, .. }));
    machine.ends(TaskOutcome::Renewed);
    assert_eq!(machine.task(), "configure c1");
}

#[test]
fn a_runner_that_github_deleted_is_registered_anew_and_not_started_again() {
    let mut machine = Machine::listening(&run_credential("c1"));
    machine.ends(ended(RunnerEnd::Forgotten("GitHub does not know it".into())));
    let effects = machine.effects();
    assert_eq!((effects.status.runner_id, effects.status.registration_done), (None, Some(1)));
    assert!(matches!(effects.task, Task::Renew { registered: false, .. }));
    machine.ends(TaskOutcome::Renewed);
    machine.later(REREGISTER * 2);
    assert_eq!(machine.task(), "idle", "there is nothing to start");
    machine.sight = sight(Some(&anew(2)));
    assert_eq!(machine.task(), "configure c1");
    assert_eq!(machine.task(), "configure c1", "it goes on, however long the wait for it could have been");
}

#[test]
fn a_box_that_an_older_operator_never_sends_is_waited_for_a_minute() {
    let mut machine = Machine::listening(&run_credential("c1"));
    machine.ends(ended(RunnerEnd::Forgotten("GitHub does not know it".into())));
    machine.ends(TaskOutcome::Renewed);
    machine.later(Duration::from_secs(59));
    assert_eq!(machine.task(), "idle");
    machine.later(Duration::from_secs(1));
    let say = machine.effects().status.say.unwrap();
    assert_eq!(say.signal, Signal::RegFailed);
    assert!(say.detail.unwrap().contains("no new registration came"));
}

#[test]
fn the_fourth_end_within_ten_minutes_fails_the_claim_and_older_ones_do_not_count() {
    let anew_from = |seq: u64, machine: &mut Machine| {
        machine.ends(died());
        machine.ends(TaskOutcome::Renewed);
        machine.later(Duration::from_secs(30));
        machine.effects();
        machine.sight = sight(Some(&anew(seq)));
        assert_eq!(machine.task(), "configure c1");
        machine.listens();
        machine.sight = sight(None);
    };
    let mut machine = Machine::listening(&run_credential("c1"));
    for seq in 2..=4 {
        anew_from(seq, &mut machine);
    }
    let mut later = Machine { local: machine.local.clone(), sight: machine.sight.clone(), now: machine.now };
    machine.ends(died());
    let say = machine.effects().status.say.unwrap();
    assert_eq!(say.signal, Signal::RegFailed);
    assert!(say.detail.unwrap().contains("4 times within ten minutes"));
    later.later(Duration::from_secs(600));
    anew_from(5, &mut later);
}

#[test]
fn a_second_box_is_asked_for_after_a_pause_and_a_third_after_a_longer_one() {
    let mut machine = Machine::listening(&run_credential("c1"));
    for (times, pause) in [(1, 0), (2, 1), (3, 2)] {
        machine.ends(died());
        machine.ends(TaskOutcome::Renewed);
        if pause > 0 {
            machine.later(Duration::from_millis(pause * 1000 - 1));
            assert_eq!(machine.effects().status.registration_done, Some(times - 1), "{times}");
            machine.later(Duration::from_millis(1));
        }
        assert_eq!(machine.effects().status.registration_done, Some(times));
        machine.sight = sight(Some(&anew(times + 1)));
        assert_eq!(machine.task(), "configure c1");
        machine.listens();
        machine.sight = sight(None);
    }
}

#[test]
fn a_single_use_runner_without_a_job_keeps_its_number_and_its_next_box_waits() {
    let mut machine = Machine::listening(&job_credential("c1", 1));
    machine.ends(ended(RunnerEnd::Lost("nobody asked for it".into())));
    let effects = machine.effects();
    assert_eq!((effects.status.registration_done, effects.status.runner_id), (Some(0), Some(23)));
    assert!(matches!(effects.task, Task::Renew { registered: false, .. }));
    machine.ends(TaskOutcome::Renewed);
    machine.later(Duration::from_millis(999));
    assert_eq!(machine.effects().status.registration_done, Some(0));
    machine.later(Duration::from_millis(1));
    let effects = machine.effects();
    assert_eq!((effects.status.registration_done, effects.status.runner_id), (Some(1), Some(23)));
    machine.sight = sight(Some(&job_credential("c1", 2)));
    let effects = machine.effects();
    assert_eq!((effects.task.label(), effects.status.runner_id), ("start", Some(72)));
}

#[test]
fn a_version_that_github_takes_no_more_fails_the_claim_at_once_in_either_mode() {
    for opened in [run_credential("c1"), job_credential("c1", 1)] {
        let mut machine = Machine::listening(&opened);
        let deprecated = GithubFailure::Deprecated("GitHub takes no runner of this version any more".into());
        machine.ends(ended(RunnerEnd::Failed(deprecated)));
        let effects = machine.effects();
        let say = effects.status.say.unwrap();
        assert_eq!((say.signal, effects.task.label()), (Signal::RegFailed, "idle"));
        assert!(say.detail.unwrap().contains("takes no runner of this version"));
        assert_eq!(effects.status.runner_id, Some(23), "the operator removes it");
        let asked = effects.status.registration_done;
        assert!(asked.is_none_or(|done| done == 0), "no box is asked for: {asked:?}");
    }
}

#[test]
fn a_listener_that_lost_github_is_started_again_from_a_fresh_directory() {
    let mut machine = Machine::listening(&run_credential("c1"));
    let away = GithubFailure::Unreachable("the token service answers 503".into());
    machine.ends(ended(RunnerEnd::Failed(away)));
    let effects = machine.effects();
    assert_eq!(effects.status.trouble.map(|trouble| trouble.kind), Some(TroubleKind::Unreachable));
    assert_eq!(effects.status.registration_done, None, "its registration stands");
    assert!(matches!(effects.task, Task::Renew { registered: true, .. }));
    machine.ends(TaskOutcome::Renewed);
    machine.later(Duration::from_secs(1));
    assert_eq!(machine.task(), "start c1");
}

#[test]
fn an_agent_that_starts_again_goes_on_waiting_for_the_box() {
    let mut machine = Machine::listening(&run_credential("c1"));
    machine.ends(ended(RunnerEnd::Forgotten("GitHub does not know it".into())));
    machine.ends(TaskOutcome::Renewed);
    let text = serde_json::to_string(&machine.effects().local).unwrap();
    machine.local = serde_json::from_str(&text).unwrap();
    machine.later(Duration::from_secs(3600));
    let effects = machine.effects();
    assert_eq!((effects.task.label(), effects.status.say), ("idle", None));
    assert!(effects.status.trouble.is_some());
    machine.sight = sight(Some(&anew(2)));
    assert_eq!(machine.task(), "configure c1");
}

#[test]
fn a_claim_that_took_a_runner_from_the_pool_registers_its_own_under_its_own_place() {
    let mut machine = Machine::listening(&run_credential("c1"));
    let served = machine.local.claim.as_mut().unwrap();
    served.place = Some("i-1.5".parse().unwrap());
    (served.lent, served.labelled) = (true, true);
    assert!(machine.effects().status.ahead.is_some());
    machine.ends(died());
    let effects = machine.effects();
    assert_eq!(effects.status.ahead, None, "it is no runner of the pool any more");
    assert!(matches!(effects.task, Task::Renew { registered: false, .. }));
    machine.ends(TaskOutcome::Renewed);
    machine.sight = sight(Some(&anew(2)));
    assert_eq!(machine.task(), "configure c1");
}

#[test]
fn a_release_ends_the_wait_for_a_box() {
    let mut machine = Machine::listening(&run_credential("c1"));
    machine.ends(died());
    machine.ends(TaskOutcome::Renewed);
    machine.sight = Sight::of(Some(&instance("idle", "", "c1")));
    let effects = machine.effects();
    assert_eq!((effects.task.label(), effects.status.trouble), ("stop", None));
}

#[test]
fn the_box_that_is_used_up_is_not_opened_again_while_the_next_is_waited_for() {
    let mut machine = Machine::listening(&run_credential("c1"));
    for _ in 0..2 {
        machine.ends(ended(RunnerEnd::Forgotten("deleted".into())));
        machine.sight = sight(Some(&run_credential("c1")));
        assert_eq!(machine.effects().task.label(), "renew");
        machine.ends(TaskOutcome::Renewed);
        assert_eq!(machine.task(), "idle");
        machine.local.claim.as_mut().unwrap().stage = crate::step::local::ClaimStage::Listening(RUNNER);
    }
}
