use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use runyard_core::model::{AttributeValue, ClaimId, Item, Signal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::users::processes;
use super::*;
use crate::agent::{Parts, Timing, run};
use crate::host::users::processes::Process;
use crate::reports::logs::Ring;
use crate::shutdown::guard::Lengths;
use crate::shutdown::power::Exit;
use crate::system::clock::{SystemClock, SystemEntropy, boot_id};
use crate::task::{GithubFailure, Holder, RunnerEnd, RunnerProcess, Wipe};
use crate::testing::{
    FakeRecords, config_script, instance, job_credential, key, package, removal_credential, run_credential,
    run_script, sealed, with,
};

/// A machine with a package that needs no download.
struct TestHost {
    dir: tempfile::TempDir,
    settings: HostSettings,
}

fn claim(id: &str) -> ClaimId {
    ClaimId::parse(id).unwrap()
}

/// Returns a unique name. Marks are searched in all of `/proc`, so no two tests may share one.
fn unique(name: &str) -> String {
    format!("{name}-{}.{:x}", std::process::id(), rand::random::<u64>())
}

impl TestHost {
    fn new(config: impl Fn(&Path) -> String, run: impl Fn(&Path) -> String) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let calls = dir.path().join("calls");
        let (archive, sha256) = package(&config(&calls), &run(&calls));
        let work_dir = dir.path().join("work");
        std::fs::create_dir_all(work_dir.join("package")).unwrap();
        std::fs::write(work_dir.join(format!("package/{sha256}.tar.gz")), archive).unwrap();
        let settings = HostSettings {
            machine: unique("i"),
            state_dir: dir.path().join("state"),
            work_dir,
            package: PackageSource {
                url: reqwest::Url::parse("http://127.0.0.1:1/runner.tar.gz").unwrap(),
                sha256,
                version: "1".to_owned(),
            },
            package_hosts: Vec::new(),
            pre_runner: None,
            post_run: None,
            account: None,
            isolation: None,
            places: SweepPaths::default(),
            stop: Duration::from_secs(5),
            variables: Vec::new(),
            group: None,
            image: None,
            adopts_orphans: false,
        };
        Self { dir, settings }
    }

    fn usual() -> Self {
        Self::new(config_script, run_script)
    }

    fn host(&self) -> Host {
        Host::new(self.settings.clone()).unwrap()
    }

    fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.dir.path().join("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn nothing_is_left(&self, claim: &str) {
        assert_eq!(marked(&format!("RUNYARD_CLAIM={claim}")), []);
        let claims: Vec<_> =
            std::fs::read_dir(self.settings.work_dir.join("claims")).unwrap().flatten().collect();
        assert!(claims.is_empty(), "{claims:?}");
        let logs: Vec<_> =
            std::fs::read_dir(self.settings.work_dir.join("logs")).unwrap().flatten().collect();
        assert!(logs.is_empty(), "{logs:?}");
        assert!(!self.settings.state_dir.join("registration").exists());
    }

    fn agent(
        &self,
        records: &Arc<FakeRecords>,
        executor: Arc<dyn Executor>,
    ) -> impl Future<Output = ()> + use<> {
        disk::private_dir(&self.settings.state_dir).unwrap();
        disk::replace(&self.settings.state_dir.join("key"), &key().to_bytes()).unwrap();
        let parts = Parts {
            records: records.clone(),
            executor,
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            power: Arc::new(Exit),
            timing: Timing {
                heartbeat: Duration::from_millis(200),
                heartbeat_free: Duration::from_millis(200),
                poll: Duration::from_millis(50),
                reregister: Duration::from_secs(2),
                guard: Lengths { created: Duration::from_secs(900), grace: Duration::from_secs(300) },
            },
            state_dir: self.settings.state_dir.clone(),
            boot_id: boot_id().unwrap(),
            ring: Ring::default(),
        };
        async move {
            let ended = run(parts, CancellationToken::new()).await;
            panic!("the agent ended: {ended:?}");
        }
    }
}

/// Returns every process with this entry in its environment.
fn marked(entry: &str) -> Vec<Process> {
    processes::all().unwrap().into_iter().filter(|process| process.carries(entry)).collect()
}

fn held(claim: &str) -> Item {
    with(instance("claimed", "42", claim), "registration", sealed(&run_credential(claim), &key().public()))
}

fn released(claim: &str) -> Item {
    with(instance("idle", "", claim), "removal", sealed(&removal_credential(claim), &key().public()))
}

#[tokio::test]
async fn two_claims_in_sequence_leave_nothing() {
    let yard = TestHost::usual();
    let (first, second) = (unique("first"), unique("second"));
    let records = FakeRecords::new(instance("created", "", ""));
    let agent = tokio::spawn(yard.agent(&records, Arc::new(yard.host())));
    records.says(Signal::Ok, "").await;
    for claim in [&first, &second] {
        records.set(Some(held(claim)));
        records.says(Signal::RegOk, claim).await;
        assert!(marked(&format!("RUNYARD_CLAIM={claim}")).len() >= 3, "the runner and what it planted");
        assert!(yard.settings.work_dir.join("claims").join(claim).join("home/.netrc").exists());
        records.set(Some(released(claim)));
        records.says(Signal::RemoveRegOk, claim).await;
        yard.nothing_is_left(claim);
    }
    assert!(!agent.is_finished());
    agent.abort();
    let config = |claim: &str| {
        format!(
            "config --url https://github.invalid/a/b --name runyard-{claim} --labels 42 \
             --work _work --unattended --replace --no-default-labels --disableupdate with TOKEN-SECRET"
        )
    };
    let remove = || "config remove with REMOVAL-SECRET".to_owned();
    let one = |claim: &str| [config(claim), "run ".to_owned(), "interrupted".to_owned(), remove()];
    assert_eq!(yard.calls(), [one(&first), one(&second)].concat());
    assert_no_secret(&records, &yard);
}

/// Checks that no secret is in the agent's changes of the record, or in the files that it keeps.
fn assert_no_secret(records: &FakeRecords, yard: &TestHost) {
    let written = format!("{:?}", records.changes.lock().unwrap());
    let kept = std::fs::read_to_string(yard.settings.state_dir.join("state")).unwrap();
    for secret in ["TOKEN-SECRET", "REMOVAL-SECRET", "JIT-SECRET"] {
        assert!(!written.contains(secret) && !kept.contains(secret), "{secret}");
    }
}

