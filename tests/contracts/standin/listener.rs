//! The whole package as an agent uses it: downloaded, unpacked, configured, run, signalled, removed. The scripts are
//! the real ones; the executable they call is this test program, which plays the listener when it is asked to.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use runyard_core::ports::ScaleSets as _;
use runyard_core::ports::github::{GitHub, RunnerSpec, Scope};
use runyard_core::ports::scale_sets::{JobNews, SetSpec};
use runyard_operator::github::{ApiUrl, Credential, RestGitHub, RestScaleSets};
use runyard_standin::github::{
    Behaviour, Conclusion, EndOfLife, Job, JobSpec, JobStatus, PACKAGE_VERSION, PackageBehaviour,
    PastEndOfLife, RunId, Settings, StandIn,
};

const REPO: &str = "octo/app";
const ARGUMENTS: &str = "RUNYARD_TEST_LISTENER_ARGUMENTS";
const PATIENCE: Duration = Duration::from_secs(600);

#[expect(clippy::disallowed_methods, reason = "a test against processes in real time")]
fn wall_clock() -> Timestamp {
    Timestamp::now()
}

/// The process behind `bin/Runner.Listener` in these tests.
#[test]
#[ignore = "it is the listener's process, started by the other tests"]
#[expect(clippy::disallowed_methods, reason = "how this process is told its arguments")]
fn the_listener_s_process() {
    let arguments = std::env::var(ARGUMENTS).expect("started by the test package only");
    let mut arguments = arguments.lines().map(str::to_owned);
    assert_eq!(arguments.next().as_deref(), Some("stand-in-runner"));
    assert_eq!(arguments.next().as_deref(), Some("--root"));
    let root = PathBuf::from(arguments.next().unwrap());
    let arguments: Vec<String> = arguments.collect();
    let inputs = std::env::vars().filter(|(key, _)| key.starts_with("ACTIONS_RUNNER_")).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let exit = runtime.block_on(runyard_standin::github::listener::run(
        &root,
        &arguments,
        &inputs,
        Arc::new(wall_clock),
    ));
    std::process::exit(exit.code().into());
}

pub(super) struct Bench {
    pub(super) stand_in: Option<StandIn>,
    pub(super) dir: TempDir,
    behaviour: Behaviour,
}

impl Bench {
    async fn new() -> Self {
        Self::behaving(Behaviour::default()).await
    }

