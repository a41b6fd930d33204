use runyard_core::model::{Agent, AttributeValue, ClaimId, Signal};

use super::*;
use crate::task::{GithubFailure, RunnerEnd, RunnerProcess, TaskOutcome};
use crate::testing::{arn, instance, job_credential, key, removal_credential, run_credential, sealed, with};

const NOW: Duration = Duration::from_secs(100);
const RUNNER: RunnerProcess = RunnerProcess { pid: 7, started: 70 };
const REREGISTER: Duration = Duration::from_secs(2);

fn claim(id: &str) -> ClaimId {
    ClaimId::parse(id).unwrap()
}

fn booted() -> Local {
    Local { boot: Boot::Done, ..Local::default() }
}

fn at(id: &str, stage: ClaimStage) -> Local {
    let mut served = Served::new(claim(id), "42".to_owned(), stage);
    served.registered = true;
    served.mode = Some(Mode::Run);
    Local { served: true, claim: Some(served), ..booted() }
}

fn swept(id: &str) -> Local {
    edit(at(id, ClaimStage::Stopped), |served| served.swept = true)
}

fn edit(mut local: Local, change: impl FnOnce(&mut Served)) -> Local {
    change(local.claim.as_mut().unwrap());
    local
}

fn record(state: &str, run: &str, claim: &str) -> Sight {
    Sight::of(Some(&instance(state, run, claim)))
}

fn registration(state: &str, id: &str, opened: &RegistrationCredential) -> Sight {
    Sight::of(Some(&with(instance(state, "42", id), "registration", sealed(opened, &key().public()))))
}

fn removal(id: &str, of: &str) -> Sight {
    Sight::of(Some(&with(
        instance("idle", "", id),
        "removal",
        sealed(&removal_credential(of), &key().public()),
    )))
}

fn shows(signal: Option<Signal>, id: &str) -> Stored {
    let mut agent = Agent::born(&arn(), jiff::Timestamp::UNIX_EPOCH);
    agent.signal = signal;
    agent.signal_claim_id = signal.map(|_| id.to_owned());
    Stored::Known(Box::new(agent))
}

fn judged(sight: &Sight, stored: &Stored, local: &Local) -> Effects {
    let key = &key();
    let view = |local| View { sight, stored, local, key, now: NOW, reregister: REREGISTER };
    let effects = step(&view(local));
    let again = step(&view(&effects.local));
    assert_eq!(format!("{effects:?}"), format!("{again:?}"), "asking again gives the same answer");
    effects
}

/// Returns the outcome of a runner that ended after a job.
fn worked() -> TaskOutcome {
    TaskOutcome::Ended { worked: true, end: RunnerEnd::Lost("its job is done".into()) }
}