/// An executor with an agent that is killed at one point: before or after its `n`th task.
struct Killed {
    host: Host,
    at: u32,
    points: std::sync::atomic::AtomicU32,
    now: Notify,
}

impl Killed {
    async fn point(&self) {
        if self.points.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1 == self.at {
            self.now.notify_one();
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl Executor for Killed {
    async fn execute(&self, task: Task) -> TaskOutcome {
        self.point().await;
        let outcome = self.host.execute(task).await;
        self.point().await;
        outcome
    }

    async fn kill_everything(&self) {
        self.host.kill_everything().await;
    }
}

/// Takes a machine through a claim and kills its agent at one point. Returns whether the point was reached.
async fn converges_when_killed(at: u32) -> bool {
    let yard = TestHost::usual();
    let claim = unique("killed");
    let records = FakeRecords::new(held(&claim));
    let executor = Arc::new(Killed { host: yard.host(), at, points: Default::default(), now: Notify::new() });
    let first = yard.agent(&records, executor.clone());
    let reached = std::sync::atomic::AtomicBool::new(false);
    let agents = async {
        tokio::select! {
            () = first => {}
            () = executor.now.notified() => reached.store(true, std::sync::atomic::Ordering::Relaxed),
        }
        yard.agent(&records, Arc::new(yard.host())).await;
    };
    let operator = async {
        records.says(Signal::RegOk, &claim).await;
        records.set(Some(released(&claim)));
        records.says(Signal::RemoveRegOk, &claim).await;
    };
    tokio::select! {
        () = agents => {}
        () = operator => {}
    }
    yard.nothing_is_left(&claim);
    let removed = yard.calls().iter().filter(|call| call.starts_with("config remove")).count();
    assert!((1..=2).contains(&removed), "killed at {at}: {:?}", yard.calls());
    reached.into_inner()
}

#[tokio::test]
async fn an_agent_killed_at_any_point_is_finished_by_the_next() {
    // Boot, configure, start, listen, serve, stop, deregister, wipe: each before and after; serve has no after.
    let mut reached = 0;
    for at in 1..=15 {
        reached += u32::from(converges_when_killed(at).await);
    }
    assert_eq!(reached, 15);
}

#[tokio::test]
async fn a_runner_at_work_outlives_its_agent_and_is_found_by_the_next() {
    let yard = TestHost::usual();
    let claim = unique("adopted");
    let records = FakeRecords::new(held(&claim));
    let first = tokio::spawn(yard.agent(&records, Arc::new(yard.host())));
    records.says(Signal::RegOk, &claim).await;
    first.abort();
    let second = tokio::spawn(yard.agent(&records, Arc::new(yard.host())));
    records.set(Some(released(&claim)));
    records.says(Signal::RemoveRegOk, &claim).await;
    second.abort();
    assert_eq!(yard.calls().iter().filter(|call| call.starts_with("run")).count(), 1);
    yard.nothing_is_left(&claim);
}

#[tokio::test]
async fn another_claim_under_a_running_runner_finishes_the_old_one_first() {
    let yard = TestHost::usual();
    let (old, new) = (unique("old"), unique("new"));
    let records = FakeRecords::new(held(&old));
    let agent = tokio::spawn(yard.agent(&records, Arc::new(yard.host())));
    records.says(Signal::RegOk, &old).await;
    records.set(Some(held(&new)));
    records.says(Signal::RegOk, &new).await;
    assert_eq!(marked(&format!("RUNYARD_CLAIM={old}")), []);
    records.set(Some(released(&new)));
    records.says(Signal::RemoveRegOk, &new).await;
    agent.abort();
    yard.nothing_is_left(&new);
}

#[tokio::test]
async fn single_use_runners_follow_each_other_in_fresh_directories() {
    let listens_once = |calls: &Path| {
        format!(
            "#!/bin/sh\necho \"run $*with $ACTIONS_RUNNER_INPUT_JITCONFIG $(ls -A _work 2>/dev/null)\" >> {}\nmkdir _work && echo x > _work/left\n\
             setsid sleep 600 &\necho 'Listening for Jobs'\nsleep 0.3\necho 'Running job: build'\n",
            calls.display()
        )
    };
    let yard = TestHost::new(config_script, listens_once);
    let claim = unique("jobs");
    let boxed = |seq| {
        with(
            instance("running", "42", &claim),
            "registration",
            sealed(&job_credential(&claim, seq), &key().public()),
        )
    };
    let records = FakeRecords::new(boxed(1));
    let agent = tokio::spawn(yard.agent(&records, Arc::new(yard.host())));
    for seq in 1..=3 {
        records.set(Some(boxed(seq)));
        while records.shown().unwrap().registration_done != Some(seq) {
            records.written.notified().await;
        }
    }
    records.set(Some(instance("idle", "", &claim)));
    records.says(Signal::RemoveRegOk, &claim).await;
    agent.abort();
    assert_eq!(yard.calls(), vec!["run with JIT-SECRET ".to_owned(); 3]);
    yard.nothing_is_left(&claim);
    assert_no_secret(&records, &yard);
}

#[tokio::test]
async fn a_single_use_runner_ended_before_its_first_session_leaves_its_machine_clean() {
    // Like .NET in its first seconds: the runner has neither saved its registration nor connected.
    let starts = |calls: &Path| format!("#!/bin/sh\necho run >> {}\nexec sleep 600\n", calls.display());
    let yard = TestHost::new(config_script, starts);
    let claim = unique("starting");
    let registration = sealed(&job_credential(&claim, 1), &key().public());
    let records = FakeRecords::new(with(instance("claimed", "42", &claim), "registration", registration));
    let agent = tokio::spawn(yard.agent(&records, Arc::new(yard.host())));
    while yard.calls().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    records.set(Some(released(&claim)));
    records.says(Signal::RemoveRegOk, &claim).await;
    agent.abort();
    assert_eq!(yard.calls(), ["run"], "a single-use runner cannot remove itself");
    assert_eq!(records.shown().unwrap().runner_id, Some(71));
    yard.nothing_is_left(&claim);
}

#[tokio::test]
async fn a_refused_token_is_told_with_the_tail_of_the_log_and_without_the_token() {
    let refuses = |_: &Path| {
        "#!/bin/sh\necho \"Http response code: NotFound, $ACTIONS_RUNNER_INPUT_TOKEN\"\nexit 1\n".to_owned()
    };
    let yard = TestHost::new(refuses, run_script);
    let host = yard.host();
    let (claim, registration) = (claim(&unique("refused")), Box::new(run_credential("c")));
    let TaskOutcome::Failed(GithubFailure::Refused(why)) =
        host.execute(Task::Configure { claim, registration }).await
    else {
        panic!("it was not refused")
    };
    assert!(why.contains("NotFound") && why.contains("***") && !why.contains("SECRET"), "{why}");
}

#[tokio::test]
async fn a_github_out_of_reach_is_told_apart() {
    let away = |_: &Path| "#!/bin/sh\necho 'Connection refused (127.0.0.1:1)'\nexit 1\n".to_owned();
    let yard = TestHost::new(away, |_| "#!/bin/sh\necho 'Name or service not known'\n".to_owned());
    let (host, claim) = (yard.host(), claim(&unique("away")));
    let configure = Task::Configure { claim: claim.clone(), registration: Box::new(run_credential("c")) };
    assert!(matches!(host.execute(configure).await, TaskOutcome::Failed(GithubFailure::Unreachable(_))));
    let TaskOutcome::Started(runner) =
        host.execute(Task::Start { claim: claim.clone(), holder: Holder::default(), single_use: None }).await
    else {
        panic!("run.sh was not started")
    };
    let ended = host.execute(Task::Listen { claim, runner, known: None }).await;
    let TaskOutcome::Ended { worked: false, end: RunnerEnd::Failed(why) } = ended else {
        panic!("{ended:?}")
    };
    assert!(matches!(why, GithubFailure::Unreachable(_)), "{why:?}");
}

#[tokio::test]
async fn a_runner_that_does_not_finish_is_killed_with_all_processes_in_its_directory() {
    let stubborn = |_: &Path| {
        "#!/bin/sh\ntrap '' INT TERM\n(cd _work 2>/dev/null || mkdir _work && cd _work && exec env -i setsid sleep 600) &\n\
         echo 'Listening for Jobs'\nwhile :; do sleep 0.05; done\n"
            .to_owned()
    };
    let mut yard = TestHost::new(config_script, stubborn);
    yard.settings.stop = Duration::from_millis(300);
    let claim_id = unique("stubborn");
    let records = FakeRecords::new(held(&claim_id));
    let agent = tokio::spawn(yard.agent(&records, Arc::new(yard.host())));
    records.says(Signal::RegOk, &claim_id).await;
    let place = yard.settings.work_dir.join("claims");
    let there = || {
        std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            std::fs::read_link(entry.path().join("cwd"))
                .is_ok_and(|cwd| cwd.starts_with(&place) && cwd.ends_with("_work"))
        })
    };
    while !there() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    records.set(Some(released(&claim_id)));
    records.says(Signal::RemoveRegOk, &claim_id).await;
    agent.abort();
    assert!(!there());
    yard.nothing_is_left(&claim_id);
}

/// Until the listener is up, a signal to its scripts may be lost: a shell whose child exits normally at that moment
/// continues as if it had received no signal.
#[tokio::test]
async fn a_runner_that_never_listened_is_ended_without_being_asked() {
    let deaf = |_: &Path| "#!/bin/sh\ntrap '' INT TERM\nwhile :; do sleep 0.05; done\n".to_owned();
    let mut yard = TestHost::new(config_script, deaf);
    yard.settings.stop = Duration::from_secs(24 * 3600);
    let id = unique("deaf");
    let (host, claim) = (yard.host(), claim(&id));
    let configure = Task::Configure { claim: claim.clone(), registration: Box::new(run_credential("c")) };
    assert_eq!(host.execute(configure).await, TaskOutcome::Configured);
    let start = Task::Start { claim: claim.clone(), holder: Holder::default(), single_use: None };
    let TaskOutcome::Started(runner) = host.execute(start).await else { panic!("run.sh was not started") };
    let stop = host.execute(Task::Stop { claim: claim.clone(), runner: Some(runner), since: None });
    let stopped = tokio::time::timeout(Duration::from_secs(600), stop).await;
    assert_eq!(stopped, Ok(TaskOutcome::Stopped { registered: true }));
    assert_eq!(marked(&format!("RUNYARD_CLAIM={id}")), []);
}

/// A `run.sh` that listens, and has a worker for as long as `calls.job` is there.
fn with_a_worker(calls: &Path) -> String {
    format!(
        "#!/bin/sh\ntrap 'echo interrupted >> {0}; exit 0' INT\n\
         printf '#!/bin/sh\\nwhile [ -e {0}.job ]; do sleep 0.02; done\\n' > Runner.Worker; chmod +x Runner.Worker\n\
         echo 'Listening for Jobs'\nwhile :; do if [ -e {0}.job ]; then ./Runner.Worker; fi; sleep 0.02; done\n",
        calls.display()
    )
}

/// Returns a listening runner of that script.
async fn listening(host: &Host, claim: &ClaimId) -> RunnerProcess {
    let configure = Task::Configure { claim: claim.clone(), registration: Box::new(run_credential("c")) };
    assert_eq!(host.execute(configure).await, TaskOutcome::Configured);
    let start = Task::Start { claim: claim.clone(), holder: Holder::default(), single_use: None };
    let TaskOutcome::Started(runner) = host.execute(start).await else { panic!("run.sh was not started") };
    let listen = Task::Listen { claim: claim.clone(), runner, known: None };
    assert_eq!(host.execute(listen).await, TaskOutcome::Listening);
    runner
}

fn of_claim(id: &str) -> Vec<Process> {
    marked(&format!("RUNYARD_CLAIM={id}"))
}

#[tokio::test]
async fn a_suspended_runner_begins_no_job_and_ends_without_waking() {
    let yard = TestHost::new(config_script, with_a_worker);
    let id = unique("suspended");
    let (host, claim) = (yard.host(), claim(&id));
    let runner = listening(&host, &claim).await;
    let freeze = Task::Freeze { claim: claim.clone(), runner };
    assert_eq!(host.execute(freeze).await, TaskOutcome::Frozen { busy: false });
    std::fs::write(yard.dir.path().join("calls.job"), "").unwrap();
    let there = of_claim(&id);
    assert!(!there.is_empty() && there.iter().all(|process| process.stopped), "{there:?}");
    let stop = Task::Stop { claim: claim.clone(), runner: Some(runner), since: None };
    assert_eq!(host.execute(stop).await, TaskOutcome::Stopped { registered: true });
    assert!(of_claim(&id).is_empty());
    assert!(!yard.calls().contains(&"interrupted".to_owned()), "{:?}", yard.calls());
}

#[tokio::test]
async fn a_runner_with_a_job_is_not_suspended_and_one_without_serves_again() {
    let yard = TestHost::new(config_script, with_a_worker);
    let (id, job) = (unique("serves"), yard.dir.path().join("calls.job"));
    let (host, claim) = (yard.host(), claim(&id));
    let runner = listening(&host, &claim).await;
    let freeze = || host.execute(Task::Freeze { claim: claim.clone(), runner });
    assert_eq!(freeze().await, TaskOutcome::Frozen { busy: false });
    let until = async |what: &str, holds: &dyn Fn(&[Process]) -> bool| {
        let held = async {
            while !holds(&of_claim(&id)) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(600), held).await.expect(what);
    };
    let runs = async {
        let awake = |there: &[Process]| there.iter().all(|process| !process.stopped);
        until("the runner runs on", &awake).await;
        std::fs::write(&job, "").unwrap();
        let works = |there: &[Process]| there.iter().any(|process| process.name == "Runner.Worker");
        until("a job begins", &works).await;
    };
    tokio::select! {
        ended = host.execute(Task::Serve { claim: claim.clone(), runner, awaits: None }) => panic!("the runner ended: {ended:?}"),
        () = runs => {}
    }
    assert_eq!(freeze().await, TaskOutcome::Frozen { busy: true });
    assert!(of_claim(&id).iter().all(|process| !process.stopped), "everything runs on");
    std::fs::remove_file(&job).unwrap();
    let idle = |there: &[Process]| there.iter().all(|process| process.name != "Runner.Worker");
    until("the job ends", &idle).await;
    assert_eq!(freeze().await, TaskOutcome::Frozen { busy: false });
    let stop = Task::Stop { claim: claim.clone(), runner: Some(runner), since: None };
    assert_eq!(host.execute(stop).await, TaskOutcome::Stopped { registered: true });
}

/// GitHub acquires a job for a listener, and the listener is suspended before it has read the answer.
#[tokio::test]
async fn a_runner_with_an_answer_that_it_has_not_read_is_not_suspended() {
    let github = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = github.local_addr().unwrap().port();
    let polls = move |_: &Path| {
        format!(
            "#!/bin/bash\nexec 3<>/dev/tcp/127.0.0.1/{port}\necho 'Listening for Jobs'\n\
             while :; do sleep 0.02; done\n"
        )
    };
    let yard = TestHost::new(config_script, polls);
    let id = unique("unread");
    let (host, claim) = (yard.host(), claim(&id));
    let runner = listening(&host, &claim).await;
    let (mut connection, _) = github.accept().unwrap();
    let freeze = || host.execute(Task::Freeze { claim: claim.clone(), runner });
    assert_eq!(freeze().await, TaskOutcome::Frozen { busy: false });
    std::io::Write::write_all(&mut connection, b"a job").unwrap();
    assert_eq!(freeze().await, TaskOutcome::Frozen { busy: true });
    assert!(of_claim(&id).iter().all(|process| !process.stopped), "everything runs on");
    let stop = Task::Stop { claim: claim.clone(), runner: Some(runner), since: None };
    assert_eq!(host.execute(stop).await, TaskOutcome::Stopped { registered: true });
}

#[tokio::test]
async fn a_job_that_tampers_with_the_runner_cannot_touch_its_removal() {
    let tampers = |calls: &Path| {
        format!(
            "#!/bin/sh\ntrap 'exit 0' INT\nprintf '#!/bin/sh\\necho stolen $* >> {0}\\n' > config.sh\n\
             rm .runner; ln -s /etc/passwd .runner\necho 'Listening for Jobs'\nwhile :; do sleep 0.05; done\n",
            calls.display()
        )
    };
    let yard = TestHost::new(config_script, tampers);
    let claim = unique("tampered");
    let records = FakeRecords::new(held(&claim));
    let agent = tokio::spawn(yard.agent(&records, Arc::new(yard.host())));
    records.says(Signal::RegOk, &claim).await;
    records.set(Some(released(&claim)));
    records.says(Signal::RemoveRegOk, &claim).await;
    agent.abort();
    assert!(yard.calls().iter().all(|call| !call.starts_with("stolen")), "{:?}", yard.calls());
    assert_eq!(yard.calls().last().unwrap(), "config remove with REMOVAL-SECRET");
}

#[tokio::test]
async fn a_registration_that_a_job_changed_is_not_the_one_its_runner_is_removed_by() {
    let config = |calls: &Path| {
        format!(
            "#!/bin/sh\nif [ \"$1\" = remove ]; then cat .runner >> {}; exit 0; fi\necho registered > .runner\n",
            calls.display()
        )
    };
    let run = |_: &Path| {
        "#!/bin/sh\ntrap 'exit 0' INT\necho elsewhere > .runner\necho 'Listening for Jobs'\n\
         while :; do sleep 0.05; done\n"
            .to_owned()
    };
    let yard = TestHost::new(config, run);
    let claim = unique("changed");
    let records = FakeRecords::new(held(&claim));
    let agent = tokio::spawn(yard.agent(&records, Arc::new(yard.host())));
    records.says(Signal::RegOk, &claim).await;
    records.set(Some(released(&claim)));
    records.says(Signal::RemoveRegOk, &claim).await;
    agent.abort();
    assert_eq!(yard.calls(), ["registered"]);
}

/// The hook itself is tested by the program's own tests; here a job writes the refusal.
#[tokio::test]
async fn a_refused_job_ends_with_its_runner_and_the_runs_own_job_finds_no_trace_of_it() {
    let run = |calls: &Path| {
        format!(
            "#!/bin/sh\ntrap 'exit 0' INT\nls $HOME $TMPDIR _work 2>/dev/null | grep -c left >> {0}\n\
             echo 'Listening for Jobs'\n\
             if [ ! -e {0}.intruded ]; then touch {0}.intruded; mkdir _work; touch _work/left $HOME/left $TMPDIR/left;\n\
             setsid sleep 600 & echo another run > \"$(dirname $ACTIONS_RUNNER_HOOK_JOB_STARTED)/refused\"; fi\n\
             while :; do sleep 0.05; done\n",
            calls.display()
        )
    };
    let yard = TestHost::new(config_script, run);
    let claim = unique("intruded");
    let records = FakeRecords::new(held(&claim));
    let agent = tokio::spawn(yard.agent(&records, Arc::new(yard.host())));
    records.says(Signal::RegOk, &claim).await;
    let until = tokio::time::Instant::now() + Duration::from_secs(600);
    while yard.calls().len() < 3 {
        assert!(tokio::time::Instant::now() < until, "the runner never came back: {:?}", yard.calls());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(yard.calls()[1..], ["0", "0"], "registered once, started twice, and nothing was left");
    records.set(Some(released(&claim)));
    records.says(Signal::RemoveRegOk, &claim).await;
    agent.abort();
    yard.nothing_is_left(&claim);
}

/// Returns a claim of a slot with the box of its first runner.
fn slot(claim: &str) -> Item {
    let opened = sealed(&job_credential(claim, 1), &key().public());
    let record = with(instance("running", "set-7", claim), "registration", opened);
    let pk = ("pk".to_owned(), AttributeValue::S("request#acme/~#set-7".to_owned()));
    record.into_iter().chain([("request".to_owned(), AttributeValue::M([pk].into()))]).collect()
}

/// The hook itself is tested beside it; here a runner reports its job as the hook does, and a step of the job later
/// reports another one.
#[tokio::test]
async fn a_slots_job_goes_on_once_the_record_shows_it_and_cannot_change_that() {
    let run = |calls: &Path| {
        let report = |repository: &str| {
            format!(
                r#"{{"repository":"{repository}","runId":"43","attempt":1,"name":"build","at":"2026-01-01T00:00:00Z"}}"#
            )
        };
        format!(
            "#!/bin/sh\ntrap 'exit 0' INT\necho 'Listening for Jobs'\nhook=$(dirname $ACTIONS_RUNNER_HOOK_JOB_STARTED)\n\
             exec 3<>$hook/began\necho '{}' >&3\nwhile [ ! -e $hook/admitted ]; do sleep 0.01; done\n\
             echo '{}' >&3\necho goes on >> {}\nwhile :; do sleep 0.05; done\n",
            report("acme/web"),
            report("acme/api"),
            calls.display()
        )
    };
    let yard = TestHost::new(config_script, run);
    let claim = unique("slot");
    let records = FakeRecords::new(slot(&claim));
    let agent = tokio::spawn(yard.agent(&records, Arc::new(yard.host())));
    records.says(Signal::RegOk, &claim).await;
    let until = tokio::time::Instant::now() + Duration::from_secs(600);
    while yard.calls().is_empty() {
        assert!(tokio::time::Instant::now() < until, "its job never went on: {:?}", records.shown());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let shown = || records.shown().unwrap().job.map(|job| job.repository.to_string());
    assert_eq!(shown().as_deref(), Some("acme/web"));
    records.set(Some(released(&claim)));
    records.says(Signal::RemoveRegOk, &claim).await;
    assert_eq!(shown().as_deref(), Some("acme/web"), "what the job reported later reached nobody");
    agent.abort();
    yard.nothing_is_left(&claim);
}

/// Identifies a runner's directory by its inode number: a prepared directory is moved, and a newly unpacked one has
/// another number.
fn runner_in(place: &Path) -> Option<u64> {
    Some(std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(place.join("runner")).ok()?))
}

/// Configures and cleans a claim. Returns the directory of its runner.
async fn configured(yard: &TestHost, host: &Host) -> Option<u64> {
    let claim = claim(&unique("prepared"));
    let configure = Task::Configure { claim: claim.clone(), registration: Box::new(run_credential("c")) };
    assert_eq!(host.execute(configure).await, TaskOutcome::Configured);
    let had = runner_in(&yard.settings.work_dir.join("claims").join(claim.as_str()));
    let wipe = Task::Wipe { claim, since: None, wipe: Wipe::Whole };
    assert_eq!(host.execute(wipe).await, TaskOutcome::Wiped);
    had
}

#[tokio::test]
async fn a_runner_that_was_prepared_serves_one_claim_and_none_needs_the_archive() {
    let yard = TestHost::usual();
    let (host, next) = (yard.host(), yard.settings.work_dir.join("next"));
    host.prepare().await;
    let mode = std::fs::metadata(&next).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o700);
    let prepared = runner_in(&next);
    assert!(prepared.is_some());
    // Held open, so that the file system does not reuse its number for another directory.
    let _open = std::fs::File::open(next.join("runner")).unwrap();
    std::fs::remove_file(host.archive(&host.settings.package)).unwrap();
    assert_eq!(configured(&yard, &host).await, prepared);
    assert!(!next.exists());
    let unprepared = configured(&yard, &host).await;
    assert!(unprepared.is_some() && unprepared != prepared);
}

#[tokio::test]
async fn a_runner_that_is_being_prepared_is_waited_for_by_its_claim() {
    let yard = TestHost::usual();
    let (host, next) = (yard.host(), yard.settings.work_dir.join("next"));
    let mut preparing = Box::pin(host.prepare());
    // Up to the point from which it continues by itself.
    while futures::poll!(&mut preparing).is_pending() && !next.join("runner").exists() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(preparing);
    let prepared = runner_in(&next);
    assert_eq!(configured(&yard, &host).await, prepared);
}

#[tokio::test]
async fn what_an_earlier_agent_left_half_unpacked_is_not_believed() {
    let yard = TestHost::usual();
    let next = yard.settings.work_dir.join("next");
    for whole in [false, true] {
        if whole {
            // It was even complete, but nothing on the disk shows that.
            yard.host().prepare().await;
        } else {
            disk::private_dir(&next.join("runner")).unwrap();
        }
        std::fs::write(next.join("runner/run.sh"), "half").unwrap();
        let tree = yard.settings.work_dir.join("package").join(&yard.settings.package.sha256);
        disk::private_dir(&tree).unwrap();
        std::fs::write(tree.join("run.sh"), "half").unwrap();
        let host = yard.host();
        assert!(!next.exists());
        assert!(configured(&yard, &host).await.is_some(), "its config.sh is the package's");
        host.prepare().await;
        assert_ne!(std::fs::read_to_string(next.join("runner/run.sh")).unwrap(), "half");
    }
}

#[tokio::test]
async fn another_package_than_the_prepared_one_is_the_one_a_claim_gets() {
    let mut yard = TestHost::usual();
    yard.host().prepare().await;
    let (archive, sha256) = package(&config_script(&yard.dir.path().join("calls")), "#!/bin/sh\n# another\n");
    std::fs::write(yard.settings.work_dir.join(format!("package/{sha256}.tar.gz")), archive).unwrap();
    yard.settings.package.sha256 = sha256;
    let (host, claim) = (yard.host(), claim(&unique("other")));
    let configure = Task::Configure { claim: claim.clone(), registration: Box::new(run_credential("c")) };
    assert_eq!(host.execute(configure).await, TaskOutcome::Configured);
    let run = yard.settings.work_dir.join("claims").join(claim.as_str()).join("runner/run.sh");
    assert!(std::fs::read_to_string(run).unwrap().contains("another"));
}

#[tokio::test]
async fn nothing_is_prepared_of_an_archive_that_was_changed_on_disk() {
    let yard = TestHost::usual();
    let host = yard.host();
    let archive = host.archive(&host.settings.package);
    std::fs::write(&archive, "changed").unwrap();
    let mut preparing = Box::pin(host.prepare());
    // After this it requests another archive, from an address at which no server listens.
    while futures::poll!(&mut preparing).is_pending() && archive.exists() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(preparing);
    assert!(runner_in(&yard.settings.work_dir.join("next")).is_none());
    assert!(!host.tree(&host.settings.package).exists());
    assert!(host.next.try_lock().unwrap().is_none());
}

#[tokio::test]
async fn what_cannot_be_removed_is_unproved() {
    let yard = TestHost::usual();
    let host = yard.host();
    let claims = yard.settings.work_dir.join("claims");
    std::fs::remove_dir(&claims).unwrap();
    std::os::unix::fs::symlink("/nonexistent", &claims).unwrap();
    let outcome =
        host.execute(Task::Wipe { claim: claim(&unique("c")), since: None, wipe: Wipe::Whole }).await;
    assert!(matches!(&outcome, TaskOutcome::Unproved(why) if why.contains("claims")), "{outcome:?}");
}

#[tokio::test]
async fn scripts_get_nothing_of_the_agents_environment() {
    let tells =
        |calls: &Path| format!("#!/bin/sh\nenv | cut -d= -f1 | sort | tr '\\n' ' ' >> {}\n", calls.display());
    let yard = TestHost::new(tells, run_script);
    let task = Task::Configure { claim: claim(&unique("env")), registration: Box::new(run_credential("c")) };
    assert_eq!(yard.host().execute(task).await, TaskOutcome::Configured);
    let allowed = [
        "ACTIONS_RUNNER_INPUT_TOKEN",
        "HOME",
        "LANG",
        "PATH",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
        "RUNNER_ALLOW_RUNASROOT",
        "RUNYARD_CLAIM",
        "RUNYARD_MACHINE",
        "TMPDIR",
    ];
    let calls = yard.calls();
    for name in calls[0].split_whitespace() {
        assert!(allowed.contains(&name), "{name}");
    }
    assert!(calls[0].contains("RUNYARD_CLAIM") && calls[0].contains("RUNYARD_MACHINE"));
}

/// Time limit of a script that ends by itself, with no effect on the result, and of one that hangs.
const ENDS: Duration = Duration::from_secs(600);
const HANGS: Duration = Duration::from_secs(2);

fn script(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("own-script");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test]
async fn a_pre_runner_script_that_fails_or_hangs_is_told_with_the_tail_of_its_log() {
    let mut yard = TestHost::usual();
    let cases = [
        ("#!/bin/sh\necho fine\n", ENDS, None),
        ("#!/bin/sh\necho no disk; exit 3\n", ENDS, Some("exit status: 3: no disk")),
        ("#!/bin/sh\necho begun; setsid sleep 6000 & sleep 6000\n", HANGS, Some("longer than 2s")),
        ("#!/nonexistent/interpreter\n", ENDS, Some("cannot be started")),
    ];
    for (text, timeout, wanted) in cases {
        let script = script(yard.dir.path(), text);
        yard.settings.pre_runner = Some(OwnScript { script, timeout, optional: false });
        let outcome = yard.host().execute(Task::Boot).await;
        match (wanted, outcome) {
            (None, TaskOutcome::Booted(Ok(()))) => {}
            (Some(wanted), TaskOutcome::Booted(Err(why))) => assert!(why.contains(wanted), "{why}"),
            (_, other) => panic!("{text}: {other:?}"),
        }
    }
    let mark = format!("RUNYARD_MACHINE={}", yard.settings.machine);
    assert_eq!(marked(&mark), [], "nothing of a script that hung is left");
}

#[tokio::test]
async fn scripts_have_the_machines_variables_and_the_agents_own_win() {
    let mut yard = TestHost::usual();
    let told = yard.dir.path().join("told");
    let text =
        format!("#!/bin/sh\nprintf '%s\\n' \"$PATH\" \"$HTTPS_PROXY\" \"$HOME\" >{}\n", told.display());
    let script = script(yard.dir.path(), &text);
    yard.settings.pre_runner = Some(OwnScript { script, timeout: ENDS, optional: false });
    let said =
        [("PATH", "/usr/bin:/bin:/snap/bin"), ("HTTPS_PROXY", "http://proxy:3128"), ("HOME", "/elsewhere")];
    yard.settings.variables = said.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    assert_eq!(yard.host().execute(Task::Boot).await, TaskOutcome::Booted(Ok(())));
    let told = std::fs::read_to_string(told).unwrap();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[..2], ["/usr/bin:/bin:/snap/bin", "http://proxy:3128"]);
    assert_ne!(lines[2], "/elsewhere");
}