    pub(super) async fn behaving(behaviour: Behaviour) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = std::env::current_exe().unwrap();
        let shim = format!(
            "#!/bin/sh\n{ARGUMENTS}=\"$(printf '%s\\n' \"$@\")\" exec '{}' --exact --ignored --nocapture --quiet \
             standin::listener::the_listener_s_process\n",
            program.display()
        );
        let path = dir.path().join("runyard");
        // Here and below another process writes what is executed: what other tests fork here just then would have it
        // open for writing, until it executes, and nobody could execute it meanwhile.
        let write = "printf %s \"$1\" >\"$0\" && chmod 755 \"$0\"";
        let written = Command::new("sh").arg("-c").arg(write).arg(path).arg(shim).status().await;
        assert!(written.unwrap().success());
        let mut bench = Self { stand_in: None, dir, behaviour };
        bench.start().await;
        bench
    }

    async fn start(&mut self) {
        let dir = self.dir.path().join("github");
        let settings = Settings {
            listener: StandIn::bind(Some(&dir)).await.unwrap(),
            dir: Some(dir),
            executable: self.dir.path().join("runyard"),
            clock: Arc::new(wall_clock),
            behaviour: self.behaviour.clone(),
        };
        self.stand_in = Some(StandIn::start(settings).await.unwrap());
    }

    pub(super) fn stand_in(&self) -> &StandIn {
        self.stand_in.as_ref().unwrap()
    }

    pub(super) fn github(&self) -> RestGitHub {
        let credential = Credential::TokenFile(self.stand_in().token_file().unwrap());
        let api = ApiUrl::parse(&self.stand_in().url()).unwrap();
        RestGitHub::new(api, credential, Duration::from_secs(5), Arc::new(wall_clock)).unwrap()
    }

    /// An unpacked package, as an agent has it.
    pub(super) async fn package(&self, name: &str) -> Package {
        let archive = reqwest::get(self.stand_in().package_url()).await.unwrap().bytes().await.unwrap();
        let (root, file) = (self.dir.path().join(name), self.dir.path().join(format!("{name}.tar.gz")));
        std::fs::create_dir_all(&root).unwrap();
        std::fs::write(&file, archive).unwrap();
        let unpacked = Command::new("tar").arg("-xzf").arg(file).arg("-C").arg(&root).status().await;
        assert!(unpacked.unwrap().success());
        Package { root }
    }

    pub(super) async fn configured(&self, name: &str, label: &str) -> Package {
        let package = self.package(name).await;
        let token = self.github().registration_token(&scope()).await.unwrap().value;
        let url = self.github().runner_url(&scope());
        let arguments = [
            "--url",
            &url,
            "--token",
            &token,
            "--name",
            name,
            "--labels",
            label,
            "--unattended",
            "--replace",
            "--no-default-labels",
            "--disableupdate",
            "--runnergroup",
            "Default",
            "--work",
            "_work",
        ];
        let (status, output) = package.call("config.sh", &arguments).await;
        assert!(status.success(), "{output}");
        assert!(output.contains("\u{221a} Runner successfully added"), "{output}");
        assert!(!read(&package.root.join(".runner")).contains(&token));
        package
    }

    pub(super) fn queue(&self, label: &str, steps: &[&str]) -> RunId {
        let job = JobSpec {
            name: "build".to_owned(),
            runs_on: vec![label.to_owned()],
            steps: steps.iter().map(|s| (*s).to_owned()).collect(),
            env: [("GREETING".to_owned(), "hello".to_owned())].into(),
            ..JobSpec::default()
        };
        self.stand_in().enqueue_run(REPO, None, "ci", vec![job], false).unwrap().id
    }

    pub(super) async fn finished(&self, run: RunId) -> Job {
        let jobs = tokio::time::timeout(PATIENCE, self.stand_in().finished_jobs(run)).await;
        jobs.expect("the job ends in time").unwrap().remove(0)
    }
}

pub(super) struct Package {
    pub(super) root: PathBuf,
}

impl Package {
    pub(super) fn command(&self, script: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.root.join(script));
        command.args(arguments).current_dir(&self.root).env("RUNNER_ALLOW_RUNASROOT", "1").kill_on_drop(true);
        command
    }

    pub(super) async fn call(&self, script: &str, arguments: &[&str]) -> (ExitStatus, String) {
        let output = self.command(script, arguments).output();
        let output = tokio::time::timeout(PATIENCE, output).await.expect("the script ends in time").unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status, text)
    }

    async fn removed(&self, token: &str) -> (ExitStatus, String) {
        self.call("config.sh", &["remove", "--token", token]).await
    }

    pub(super) fn run(&self, environment: &[(&str, &str)]) -> Running {
        let output = self.root.join("output");
        let file = std::fs::OpenOptions::new().create(true).append(true).open(&output).unwrap();
        let mut command = self.command("run.sh", &[]);
        command.stdout(file.try_clone().unwrap()).stderr(file).stdin(Stdio::null()).process_group(0);
        let child = command.envs(environment.iter().copied()).spawn().unwrap();
        Running { group: Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()), child, output }
    }
}

pub(super) struct Running {
    child: Child,
    group: Pid,
    output: PathBuf,
}

impl Running {
    pub(super) async fn says(&self, words: &str) {
        until(words, || read(&self.output).contains(words)).await;
    }

    /// What an agent does: the whole process group.
    pub(super) fn signal(&self, signal: Signal) {
        killpg(self.group, signal).unwrap();
    }

    pub(super) async fn ends(&mut self) -> String {
        self.ends_with(0).await
    }