/// Returns the current task and signal, in one line.
fn answer(sight: &Sight, stored: &Stored, local: &Local) -> String {
    let effects = judged(sight, stored, local);
    let say = effects.status.say.map_or_else(
        || "-".to_owned(),
        |say| {
            format!("{} {}", say.signal, say.claim.map(|c| c.to_string()).unwrap_or_default())
                .trim()
                .to_owned()
        },
    );
    let power = if effects.power_off.is_some() { ", power off" } else { "" };
    format!("{:?} / {say}{power}", effects.task)
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table: the rows of the contract")]
fn each_row_of_the_contract_has_its_work_and_its_signal() {
    let stage = |id: &str, stage| at(id, stage);
    let nothing = shows(None, "");
    let run = |id: &str| registration("claimed", id, &run_credential(id));
    let rows: Vec<(&str, Sight, Stored, Local, &str)> = vec![
        ("first boot comes first", record("created", "", ""), nothing.clone(), Local::default(), "boot / -"),
        ("even before any record", Sight::Unseen, Stored::Unknown, Local::default(), "boot / -"),
        (
            "a failed boot is said, and nothing is done",
            run("c1"),
            nothing.clone(),
            Local { boot: Boot::Failed("x".into()), ..Local::default() },
            "idle / UD_FAILED",
        ),
        ("a warm machine is ready", record("created", "", ""), nothing.clone(), booted(), "idle / UD_OK"),
        (
            "bound, no box yet: it waits",
            record("created", "42", "c1"),
            nothing.clone(),
            booted(),
            "idle / UD_OK",
        ),
        ("a box: it registers", run("c1"), nothing.clone(), booted(), "configure c1 / -"),
        (
            "a box for another claim is not used",
            registration("claimed", "c1", &run_credential("c0")),
            nothing.clone(),
            booted(),
            "idle / UD_OK",
        ),
        (
            "registered: it starts",
            run("c1"),
            nothing.clone(),
            stage("c1", ClaimStage::Configured),
            "start c1 / -",
        ),
        (
            "config.sh returning is not listening",
            run("c1"),
            nothing.clone(),
            stage("c1", ClaimStage::Started(RUNNER)),
            "listen c1 / -",
        ),
        (
            "listening is said",
            record("claimed", "42", "c1"),
            nothing.clone(),
            stage("c1", ClaimStage::Listening(RUNNER)),
            "serve c1 / UD_REG_OK c1",
        ),
        (
            "and said again when the record forgot it",
            record("running", "42", "c1"),
            shows(Some(Signal::Ok), ""),
            stage("c1", ClaimStage::Listening(RUNNER)),
            "serve c1 / UD_REG_OK c1",
        ),
        (
            "refused is said",
            run("c1"),
            nothing.clone(),
            stage("c1", ClaimStage::Refused("no".into())),
            "idle / UD_REG_FAILED c1",
        ),
        (
            "released while listening: it stops",
            record("idle", "", "c1"),
            shows(Some(Signal::RegOk), "c1"),
            stage("c1", ClaimStage::Listening(RUNNER)),
            "stop c1 / -",
        ),
        (
            "released before anything was registered: it cleans all the same",
            record("idle", "", "c1"),
            nothing.clone(),
            booted(),
            "stop c1 / -",
        ),
        (
            "refused, then released: it cleans and answers",
            record("idle", "", "c1"),
            shows(Some(Signal::RegFailed), "c1"),
            edit(stage("c1", ClaimStage::Refused("no".into())), |s| s.registered = false),
            "stop c1 / -",
        ),
        (
            "stopped and registered: no credential comes before what the job left is gone",
            removal("c1", "c1"),
            nothing.clone(),
            stage("c1", ClaimStage::Stopped),
            "wipe c1 / -",
        ),
        (
            "swept and registered: it waits for the removal",
            record("idle", "", "c1"),
            nothing.clone(),
            swept("c1"),
            "idle / -",
        ),
        ("the removal is there", removal("c1", "c1"), nothing.clone(), swept("c1"), "deregister c1 / -"),
        (
            "a removal for another claim is not used",
            removal("c1", "c0"),
            nothing.clone(),
            swept("c1"),
            "idle / -",
        ),
        (
            "another run's job was refused: what it left goes, and the run keeps its runner",
            record("running", "42", "c1"),
            shows(Some(Signal::RegOk), "c1"),
            stage("c1", ClaimStage::Renewing(Some(RUNNER))),
            "renew c1 / -",
        ),
        (
            "released meanwhile: it stops",
            record("idle", "", "c1"),
            nothing.clone(),
            stage("c1", ClaimStage::Renewing(Some(RUNNER))),
            "stop c1 / -",
        ),
        (
            "never registered: nothing to remove",
            record("idle", "", "c1"),
            nothing.clone(),
            edit(stage("c1", ClaimStage::Stopped), |s| s.registered = false),
            "wipe c1 / -",
        ),
        (
            "clean is said",
            record("idle", "", "c1"),
            nothing.clone(),
            stage("c1", ClaimStage::Clean),
            "idle / UD_REMOVE_REG_OK c1",
        ),
        (
            "unproved is said",
            record("idle", "", "c1"),
            nothing.clone(),
            stage("c1", ClaimStage::Unclean("x".into())),
            "idle / UD_REMOVE_REG_FAILED c1",
        ),
        (
            "a pooled machine that runs something stops it",
            record("idle", "", "c1"),
            nothing.clone(),
            stage("c1", ClaimStage::Started(RUNNER)),
            "stop c1 / -",
        ),
        (
            "the next claim begins after a clean end, and never with UD_OK",
            record("claimed", "43", "c2"),
            shows(Some(Signal::RemoveRegOk), "c1"),
            stage("c1", ClaimStage::Clean),
            "idle / -",
        ),
        (
            "another claim under a running runner: the old one first",
            run("c2"),
            shows(Some(Signal::RegOk), "c1"),
            stage("c1", ClaimStage::Listening(RUNNER)),
            "stop c1 / -",
        ),
        ("no removal will come for the old one", run("c2"), nothing.clone(), swept("c1"), "wipe c1 / -"),
        ("then the new one", run("c2"), nothing.clone(), stage("c1", ClaimStage::Clean), "configure c2 / -"),
        (
            "the claim vanished under a runner",
            record("idle", "", ""),
            nothing.clone(),
            stage("c1", ClaimStage::Listening(RUNNER)),
            "stop c1 / -",
        ),
        (
            "no record is no command to a runner",
            Sight::Absent,
            Stored::Absent,
            stage("c1", ClaimStage::Listening(RUNNER)),
            "serve c1 / UD_REG_OK c1",
        ),
        (
            "nor is one of a newer schema",
            Sight::Unreadable("schema".into()),
            nothing.clone(),
            stage("c1", ClaimStage::Configuring),
            "idle / -",
        ),
        (
            "a clean-up in progress goes on without a record",
            Sight::Absent,
            Stored::Absent,
            stage("c1", ClaimStage::Stopping(Some(RUNNER))),
            "stop c1 / -",
        ),
        (
            "terminated ends everything",
            record("terminated", "", "c1"),
            nothing.clone(),
            stage("c1", ClaimStage::Listening(RUNNER)),
            "idle / UD_REG_OK c1, power off",
        ),
        ("even a boot", record("terminated", "", ""), nothing, Local::default(), "idle / -, power off"),
    ];
    for (row, sight, stored, local, wanted) in rows {
        assert_eq!(answer(&sight, &stored, &local), wanted, "{row}");
    }
}

#[test]
fn an_agent_that_lost_its_state_answers_once_and_only_after_reading_its_record() {
    let released = record("idle", "", "c1");
    assert_eq!(answer(&released, &shows(Some(Signal::RemoveRegOk), "c1"), &booted()), "idle / -");
    assert_eq!(answer(&released, &shows(Some(Signal::RemoveRegFailed), "c1"), &booted()), "idle / -");
    assert_eq!(answer(&released, &Stored::Unknown, &booted()), "idle / -");
    assert_eq!(answer(&released, &shows(Some(Signal::RemoveRegOk), "c0"), &booted()), "stop c1 / -");
    assert_eq!(answer(&released, &Stored::Absent, &booted()), "stop c1 / -");
}

/// A claim that ended before its agent ever read it as held is answered, too, and remembered: the record that shows the
/// answer may be read late.
#[test]
fn an_agent_that_answered_for_a_claim_it_never_held_never_says_that_it_booted_again() {
    let answered = judged(&record("idle", "", "c1"), &Stored::Absent, &booted());
    assert!(answered.local.served, "{:?}", answered.local);
    let mut clean = answered.local;
    clean.claim.as_mut().unwrap().stage = ClaimStage::Clean;
    let late = shows(Some(Signal::Ok), "");
    assert_eq!(answer(&record("idle", "", "c1"), &late, &clean), "idle / UD_REMOVE_REG_OK c1");
    assert_eq!(answer(&record("claimed", "42", "c2"), &late, &clean), "idle / -");
    let forgot = Local { claim: None, ..clean };
    assert_eq!(answer(&record("idle", "", ""), &late, &forgot), "idle / -", "whatever it has at hand");
}

#[test]
fn boxes_that_are_garbage_or_empty_fail_the_registration_in_words() {
    let garbage = Sight::of(Some(&with(instance("claimed", "42", "c1"), "registration", "AAAA".into())));
    let other_key = runyard_core::model::AgentKey::from_bytes([9; 32]).public();
    let foreign = sealed(&run_credential("c1"), &other_key);
    let foreign = Sight::of(Some(&with(instance("claimed", "42", "c1"), "registration", foreign)));
    let empty = RegistrationCredential { token: None, ..run_credential("c1") };
    for (sight, why) in [
        (garbage, "does not open"),
        (foreign, "does not open"),
        (registration("claimed", "c1", &empty), "neither"),
    ] {
        let effects = judged(&sight, &shows(None, ""), &booted());
        let say = effects.status.say.unwrap();
        assert_eq!(say.signal, Signal::RegFailed);
        assert!(say.detail.unwrap().contains(why));
    }
    let removal = Sight::of(Some(&with(instance("idle", "", "c1"), "removal", "AAAA".into())));
    assert_eq!(answer(&removal, &shows(None, ""), &swept("c1")), "idle / -");
}

#[test]
fn the_local_state_says_configuring_before_config_sh_is_called() {
    let effects = judged(&registration("claimed", "c1", &run_credential("c1")), &shows(None, ""), &booted());
    let served = effects.local.claim.unwrap();
    assert_eq!((served.stage, served.seq), (ClaimStage::Configuring, 1));
    assert!(effects.local.served);
    assert_eq!(effects.status.runner_name.as_deref(), Some("runyard-c1"));
    assert_eq!(effects.status.registration_done, None);
}

#[test]
fn a_single_use_box_is_used_once_and_the_run_keeps_its_runner_between_jobs() {
    let first = registration("claimed", "c1", &job_credential("c1", 1));
    let effects = judged(&first, &shows(None, ""), &booted());
    assert_eq!(format!("{:?}", effects.task), "start c1");
    assert_eq!(
        effects.status.registration_done,
        Some(0),
        "what an earlier claim used up says nothing of this one"
    );
    let started = effects.local.after(TaskOutcome::Started(RUNNER), NOW, 0.0);
    let ended = started.after(worked(), NOW, 0.0);
    let second = registration("running", "c1", &job_credential("c1", 2));
    assert_eq!(answer(&second, &shows(None, ""), &ended), "renew c1 / UD_REG_OK c1", "nothing passes on");
    let ended = ended.after(TaskOutcome::Renewed, NOW, 0.0);
    let effects = judged(&first, &shows(None, ""), &ended);
    assert_eq!(format!("{:?}", effects.task), "idle", "the box is used up");
    assert_eq!(effects.status.registration_done, Some(1));
    assert_eq!(effects.status.say.unwrap().signal, Signal::RegOk);
    assert_eq!(answer(&second, &shows(None, ""), &ended), "start c1 / UD_REG_OK c1");
    // The credential is used up: nothing is registered, so there is no removal to wait for.
    let stopping = judged(&record("idle", "", "c1"), &shows(None, ""), &ended).local;
    let stopped = stopping.after(TaskOutcome::Stopped { registered: true }, NOW, 0.0);
    assert_eq!(answer(&record("idle", "", "c1"), &shows(None, ""), &stopped), "wipe c1 / -");
}

#[test]
fn a_single_use_runner_that_never_listened_is_left_to_the_operator_by_its_number() {
    let boxed = registration("running", "c1", &job_credential("c1", 2));
    let begun = judged(&boxed, &shows(None, ""), &booted());
    assert_eq!(begun.status.runner_id, Some(72));
    let started = begun.local.after(TaskOutcome::Started(RUNNER), NOW, 0.0);
    let released = record("idle", "", "c1");
    let stopping = judged(&released, &shows(None, ""), &started).local;
    // It was ended before it stored anything of its registration.
    let stopped = stopping.after(TaskOutcome::Stopped { registered: false }, NOW, 0.0);
    let effects = judged(&released, &shows(None, ""), &stopped);
    assert!(matches!(effects.task, Task::Wipe { wipe: Wipe::Whole, .. }), "{:?}", effects.task);
    let clean = effects.local.after(TaskOutcome::Wiped, NOW, 0.0);
    let effects = judged(&released, &shows(None, ""), &clean);
    assert_eq!(effects.status.say.unwrap().signal, Signal::RemoveRegOk);
    assert_eq!(effects.status.runner_id, Some(72), "nothing is in the pool before GitHub let it go");
}

#[test]
fn an_unreachable_github_never_fails_a_registration_and_a_third_refusal_does() {
    let sight = registration("claimed", "c1", &run_credential("c1"));
    let mut local = judged(&sight, &shows(None, ""), &booted()).local;
    for _ in 0..100 {
        local = local.after(TaskOutcome::Failed(GithubFailure::Unreachable("away".into())), NOW, 1.0);
        assert_eq!(answer(&sight, &shows(None, ""), &local), "idle / -", "it waits before it tries again");
        local = edit(local, |s| s.retry_at = None);
        assert_eq!(answer(&sight, &shows(None, ""), &local), "configure c1 / -");
    }
    for refusal in 1..=3 {
        local = judged(&sight, &shows(None, ""), &local).local;
        local = local.after(TaskOutcome::Failed(GithubFailure::Refused("401".into())), NOW, 1.0);
        local = edit(local, |s| s.retry_at = None);
        let wanted = if refusal < 3 { "configure c1 / -" } else { "idle / UD_REG_FAILED c1" };
        assert_eq!(answer(&sight, &shows(None, ""), &local), wanted);
    }
}

#[test]
fn a_removal_refused_three_times_is_unproved_and_an_unanswered_one_is_not() {
    let sight = removal("c1", "c1");
    let mut local = swept("c1");
    for _ in 0..10 {
        local = edit(
            local.after(TaskOutcome::Failed(GithubFailure::Unreachable("away".into())), NOW, 0.0),
            |s| s.retry_at = None,
        );
        assert_eq!(answer(&sight, &shows(None, ""), &local), "deregister c1 / -");
    }
    for _ in 0..3 {
        local = edit(local.after(TaskOutcome::Failed(GithubFailure::Refused("no".into())), NOW, 0.0), |s| {
            s.retry_at = None
        });
    }
    assert_eq!(answer(&sight, &shows(None, ""), &local), "idle / UD_REMOVE_REG_FAILED c1");
}

#[test]
fn a_machine_is_swept_before_its_runner_is_deregistered_and_again_afterwards() {
    let sight = removal("c1", "c1");
    let wipe = |local: &Local| match judged(&sight, &shows(None, ""), local).task {
        Task::Wipe { wipe, .. } => wipe,
        other => panic!("{other:?}"),
    };
    let stopped = at("c1", ClaimStage::Stopped);
    assert_eq!(wipe(&stopped), Wipe::BeforeRemoval);
    let swept = stopped.after(TaskOutcome::Wiped, NOW, 0.0);
    assert_eq!(answer(&sight, &shows(None, ""), &swept), "deregister c1 / -");
    let deregistered = swept.after(TaskOutcome::Deregistered, NOW, 0.0);
    assert_eq!(wipe(&deregistered), Wipe::AfterRemoval);
    let clean = deregistered.after(TaskOutcome::Wiped, NOW, 0.0);
    assert_eq!(answer(&sight, &shows(None, ""), &clean), "idle / UD_REMOVE_REG_OK c1");
    let never = edit(at("c1", ClaimStage::Stopped), |served| served.registered = false);
    assert_eq!(wipe(&never), Wipe::Whole);
}

#[test]
fn a_runner_whose_number_is_known_is_left_to_the_operator() {
    let sight = record("idle", "", "c1");
    let stopping = at("c1", ClaimStage::Stopping(Some(RUNNER)));
    let mut stopped = stopping.after(TaskOutcome::Stopped { registered: true }, NOW, 0.0);
    stopped.registered_as(Some(17));
    let effects = judged(&sight, &shows(Some(Signal::RegOk), "c1"), &stopped);
    assert!(matches!(effects.task, Task::Wipe { wipe: Wipe::Whole, .. }), "nothing waits for a removal");
    let clean = effects.local.after(TaskOutcome::Wiped, NOW, 0.0);
    let effects = judged(&sight, &shows(Some(Signal::RegOk), "c1"), &clean);
    assert_eq!(effects.status.say.map(|say| say.signal), Some(Signal::RemoveRegOk));
    assert_eq!(effects.status.runner_id, Some(17));
}

#[test]
fn a_number_is_kept_while_it_is_not_told_anew_and_goes_with_its_runner() {
    let mut local = at("c1", ClaimStage::Configured);
    local.registered_as(Some(17));
    local.registered_as(None);
    assert_eq!(local.claim.as_ref().unwrap().runner_id, Some(17));
    let job = edit(local, |served| {
        (served.mode, served.stage) = (Some(Mode::Job), ClaimStage::Listening(RUNNER));
    });
    let mut ended = job.after(worked(), NOW, 0.0);
    assert_eq!(
        ended.claim.as_ref().unwrap().runner_id,
        None,
        "GitHub removes a runner that served its one job"
    );
    ended.registered_as(Some(17));
    assert_eq!(ended.claim.unwrap().runner_id, None, "a file that is left says nothing");
}

#[test]
fn a_refused_job_costs_a_run_only_its_runners_directory() {
    let sight = record("running", "42", "c1");
    let said = shows(Some(Signal::RegOk), "c1");
    let local = at("c1", ClaimStage::Listening(RUNNER)).after(TaskOutcome::Intruded, NOW, 0.0);
    let effects = judged(&sight, &said, &local);
    assert!(matches!(effects.task, Task::Renew { runner: Some(RUNNER), registered: true, .. }));
    let renewed = local.clone().after(TaskOutcome::Renewed, NOW, 0.0);
    assert_eq!(answer(&sight, &said, &renewed), "start c1 / -");
    let unproved = local.after(TaskOutcome::Unproved("a process".into()), NOW, 0.0);
    assert_eq!(answer(&sight, &said, &unproved), "idle / UD_REMOVE_REG_FAILED c1");
    let job = edit(at("c1", ClaimStage::Listening(RUNNER)), |served| {
        (served.mode, served.seq) = (Some(Mode::Job), 3);
    });
    let job = job.after(TaskOutcome::Intruded, NOW, 0.0);
    let effects = judged(&sight, &said, &job);
    assert!(matches!(effects.task, Task::Renew { runner: Some(RUNNER), registered: false, .. }));
    assert_eq!(effects.status.registration_done, Some(3), "its registration is used up");
}

#[test]
fn a_runner_is_started_for_the_run_and_the_repository_of_its_record() {
    let mut item =
        with(instance("claimed", "42", "c1"), "registration", sealed(&run_credential("c1"), &key().public()));
    let pk = runyard_core::model::AttributeValue::S("request#acme/web#42".to_owned());
    let request = runyard_core::model::AttributeValue::M([("pk".to_owned(), pk)].into());
    item.insert("request".to_owned(), request);
    let sight = Sight::of(Some(&item));
    let local = judged(&sight, &shows(None, ""), &booted()).local.after(TaskOutcome::Configured, NOW, 0.0);
    let Task::Start { holder, .. } = judged(&sight, &shows(None, ""), &local).task else {
        panic!("it does not start")
    };
    assert_eq!((holder.run.as_str(), holder.repository.as_str()), ("42", "acme/web"));
}

/// Returns a claimed record that grants this to its jobs.
fn granting(id: &str, name: &str, value: AttributeValue) -> Sight {
    let mut item =
        with(instance("claimed", "42", id), "registration", sealed(&job_credential(id, 1), &key().public()));
    item.insert("jobs".to_owned(), AttributeValue::M([(name.to_owned(), value)].into()));
    Sight::of(Some(&item))
}

#[test]
fn a_machine_whose_job_could_become_root_waits_for_its_end_and_serves_nobody_else() {
    let sight = granting("c1", "root", AttributeValue::Bool(true));
    let begun = judged(&sight, &shows(None, ""), &booted());
    let Task::Start { holder, .. } = begun.task else { panic!("{:?}", begun.task) };
    assert!(holder.jobs.root);
    let started = begun.local.after(TaskOutcome::Started(RUNNER), NOW, 0.0);
    let served = started.after(TaskOutcome::Listening, NOW, 0.0).after(worked(), NOW, 0.0);
    let waits = judged(&sight, &shows(Some(Signal::RegOk), "c1"), &served);
    assert!(matches!(waits.task, Task::Idle), "{:?}", waits.task);
    assert_eq!(waits.status.registration_done, Some(1));
    let over = edit(served, |served| served.stage = ClaimStage::Stopped).after(TaskOutcome::Wiped, NOW, 0.0);
    let next = judged(&registration("claimed", "c2", &run_credential("c2")), &shows(None, ""), &over);
    let say = next.status.say.unwrap();
    assert!(say.signal == Signal::RegFailed && say.detail.unwrap().contains("c1 could become root"));
}

#[test]
fn what_an_agent_cannot_grant_is_no_claim_it_serves() {
    let sight = granting("c1", "containers", AttributeValue::S("virtual".into()));
    let effects = judged(&sight, &shows(None, ""), &booted());
    let say = effects.status.say.unwrap();
    assert!(matches!(effects.task, Task::Idle) && say.signal == Signal::RegFailed);
    assert!(say.detail.unwrap().contains("jobs.containers"));
}

#[test]
fn a_machine_once_unclean_never_serves_nor_calls_itself_clean_again() {
    let unclean = at("c1", ClaimStage::Stopped).after(TaskOutcome::Unproved("a mount".into()), NOW, 0.0);
    let sight = registration("claimed", "c2", &run_credential("c2"));
    let effects = judged(&sight, &shows(None, ""), &unclean);
    let say = effects.status.say.unwrap();
    assert_eq!((say.signal, say.claim.unwrap().as_str()), (Signal::RegFailed, "c2"));
    assert!(say.detail.unwrap().contains("a mount"));
    let released = record("idle", "", "c2");
    let mut local = judged(&released, &shows(None, ""), &effects.local).local;
    for outcome in [TaskOutcome::Stopped { registered: false }, TaskOutcome::Wiped] {
        local = judged(&released, &shows(None, ""), &local.after(outcome, NOW, 0.0)).local;
    }
    assert_eq!(answer(&released, &shows(None, ""), &local), "idle / UD_REMOVE_REG_FAILED c2");
}

#[test]
fn what_is_on_disk_reads_back_without_the_waits() {
    let local = edit(at("c1", ClaimStage::Stopping(Some(RUNNER))), |s| s.retry_at = Some(NOW));
    let text = serde_json::to_string(&local).unwrap();
    let back: Local = serde_json::from_str(&text).unwrap();
    assert_eq!(back, edit(local, |s| s.retry_at = None));
}

/// Evaluates a clean machine with a class that keeps a directory, for a record with or without a verdict.
fn settling(record: Sight, retry: Option<Duration>) -> (Effects, Local) {
    let keep = serde_json::from_value(serde_json::json!({"name": "npm", "path": "~/.npm"})).unwrap();
    let local = edit(at("c1", ClaimStage::Settling), |served| {
        (served.keep, served.since, served.retry_at) = (vec![keep], Some(70), retry);
    });
    (judged(&record, &Stored::Absent, &local), local)
}

#[test]
fn what_a_claim_wrote_is_kept_by_the_operators_word_for_this_claim_alone() {
    let told = |claim: &str, names: &[&str]| {
        let mut item = instance("idle", "", "c1");
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let names = AttributeValue::L(names.iter().map(|name| text(name)).collect());
        let promotion = [("claimId".to_owned(), text(claim)), ("names".to_owned(), names)];
        item.insert("promotion".to_owned(), AttributeValue::M(promotion.into_iter().collect()));
        Sight::of(Some(&item))
    };
    let (soon, late) = (Some(NOW + Duration::from_secs(9)), Some(NOW));
    for (record, retry, expected) in [
        (told("c1", &["npm"]), soon, Some(vec!["npm"])),
        (told("c1", &["npm"]), late, Some(vec!["npm"])),
        (told("c1", &[]), soon, Some(vec![])),
        (told("c0", &["npm"]), soon, None),
        (told("c0", &["npm"]), late, Some(vec![])),
        (record("idle", "", "c1"), soon, None),
        (record("idle", "", "c1"), late, Some(vec![])),
        // A restarted agent does not wait.
        (record("idle", "", "c1"), None, Some(vec![])),
        // The record names another claim by now.
        (record("claimed", "43", "c2"), soon, Some(vec![])),
        (Sight::Absent, soon, None),
    ] {
        let (effects, local) = settling(record.clone(), retry);
        let names = match &effects.task {
            Task::Settle { names, holder, .. } => {
                assert_eq!(holder.keep.len(), 1);
                Some(names.iter().map(String::as_str).collect::<Vec<_>>())
            }
            Task::Idle => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(names, expected, "{record:?} {retry:?}");
        assert_eq!(effects.status.say, None, "it is not clean before");
        let clean = local.after(TaskOutcome::Settled, NOW, 0.0);
        assert_eq!(clean.claim.unwrap().stage, ClaimStage::Clean);
    }
}

#[test]
fn only_a_claim_whose_class_keeps_anything_and_whose_runner_ran_waits_for_that_word() {
    let keep: runyard_core::model::Keep =
        serde_json::from_value(serde_json::json!({"name": "npm", "path": "~/.npm"})).unwrap();
    for (keeps, since, tainted, expected) in [
        (true, Some(70), false, ClaimStage::Settling),
        (false, Some(70), false, ClaimStage::Clean),
        (true, None, false, ClaimStage::Clean),
        (true, Some(70), true, ClaimStage::Unclean("why".to_owned())),
    ] {
        let mut local = edit(swept("c1"), |served| {
            served.keep = if keeps { vec![keep.clone()] } else { Vec::new() };
            (served.since, served.registered) = (since, false);
        });
        local.tainted = tainted.then(|| "why".to_owned());
        let after = local.after(TaskOutcome::Wiped, NOW, 0.0);
        assert_eq!(after.claim.unwrap().stage, expected);
    }
}

#[test]
fn a_held_machine_loses_its_runner_and_nothing_that_a_person_may_want_to_see() {
    let hold = AttributeValue::M([("by".to_owned(), AttributeValue::S("ada".into()))].into());
    let held = |run: &str| {
        let mut item = instance(if run.is_empty() { "idle" } else { "running" }, run, "c1");
        item.insert("hold".to_owned(), hold.clone());
        Sight::of(Some(&item))
    };
    let listening = at("c1", ClaimStage::Listening(RUNNER));
    assert_eq!(judged(&held("42"), &Stored::Absent, &listening).task.label(), "serve", "its run goes on");
    let stopping = judged(&held(""), &Stored::Absent, &listening);
    assert_eq!(stopping.task.label(), "stop");
    let stopped = stopping.local.after(TaskOutcome::Stopped { registered: true }, NOW, 0.0);
    for local in [stopped, swept("c1"), at("c1", ClaimStage::Settling)] {
        let effects = judged(&held(""), &Stored::Absent, &local);
        assert_eq!((effects.task.label(), effects.status.say), ("idle", None));
    }
}