#[tokio::test]
async fn a_post_run_script_sees_the_runs_files_and_its_failure_keeps_the_machine_out() {
    let mut yard = TestHost::usual();
    let kept = yard.dir.path().join("kept");
    let (claims, took) = (yard.settings.work_dir.join("claims"), kept.display().to_string());
    let collects = format!("#!/bin/sh\ncat {}/*/left > {took}; setsid sleep 600 &\n", claims.display());
    let cases = [
        (collects.as_str(), ENDS, None),
        (
            "#!/bin/sh\necho no store; exit 3\n",
            ENDS,
            Some("the post-run script ended with exit status: 3: no store"),
        ),
        ("#!/bin/sh\necho begun; setsid sleep 6000 & sleep 6000\n", HANGS, Some("longer than 2s")),
    ];
    for (text, timeout, wanted) in cases {
        let (script, claim) = (script(yard.dir.path(), text), claim(&unique("post")));
        yard.settings.post_run = Some(OwnScript { script, timeout, optional: false });
        let host = yard.host();
        std::fs::create_dir_all(claims.join(claim.as_str())).unwrap();
        std::fs::write(claims.join(claim.as_str()).join("left"), "what it left").unwrap();
        match (
            wanted,
            host.execute(Task::Wipe { claim: claim.clone(), since: None, wipe: Wipe::Whole }).await,
        ) {
            (None, TaskOutcome::Wiped) => yard.nothing_is_left(claim.as_str()),
            (Some(wanted), TaskOutcome::Unproved(why)) => assert!(why.contains(wanted), "{why}"),
            (_, other) => panic!("{text}: {other:?}"),
        }
        assert_eq!(marked(&format!("RUNYARD_CLAIM={claim}")), [], "{text}");
    }
    assert_eq!(std::fs::read_to_string(kept).unwrap(), "what it left");
}