    /// After a signal that it passed on, `run.sh` ends with what its wait said: 128 and the signal's number.
    async fn ends_by(&mut self, signal: Signal) -> String {
        self.signal(signal);
        self.ends_with(128 + signal as i32).await
    }

    pub(super) async fn ends_with(&mut self, code: i32) -> String {
        let status =
            tokio::time::timeout(PATIENCE, self.child.wait()).await.expect("run.sh ends in time").unwrap();
        let output = read(&self.output);
        assert_eq!(status.code(), Some(code), "{output}");
        output
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Usually they are gone already.
        let _ = killpg(self.group, Signal::SIGKILL);
    }
}

pub(super) fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

pub(super) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(super) fn scope() -> Scope {
    Scope::Repository { owner: "octo".to_owned(), name: "app".to_owned() }
}

#[tokio::test]
async fn a_runner_registers_serves_a_job_stops_and_is_removed() {
    let bench = Bench::new().await;
    let package = bench.configured("r1", "run-1").await;
    let mode = std::fs::metadata(package.root.join(".credentials_rsaparams")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for written in [".env", ".path", "svc.sh", "_diag"] {
        assert!(package.root.join(written).exists(), "{written}");
    }
    let mut running = package.run(&[("RUNNER_MANUALLY_TRAP_SIG", "1")]);
    running.says("Listening for Jobs").await;
    assert!(read(&running.output).contains("\u{221a} Connected to GitHub"));
    let run = bench.queue(
        "run-1",
        &[
            "echo \"$GREETING from $RUNNER_NAME for $GITHUB_REPOSITORY#$GITHUB_RUN_ID\"; pwd; echo oops >&2",
            "test \"$PWD\" = \"$GITHUB_WORKSPACE\"; touch \"$RUNNER_TEMP/x\"; false | true",
        ],
    );
    let job = bench.finished(run).await;
    assert_eq!(job.status, JobStatus::Completed(Conclusion::Failure), "pipefail: {}", job.log);
    assert_eq!(job.exit_code, Some(1));
    assert!(job.log.contains(&format!("hello from r1 for octo/app#{run}\n")), "{}", job.log);
    assert!(job.log.contains("/r1/_work/app/app\noops\n"), "{}", job.log);
    assert_eq!(job.runner_name.as_deref(), Some("r1"));
    let output = running.ends_by(Signal::SIGINT).await;
    assert!(
        output.contains("Running job: build") && output.contains("completed with result: Failed"),
        "{output}"
    );
    assert!(output.contains("exit with 0 return code"), "{output}");
    assert!(!bench.stand_in().runners().unwrap()[0].online(), "it said good-bye");
    let (status, output) = package.removed("wrong").await;
    assert_eq!(status.code(), Some(1), "{output}");
    let token = bench.github().removal_token(&scope()).await.unwrap().value;
    let (status, output) = package.removed(&token).await;
    assert!(status.success() && output.contains("Runner removed successfully"), "{output}");
    assert_eq!(bench.stand_in().runners().unwrap().len(), 0);
    assert!(!package.root.join(".runner").exists() && !package.root.join(".credentials").exists());
}

#[tokio::test]
async fn steps_stop_at_the_first_that_fails() {
    let bench = Bench::new().await;
    let package = bench.configured("r1", "x").await;
    let _running = package.run(&[]);
    let run = bench.queue("x", &["echo one", "exit 7", "echo three"]);
    let job = bench.finished(run).await;
    assert_eq!((job.status, job.exit_code), (JobStatus::Completed(Conclusion::Failure), Some(7)));
    assert!(job.log.contains("one\n") && !job.log.contains("three\n"), "{}", job.log);
    let job = bench.finished(bench.queue("x", &["echo fine"])).await;
    assert_eq!((job.status, job.exit_code), (JobStatus::Completed(Conclusion::Success), Some(0)));
}

#[tokio::test]
async fn a_hook_learns_the_job_from_github_and_its_failure_skips_all_but_always_steps() {
    let bench = Bench::new().await;
    let package = bench.configured("r1", "x").await;
    let hook = bench.dir.path().join("hook.sh");
    std::fs::write(&hook, "echo \"[$GITHUB_RUN_ID of $GITHUB_REPOSITORY, ${GREETING:-unset}]\"; exit 3\n")
        .unwrap();
    let _running = package.run(&[("ACTIONS_RUNNER_HOOK_JOB_STARTED", hook.to_str().unwrap())]);
    let run = bench.queue("x", &["echo the first step", "# if: always()\necho the last step"]);
    let job = bench.finished(run).await;
    assert_eq!((job.status, job.exit_code), (JobStatus::Completed(Conclusion::Failure), Some(3)));
    assert!(job.log.contains(&format!("[{run} of {REPO}, unset]\n")), "{}", job.log);
    assert!(!job.log.contains("the first step\n") && job.log.contains("the last step\n"), "{}", job.log);
    std::fs::write(&hook, "exit 0\n").unwrap();
    let job = bench.finished(bench.queue("x", &["echo \"$GREETING\""])).await;
    assert_eq!(job.status, JobStatus::Completed(Conclusion::Success), "{}", job.log);
    std::fs::remove_file(&hook).unwrap();
    let job = bench.finished(bench.queue("x", &["true"])).await;
    assert_eq!(job.status, JobStatus::Completed(Conclusion::Failure), "{}", job.log);
    assert!(job.log.contains("File doesn't exist"), "{}", job.log);
}

#[tokio::test]
async fn a_single_use_runner_serves_one_job_and_its_configuration_is_spent() {
    let bench = Bench::new().await;
    let package = bench.package("once").await;
    let spec = RunnerSpec {
        name: "once".to_owned(),
        labels: vec!["x".to_owned()],
        group_id: 1,
        work_folder: "_work".to_owned(),
    };
    let config = bench.github().job_config(&scope(), &spec).await.unwrap().encoded;
    let input = [("ACTIONS_RUNNER_INPUT_JITCONFIG", config.as_str())];
    let (first, second) = (
        bench.queue("x", &["echo \"[${ACTIONS_RUNNER_INPUT_JITCONFIG:-unset}]\""]),
        bench.queue("x", &["true"]),
    );
    package.run(&input).ends().await;
    assert!(bench.finished(first).await.log.contains("[unset]\n"));
    assert_eq!(bench.stand_in().jobs(second).unwrap()[0].status, JobStatus::Queued);
    assert_eq!(bench.stand_in().runners().unwrap().len(), 0);
    assert!(!package.root.join(".runner").exists() && !package.root.join(".credentials").exists());
    let (status, output) = package.call("run.sh", &["--jitconfig", &config]).await;
    assert!(status.success() && output.contains("has been deleted from the server"), "{output}");
    assert!(output.contains("exit with terminated error"), "{output}");
    let (_, output) = package.call("run.sh", &["--jitconfig", "hunter2"]).await;
    assert!(output.contains("jitconfig cannot be read") && !output.contains("hunter2"), "{output}");
}

#[tokio::test]
async fn a_signal_cancels_the_job_and_leaves_no_process_behind() {
    let bench = Bench::new().await;
    let package = bench.configured("r1", "x").await;
    let mut running = package.run(&[("RUNNER_MANUALLY_TRAP_SIG", "1")]);
    let run = bench.queue(
        "x",
        &["trap 'echo stopping; exit 9' INT; setsid sleep 600 & echo $! >child; while :; do sleep 0.05; done"],
    );
    let child = package.root.join("_work/app/app/child");
    until("the job runs", || read(&child).ends_with('\n')).await;
    let output = running.ends_by(Signal::SIGTERM).await;
    assert!(output.contains("completed with result: Failed"), "{output}");
    let job = bench.finished(run).await;
    assert_eq!(job.status, JobStatus::Completed(Conclusion::Failure), "{}", job.log);
    assert!(job.log.contains("The runner has received a shutdown signal"), "{}", job.log);
    assert!(job.log.contains("stopping"), "it was asked before it was told: {}", job.log);
    let stat = PathBuf::from("/proc").join(read(&child).trim()).join("stat");
    until("the background process is gone", || !stat.exists() || read(&stat).contains(") Z ")).await;
}

#[tokio::test]
async fn a_cancelled_run_ends_the_job_on_its_runner() {
    let bench = Bench::new().await;
    let package = bench.configured("r1", "x").await;
    let _running = package.run(&[]);
    let run = bench.queue("x", &["touch started; while :; do sleep 0.05; done"]);
    until("the job runs", || package.root.join("_work/app/app/started").exists()).await;
    bench.stand_in().cancel_run(run).unwrap();
    assert_eq!(bench.finished(run).await.status, JobStatus::Completed(Conclusion::Cancelled));
    let next = bench.finished(bench.queue("x", &["true"])).await;
    assert_eq!(next.status, JobStatus::Completed(Conclusion::Success));
}

#[tokio::test]
async fn a_runner_removed_on_the_server_stops_and_cannot_be_removed_again() {
    let bench = Bench::new().await;
    let package = bench.configured("r1", "x").await;
    let id = bench.stand_in().runners().unwrap()[0].id;
    bench.github().remove_runner(&scope(), id).await.unwrap();
    let output = package.run(&[]).ends().await;
    assert!(output.contains("deleted from the server") && output.contains("terminated error"), "{output}");
    let token = bench.github().removal_token(&scope()).await.unwrap().value;
    let (status, output) = package.removed(&token).await;
    assert_eq!(status.code(), Some(1), "{output}");
    assert!(output.contains("Http response code: NotFound from 'Delete http://"), "{output}");
    assert!(package.root.join(".runner").exists(), "what is not removed is kept");
}

#[tokio::test]
async fn by_the_older_way_a_runner_that_github_does_not_know_is_removed() {
    let older = Bench::behaving(Behaviour { admin_flow: false, ..Behaviour::default() }).await;
    let configured = older.configured("r1", "x").await;
    let jit = Bench::new().await;
    let single_use = jit.package("once").await;
    let spec = RunnerSpec {
        name: "once".to_owned(),
        labels: vec!["x".to_owned()],
        group_id: 1,
        work_folder: "_work".to_owned(),
    };
    let config = jit.github().job_config(&scope(), &spec).await.unwrap().encoded;
    let mut running = single_use.run(&[("ACTIONS_RUNNER_INPUT_JITCONFIG", config.as_str())]);
    running.says("Listening for Jobs").await;
    running.signal(Signal::SIGINT);
    running.ends().await;
    for (bench, package) in [(&older, &configured), (&jit, &single_use)] {
        let id = bench.stand_in().runners().unwrap()[0].id;
        bench.github().remove_runner(&scope(), id).await.unwrap();
        let token = bench.github().removal_token(&scope()).await.unwrap().value;
        let (status, output) = package.removed(&token).await;
        assert!(status.success() && output.contains("Does not exist. Skipping"), "{output}");
    }
}

#[tokio::test]
async fn a_version_past_its_end_of_life_is_refused_or_starved() {
    let ended = |registration: bool| EndOfLife {
        version: PACKAGE_VERSION.to_owned(),
        registration: registration.then_some(Timestamp::UNIX_EPOCH),
        runtime: Some(Timestamp::UNIX_EPOCH),
    };
    let behaviour = Behaviour { ends_of_life: vec![ended(false)], ..Behaviour::default() };
    let bench = Bench::behaving(behaviour.clone()).await;
    let package = bench.configured("r1", "x").await;
    let (status, output) = package.call("run.sh", &[]).await;
    assert!(status.success() && output.contains("exit with terminated error"), "{output}");
    assert!(output.contains("Listening for Jobs"), "it hears of it when it asks for a message: {output}");
    let told = [("ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE", "1")];
    let mut running = package.run(&told);
    let status = tokio::time::timeout(PATIENCE, running.child.wait()).await.unwrap().unwrap();
    let output = read(&running.output);
    assert_eq!(status.code(), Some(7), "{output}");
    assert!(
        output.contains("is deprecated") && output.contains("deprecated version exit code: 7"),
        "{output}"
    );
    let unconnected = Behaviour { past_end_of_life: PastEndOfLife::NoSession, ..behaviour.clone() };
    bench.stand_in().behave(unconnected).unwrap();
    std::fs::remove_file(package.root.join("output")).unwrap();
    let output = package.run(&told).ends().await;
    assert!(output.contains("Failed to create session. ") && output.contains("is deprecated"), "{output}");
    assert!(!output.contains("Listening for Jobs") && output.contains("terminated error"), "{output}");
    std::fs::remove_file(package.root.join("output")).unwrap();
    let starved = Behaviour { past_end_of_life: PastEndOfLife::Starved, ..behaviour.clone() };
    bench.stand_in().behave(starved).unwrap();
    let listening = package.run(&[]);
    listening.says("Listening for Jobs").await;
    let run = bench.queue("x", &["true"]);
    until("it is connected", || bench.stand_in().runners().unwrap()[0].online()).await;
    assert_eq!(bench.stand_in().jobs(run).unwrap()[0].status, JobStatus::Queued);
    // Its time comes with the date: the same runner gets the job once its version is supported.
    bench.stand_in().behave(Behaviour::default()).unwrap();
    assert_eq!(bench.finished(run).await.status, JobStatus::Completed(Conclusion::Success));
    bench.stand_in().behave(Behaviour { ends_of_life: vec![ended(true)], ..behaviour }).unwrap();
    let package = bench.package("r2").await;
    let token = bench.github().registration_token(&scope()).await.unwrap().value;
    let url = bench.github().runner_url(&scope());
    let (status, output) =
        package.call("config.sh", &["--unattended", "--url", &url, "--token", &token]).await;
    assert!(status.code() == Some(1) && output.contains("is deprecated"), "{output}");
}

#[tokio::test]
async fn a_step_always_to_be_done_is_cancelled_as_it_begins_at_the_runners_end() {
    let slow = PackageBehaviour { stop: Duration::from_millis(300), ..PackageBehaviour::default() };
    let bench = Bench::behaving(Behaviour { package: slow, ..Behaviour::default() }).await;
    let package = bench.configured("r1", "x").await;
    let mut running = package.run(&[("RUNNER_MANUALLY_TRAP_SIG", "1")]);
    let steps = [
        "rm -f started; touch started; while :; do sleep 0.05; done",
        "# if: always()\nsleep 1\necho the last step",
    ];
    let started = package.root.join("_work/app/app/started");
    let cancelled = bench.queue("x", &steps);
    until("the job runs", || started.exists()).await;
    bench.stand_in().cancel_run(cancelled).unwrap();
    let job = bench.finished(cancelled).await;
    assert_eq!(job.status, JobStatus::Completed(Conclusion::Cancelled));
    assert!(job.log.contains("the last step\n"), "{}", job.log);
    std::fs::remove_file(&started).unwrap();
    let stopped = bench.queue("x", &steps);
    until("the next job runs", || started.exists()).await;
    running.ends_by(Signal::SIGINT).await;
    let job = bench.finished(stopped).await;
    assert_eq!(job.status, JobStatus::Completed(Conclusion::Failure));
    assert!(job.log.contains("##[group]Run # if: always()"), "{}", job.log);
    assert!(!job.log.contains("the last step\n"), "{}", job.log);
}

#[tokio::test]
async fn the_removal_of_a_busy_runner_is_tried_thrice_and_refused() {
    let bench = Bench::new().await;
    let package = bench.configured("r1", "x").await;
    let _running = package.run(&[]);
    let run = bench.queue("x", &["touch started; while [ ! -e go ]; do sleep 0.05; done"]);
    let workspace = package.root.join("_work/app/app");
    until("the job runs", || workspace.join("started").exists()).await;
    let token = bench.github().removal_token(&scope()).await.unwrap().value;
    let (status, output) = package.removed(&token).await;
    assert_eq!(status.code(), Some(1), "{output}");
    assert_eq!(output.matches("UnprocessableEntity from 'Delete").count(), 3, "{output}");
    std::fs::write(workspace.join("go"), "").unwrap();
    assert_eq!(bench.finished(run).await.status, JobStatus::Completed(Conclusion::Success));
}

#[tokio::test]
async fn a_job_outlives_a_restart_of_the_stand_in() {
    let mut bench = Bench::new().await;
    let package = bench.configured("r1", "x").await;
    let _running = package.run(&[]);
    let run = bench.queue("x", &["touch started; while [ ! -e go ]; do sleep 0.05; done; echo survived"]);
    let workspace = package.root.join("_work/app/app");
    until("the job runs", || workspace.join("started").exists()).await;
    let address = bench.stand_in().address();
    bench.stand_in.take().unwrap().stop().await.unwrap();
    std::fs::write(workspace.join("go"), "").unwrap();
    until("the job is done", || read(&package.root.join("output")).contains("completed with result")).await;
    bench.start().await;
    assert_eq!(bench.stand_in().address(), address);
    let job = bench.finished(run).await;
    assert_eq!(job.status, JobStatus::Completed(Conclusion::Success));
    assert!(job.log.contains("survived"));
}

#[tokio::test]
async fn mistakes_of_configuration_are_told_and_nothing_is_stored() {
    let bench = Bench::new().await;
    let package = bench.package("r1").await;
    let url = bench.github().runner_url(&scope());
    let (status, output) =
        package.call("config.sh", &["--unattended", "--url", &url, "--token", "hunter2"]).await;
    assert!(status.code() == Some(1) && output.contains("token is not valid"), "{output}");
    assert!(!output.contains("hunter2"), "{output}");
    let (status, output) = package.call("config.sh", &["--unattended", "--url", &url]).await;
    assert!(status.code() == Some(1) && output.contains("--token"), "{output}");
    let (_, output) = package.call("run.sh", &[]).await;
    assert!(output.contains("Not configured"), "{output}");
    assert!(!package.root.join(".runner").exists());
    let again = bench.configured("r2", "x").await;
    let (status, output) = again.call("config.sh", &["--url", &url, "--token", "t"]).await;
    assert!(status.code() == Some(1) && output.contains("already configured"), "{output}");
}

/// [live]: a runner takes any job of its set, not the one it was made for.
#[tokio::test]
async fn a_runner_of_a_scale_set_serves_one_of_its_jobs() {
    let bench = Bench::new().await;
    let package = bench.package("set").await;
    let sets = RestScaleSets::new(Arc::new(bench.github()));
    let spec = SetSpec { name: "runyard-small".into(), labels: vec!["runyard-small".into()], group_id: 1 };
    let set = sets.create(&scope(), &spec).await.unwrap();
    let session = sets.open(&scope(), set.id, "yard").await.unwrap();
    let (first, second) =
        (bench.queue("runyard-small", &["echo $GREETING"]), bench.queue("runyard-small", &["true"]));
    let assigned = sets.message(&session, None, 2).await.unwrap().unwrap();
    assert_eq!(assigned.jobs.iter().map(|job| job.run_id).collect::<Vec<_>>(), [first, second]);
    sets.delete_message(&session, assigned.id).await.unwrap();
    let config = sets.job_config(&scope(), set.id, "set-1", "_work").await.unwrap().encoded;
    package.run(&[("ACTIONS_RUNNER_INPUT_JITCONFIG", config.as_str())]).ends().await;
    assert!(bench.finished(first).await.log.contains("hello\n"));
    assert_eq!(bench.stand_in().jobs(second).unwrap()[0].status, JobStatus::Queued);
    assert_eq!(bench.stand_in().runners().unwrap().len(), 0, "it is a single-use runner");
    let told = sets.message(&session, Some(assigned.id), 2).await.unwrap().unwrap();
    let told: Vec<_> = told.jobs.iter().map(|job| (job.news, job.run_id, job.runner.as_str())).collect();
    assert_eq!(told, [(JobNews::Started, first, "set-1"), (JobNews::Completed, first, "set-1")]);
}