#[tokio::test]
async fn a_post_run_script_that_is_missing_is_a_mistake_only_where_it_was_named() {
    let mut yard = TestHost::usual();
    for optional in [true, false] {
        let script = yard.dir.path().join("nowhere");
        yard.settings.post_run = Some(OwnScript { script, timeout: ENDS, optional });
        let outcome = yard
            .host()
            .execute(Task::Wipe { claim: claim(&unique("post")), since: None, wipe: Wipe::Whole })
            .await;
        assert_eq!(outcome == TaskOutcome::Wiped, optional, "{outcome:?}");
    }
}

/// Serves each connection with the next of these responses, and all further ones with the last. Returns its address and
/// the requests.
async fn serve(answers: Vec<Vec<u8>>) -> (reqwest::Url, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/runner.tar.gz", listener.local_addr().unwrap());
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = asked.clone();
    tokio::spawn(async move {
        for turn in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = vec![0; 4096];
            let read = stream.read(&mut head).await.unwrap();
            log.lock().unwrap().push(String::from_utf8_lossy(&head[..read]).into_owned());
            let answer: &Vec<u8> = &answers[answers.len().min(turn + 1) - 1];
            let _ = stream.write_all(answer).await;
        }
    });
    (reqwest::Url::parse(&url).unwrap(), asked)
}

fn answer(status: &str, length: usize, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// Creates a machine with a package that is on a server.
async fn remote(answers: impl Fn(&[u8]) -> Vec<Vec<u8>>) -> (TestHost, Arc<Mutex<Vec<String>>>) {
    let mut yard = TestHost::usual();
    let archive = yard.settings.work_dir.join(format!("package/{}.tar.gz", yard.settings.package.sha256));
    let content = std::fs::read(&archive).unwrap();
    std::fs::remove_file(&archive).unwrap();
    let (url, asked) = serve(answers(&content)).await;
    yard.settings.package.url = url;
    (yard, asked)
}

#[tokio::test]
async fn a_download_that_was_cut_off_goes_on_where_it_was_and_is_checked() {
    let (yard, asked) = remote(|content| {
        let half = content.len() / 2;
        vec![
            answer("200 OK", content.len(), &content[..half]),
            answer("503 Service Unavailable", 0, b""),
            answer("206 Partial Content", content.len() - half, &content[half..]),
        ]
    })
    .await;
    assert_eq!(yard.host().execute(Task::Boot).await, TaskOutcome::Booted(Ok(())));
    assert_eq!(yard.host().execute(Task::Boot).await, TaskOutcome::Booted(Ok(())), "it is fetched once");
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 3);
    assert!(!asked[0].contains("range:") && asked[2].contains("range: bytes="), "{asked:?}");
}

#[tokio::test]
async fn another_package_than_the_pinned_one_is_refused_for_good() {
    let (yard, asked) = remote(|_| vec![answer("200 OK", 4, b"evil")]).await;
    let TaskOutcome::Booted(Err(why)) = yard.host().execute(Task::Boot).await else { panic!("it was taken") };
    assert!(why.contains("SHA-256"), "{why}");
    assert_eq!(asked.lock().unwrap().len(), 3);
    let missing = remote(|_| vec![answer("404 Not Found", 0, b"")]).await.0;
    let TaskOutcome::Booted(Err(why)) = missing.host().execute(Task::Boot).await else {
        panic!("there is none")
    };
    assert!(why.contains("404"), "{why}");
}

/// Changes the package as a job of the agent's own user could.
fn poison(host: &Host) {
    std::fs::write(host.archive(&host.settings.package), "poison").unwrap();
    std::fs::write(host.tree(&host.settings.package).join("config.sh"), "#!/bin/sh\nexit 3\n").unwrap();
}

#[tokio::test]
async fn a_package_that_was_changed_on_disk_is_fetched_again_before_it_is_used() {
    let (yard, asked) = remote(|content| vec![answer("200 OK", content.len(), content)]).await;
    let host = yard.host();
    assert_eq!(host.execute(Task::Boot).await, TaskOutcome::Booted(Ok(())));
    poison(&host);
    let task = Task::Configure { claim: claim(&unique("c")), registration: Box::new(run_credential("c")) };
    assert_eq!(host.execute(task).await, TaskOutcome::Configured);
    assert_eq!(asked.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_changed_package_is_fetched_again_to_deregister() {
    let (yard, asked) = remote(|content| vec![answer("200 OK", content.len(), content)]).await;
    let (host, claim) = (yard.host(), claim(&unique("c")));
    let configure = Task::Configure { claim: claim.clone(), registration: Box::new(run_credential("c")) };
    assert_eq!(host.execute(configure).await, TaskOutcome::Configured);
    poison(&host);
    let deregister = Task::Deregister { claim, removal: Box::new(removal_credential("c")) };
    assert_eq!(host.execute(deregister).await, TaskOutcome::Deregistered);
    assert_eq!(asked.lock().unwrap().len(), 2);
}

/// Creates a package for a claim to name: another one than the machine was launched with, from the same server.
async fn named(
    answers: impl Fn(&[u8]) -> Vec<Vec<u8>>,
) -> (TestHost, RunnerPackage, Arc<Mutex<Vec<String>>>) {
    let mut yard = TestHost::usual();
    let (archive, sha256) = package(&config_script(&yard.dir.path().join("calls")), "#!/bin/sh\n# newer\n");
    let (url, asked) = serve(answers(&archive)).await;
    yard.settings.package.url = url.clone();
    let package = RunnerPackage { version: "2.337.0".into(), url: url.to_string(), sha256 };
    (yard, package, asked)
}

fn run_script_of(yard: &TestHost, dir: &str) -> String {
    std::fs::read_to_string(yard.settings.work_dir.join(dir).join("runner/run.sh")).unwrap_or_default()
}

async fn configure(host: &Host, name: &str) -> (ClaimId, TaskOutcome) {
    let claim = claim(&unique(name));
    let configure = Task::Configure { claim: claim.clone(), registration: Box::new(run_credential("c")) };
    (claim, host.execute(configure).await)
}

#[tokio::test]
async fn a_claim_runs_the_package_that_it_names_and_without_a_name_the_pinned_one() {
    let (yard, package, asked) = named(|content| vec![answer("200 OK", content.len(), content)]).await;
    let host = yard.host();
    host.prepare().await;
    assert!(!run_script_of(&yard, "next").contains("newer"));
    host.use_package(Some(&package));
    let (claim, outcome) = configure(&host, "named").await;
    assert_eq!(outcome, TaskOutcome::Configured);
    assert!(run_script_of(&yard, &format!("claims/{claim}")).contains("newer"));
    let wipe = Task::Wipe { claim, since: None, wipe: Wipe::Whole };
    assert_eq!(host.execute(wipe).await, TaskOutcome::Wiped);
    host.use_package(None);
    let (claim, outcome) = configure(&host, "pinned").await;
    assert_eq!(outcome, TaskOutcome::Configured);
    assert!(!run_script_of(&yard, &format!("claims/{claim}")).contains("newer"));
    assert_eq!(asked.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_pooled_machine_fetches_and_prepares_the_package_that_its_record_names() {
    let (yard, package, asked) = named(|content| vec![answer("200 OK", content.len(), content)]).await;
    let host = yard.host();
    host.prepare().await;
    host.use_package(Some(&package));
    host.prepare().await;
    assert!(run_script_of(&yard, "next").contains("newer"), "what was prepared before is of no use");
    let prepared = runner_in(&yard.settings.work_dir.join("next"));
    assert_eq!(configured(&yard, &host).await, prepared);
    assert_eq!(asked.lock().unwrap().len(), 1, "the claim fetched nothing");
    let digests = |host: &Host| {
        let entries = std::fs::read_dir(host.layout.package()).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        names.map(|name| name.split('.').next().unwrap_or_default().to_owned()).collect::<BTreeSet<_>>()
    };
    let (pinned, named) = (yard.settings.package.sha256.clone(), package.sha256.clone());
    assert_eq!(digests(&host), BTreeSet::from([pinned.clone(), named]));
    // A package that no claim uses any more is replaced by the package of the next claim.
    let third = RunnerPackage { sha256: "0".repeat(64), ..package };
    host.use_package(Some(&third));
    host.prepare().await;
    assert_eq!(digests(&host), BTreeSet::from([pinned]));
}

#[tokio::test]
async fn a_named_package_with_another_digest_or_that_is_away_never_runs() {
    for (bad, told) in [
        (answer("200 OK", 4, b"evil"), "SHA-256"),
        (answer("404 Not Found", 0, b""), "404"),
        (answer("503 Service Unavailable", 0, b""), "503"),
    ] {
        let (yard, package, asked) = named(|_| vec![bad.clone()]).await;
        let host = yard.host();
        host.use_package(Some(&package));
        let (claim, outcome) = configure(&host, "bad").await;
        let TaskOutcome::Failed(GithubFailure::Refused(why)) = outcome else { panic!("{outcome:?}") };
        assert!(why.contains(told) && why.contains("2.337.0"), "{why}");
        assert_eq!(asked.lock().unwrap().len(), 3, "{told}");
        assert_eq!(run_script_of(&yard, &format!("claims/{claim}")), "");
        assert_eq!(yard.calls(), Vec::<String>::new(), "nothing of any package ran");
    }
}

#[tokio::test]
async fn a_package_from_elsewhere_is_refused_by_its_field_and_never_asked_for() {
    let (yard, good, asked) = named(|content| vec![answer("200 OK", content.len(), content)]).await;
    let host = yard.host();
    for (package, field) in [
        (RunnerPackage { url: "https://evil.example/a".into(), ..good.clone() }, "runner.url"),
        (RunnerPackage { url: good.url.replace("127.0.0.1", "localhost"), ..good.clone() }, "runner.url"),
        (RunnerPackage { sha256: "0".into(), ..good.clone() }, "runner.sha256"),
        (RunnerPackage { version: "../..".into(), ..good.clone() }, "runner.version"),
    ] {
        host.use_package(Some(&package));
        host.prepare().await;
        let (_, outcome) = configure(&host, "elsewhere").await;
        let TaskOutcome::Failed(GithubFailure::Refused(why)) = outcome else { panic!("{outcome:?}") };
        assert!(why.contains(field), "{why}");
    }
    assert_eq!(asked.lock().unwrap().len(), 0);
    assert_eq!(yard.calls(), Vec::<String>::new());
    let mut mirrored = yard.settings.clone();
    mirrored.package_hosts = vec!["evil.example".into()];
    let host = Host::new(mirrored).unwrap();
    host.use_package(Some(&RunnerPackage { url: "https://evil.example/a".into(), ..good }));
    assert!(host.package().is_ok(), "its operator named the host");
}
