//! Does the stand-in's runner package refuse what GitHub's refuses, in its words? A place that lacks it for each demand
//! of the list, and each way in which GitHub lets go of a listener.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use nix::sys::signal::Signal;
use nix::unistd::geteuid;
use tokio::process::Command;

use runyard_core::ports::github::{GitHub as _, RunnerSpec};
use runyard_standin::github::listener::Exit;
use runyard_standin::github::listener::demands::{Demand, Ending};
use runyard_standin::github::{
    Behaviour, Conclusion, EndOfLife, JobStatus, PACKAGE_VERSION, PackageBehaviour, PastEndOfLife,
    TokenService,
};

use super::listener::{Bench, Package, read, scope, until};

/// What the package's scripts call.
const PROGRAMS: [&str; 12] =
    ["bash", "cat", "chmod", "cp", "dirname", "grep", "id", "ldconfig", "ldd", "sh", "touch", "uname"];
const TELL_DEPRECATED: (&str, &str) = ("ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE", "1");

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A directory of programs, each this script.
fn programs(bench: &Bench, name: &str, scripts: &[(&str, &str)]) -> PathBuf {
    let dir = bench.dir.path().join(name);
    std::fs::create_dir(&dir).unwrap();
    for (program, text) in scripts {
        std::fs::write(dir.join(program), format!("#!/bin/sh\n{text}\n")).unwrap();
        mode(&dir.join(program), 0o755);
    }
    dir
}

/// A directory of links to what the package's scripts call, one left out.
fn all_but(bench: &Bench, missing: &str) -> PathBuf {
    let dir = programs(bench, &format!("all-but-{missing}"), &[]);
    for program in PROGRAMS.into_iter().filter(|program| *program != missing) {
        let places = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"].map(|place| Path::new(place).join(program));
        let found = places.into_iter().find(|path| path.exists()).unwrap_or_else(|| panic!("no {program}"));
        symlink(found, dir.join(program)).unwrap();
    }
    dir
}

/// A script of the package, by a user who is bound by modes even where the test is root's.
fn bound(package: &Package, script: &str, arguments: &[&str]) -> Command {
    let mut command = package.command(script, arguments);
    if geteuid().is_root() {
        let powers = "-dac_override,-dac_read_search";
        command = Command::new("setpriv");
        command.args(["--bounding-set", powers, "--inh-caps", powers]);
        command.arg(package.root.join(script)).args(arguments).current_dir(&package.root);
        command.env("RUNNER_ALLOW_RUNASROOT", "1").kill_on_drop(true);
    }
    command
}

async fn said(mut command: Command) -> (Option<i32>, String) {
    let output = command.output().await.unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text)
}

/// What a script says, and ends with, in a place that lacks this.
#[expect(clippy::too_many_lines, reason = "a table: one arm for each demand")]
async fn lacking(bench: &Bench, demand: Demand) -> (Option<i32>, String) {
    let name = format!("{demand:?}");
    let package = bench.package(&name).await;
    let url = bench.github().runner_url(&scope());
    let token = bench.github().registration_token(&scope()).await.unwrap().value;
    let configure = ["--unattended", "--url", &url, "--token", &token, "--name", &name, "--labels", "x"];
    let first = |dir: PathBuf| format!("{}:{}", dir.display(), "/usr/sbin:/usr/bin:/sbin:/bin");
    match demand {
        Demand::User => {
            let path = first(programs(bench, "root", &[("id", "echo 0")]));
            let mut command = package.command("config.sh", &configure);
            command.env("PATH", path).env_remove("RUNNER_ALLOW_RUNASROOT");
            said(command).await
        }
        Demand::Ldd => {
            let mut command = package.command("config.sh", &configure);
            said(std::mem::replace(command.env("PATH", all_but(bench, "ldd")), Command::new("true"))).await
        }
        Demand::Libraries => {
            let path = first(programs(bench, "unlinked", &[("ldd", "echo 'libstdc++.so.6 => not found'")]));
            let mut command = package.command("config.sh", &configure);
            command.env("PATH", path);
            said(command).await
        }
        Demand::Libicu => {
            let path = first(programs(bench, "no-icu", &[("ldconfig", "echo libc.so.6")]));
            let mut command = package.command("config.sh", &configure);
            command.env("PATH", path);
            said(command).await
        }
        Demand::Programs => {
            let mut command = package.command("run.sh", &[]);
            command.env("PATH", all_but(bench, "cp"));
            said(command).await
        }
        Demand::RealPath => {
            let shared = bench.dir.path().join("shared");
            std::fs::create_dir(&shared).unwrap();
            std::fs::rename(package.root.join("bin"), shared.join("bin")).unwrap();
            symlink(shared.join("bin"), package.root.join("bin")).unwrap();
            mode(&shared, 0o555);
            let told = said(bound(&package, "config.sh", &configure)).await;
            mode(&shared, 0o755);
            told
        }
        Demand::WritableRoot => {
            mode(&package.root, 0o555);
            let told = said(bound(&package, "config.sh", &configure)).await;
            mode(&package.root, 0o755);
            told
        }
        Demand::ListableRoot => {
            let closed = bench.dir.path().join("closed");
            std::fs::create_dir(&closed).unwrap();
            std::fs::rename(&package.root, closed.join("runner")).unwrap();
            let package = Package { root: closed.join("runner") };
            mode(&closed, 0o311);
            let (code, text) = said(bound(&package, "config.sh", &configure)).await;
            mode(&closed, 0o755);
            assert!(
                text.contains(&format!("Access to the path '{}' is denied.", closed.display())),
                "{text}"
            );
            (code, text)
        }
        Demand::Registered => said(package.command("run.sh", &[])).await,
        Demand::ListableWork => {
            let (code, text) = said(package.command("config.sh", &configure)).await;
            assert_eq!(code, Some(0), "{text}");
            let work = package.root.join("_work");
            std::fs::create_dir(&work).unwrap();
            mode(&work, 0o311);
            let told = said(bound(&package, "run.sh", &[])).await;
            mode(&work, 0o755);
            told
        }
        Demand::ListableWorkOfJob => {
            let (code, text) = said(package.command("config.sh", &configure)).await;
            assert_eq!(code, Some(0), "{text}");
            let mut listening = bound(&package, "run.sh", &["--once"]);
            let output = package.root.join("output");
            let file = std::fs::File::create(&output).unwrap();
            let mut child = listening.stdout(file).spawn().unwrap();
            until("it listens", || read(&output).contains("Listening for Jobs")).await;
            mode(&package.root.join("_work"), 0o311);
            let job = bench.finished(bench.queue("x", &["true"])).await;
            assert_eq!(job.status, JobStatus::Completed(Conclusion::Failure));
            mode(&package.root.join("_work"), 0o755);
            (child.wait().await.unwrap().code(), job.log)
        }
        Demand::ServiceTemplate => {
            std::fs::remove_file(package.root.join("bin/systemd.svc.sh.template")).unwrap();
            let told = said(package.command("config.sh", &configure)).await;
            assert!(package.root.join(".runner").exists(), "it is registered by then");
            told
        }
    }
}

#[tokio::test]
async fn a_place_without_what_the_runner_asks_for_is_refused_in_its_words() {
    let package = PackageBehaviour { libicu: true, ..PackageBehaviour::default() };
    let bench = Bench::behaving(Behaviour { package, ..Behaviour::default() }).await;
    for demand in Demand::ALL {
        let (code, text) = lacking(&bench, demand).await;
        assert!(text.contains(demand.words()), "{demand:?}: {text}");
        let crashed = Some(Exit::Crashed.code().into());
        let wanted = match demand {
            Demand::RealPath | Demand::WritableRoot => crashed,
            // By `run.sh`, whatever became of the listener; the last is a job's end.
            Demand::Programs | Demand::Registered | Demand::ListableWork | Demand::ListableWorkOfJob => {
                Some(0)
            }
            Demand::User
            | Demand::Ldd
            | Demand::Libraries
            | Demand::Libicu
            | Demand::ListableRoot
            | Demand::ServiceTemplate => Some(1),
        };
        assert_eq!(code, wanted, "{demand:?}: {text}");
        assert!(demand == Demand::ListableWorkOfJob || !text.contains("Listening for Jobs"), "{text}");
    }
}

#[tokio::test]
async fn a_developers_machine_needs_no_libicu() {
    let bench = Bench::behaving(Behaviour::default()).await;
    let package = bench.package("r").await;
    let path = programs(&bench, "no-icu", &[("ldconfig", "echo libc.so.6")]);
    let mut command = package.command("config.sh", &[]);
    command.env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", path.display()));
    let (_, text) = said(command).await;
    assert!(!text.contains(Demand::Libicu.words()) && text.contains("--url"), "{text}");
}

/// A listener that was let go of in this way, and what it said.
async fn let_go(ending: Ending) -> String {
    let package = PackageBehaviour { again: Duration::from_millis(40), ..PackageBehaviour::default() };
    let held = Duration::from_secs(3600);
    let usual = Behaviour { package, session_held: held, ..Behaviour::default() };
    let over = EndOfLife {
        version: PACKAGE_VERSION.to_owned(),
        registration: None,
        runtime: Some(Timestamp::UNIX_EPOCH),
    };
    let ended = Behaviour { ends_of_life: vec![over], ..usual.clone() };
    let mut bench = Bench::behaving(usual.clone()).await;
    let package = bench.configured("r", "x").await;
    let id = bench.stand_in().runners().unwrap()[0].id;
    match ending {
        Ending::DeletedBefore => {
            bench.github().remove_runner(&scope(), id).await.unwrap();
            package.run(&[]).ends().await
        }
        Ending::Deleted => {
            let mut running = package.run(&[]);
            running.says("Listening for Jobs").await;
            bench.github().remove_runner(&scope(), id).await.unwrap();
            let output = running.ends().await;
            assert!(
                !package.root.join(".runner").exists() && output.contains("Removed .credentials"),
                "{output}"
            );
            output
        }
        Ending::Deprecated => {
            bench.stand_in().behave(ended).unwrap();
            let output = package.run(&[TELL_DEPRECATED]).ends_with(7).await;
            assert!(output.contains("Listening for Jobs"), "{output}");
            output
        }
        Ending::SessionRefused => {
            let refused = Behaviour { past_end_of_life: PastEndOfLife::NoSession, ..ended };
            bench.stand_in().behave(refused).unwrap();
            package.run(&[TELL_DEPRECATED]).ends().await
        }
        Ending::Conflict => {
            let dead = package.run(&[]);
            dead.says("Listening for Jobs").await;
            dead.signal(Signal::SIGKILL);
            drop(dead);
            let output = package.run(&[]).ends().await;
            let told = output.lines().filter(|line| *line == "A session for this runner already exists.");
            assert_eq!(told.count(), 8, "{output}");
            assert_eq!(output.matches("Retrying until reconnected.").count(), 1, "{output}");
            output
        }
        Ending::NoToken => {
            bench.stand_in().behave(Behaviour { token_service: TokenService::Unwell, ..usual }).unwrap();
            let output = package.run(&[]).ends().await;
            assert!(output.contains("503 (Service Unavailable).. Retrying until reconnected."), "{output}");
            output
        }
        Ending::PollFails => {
            let running = package.run(&[]);
            running.says("Listening for Jobs").await;
            bench.stand_in.take().unwrap().stop().await.unwrap();
            running.says("retryable error, re-launch runner in 5 seconds").await;
            read(&package.root.join("output"))
        }
        Ending::SpentSingleUse => {
            let (name, labels) = ("once".to_owned(), vec!["y".to_owned()]);
            let spec = RunnerSpec { name, labels, group_id: 1, work_folder: "_work".to_owned() };
            let config = bench.github().job_config(&scope(), &spec).await.unwrap().encoded;
            bench.queue("y", &["true"]);
            let package = bench.package("once").await;
            package.run(&[("ACTIONS_RUNNER_INPUT_JITCONFIG", &config)]).ends().await
        }
    }
}

#[tokio::test]
async fn a_listener_that_github_lets_go_of_says_so_in_its_words() {
    for ending in Ending::ALL {
        let output = let_go(ending).await;
        assert!(output.contains(ending.words()), "{ending:?}: {output}");
        let script = match ending.exit(true) {
            Exit::Success => "exit with 0 return code",
            Exit::Terminated => "exit with terminated error",
            Exit::Retryable => "exit with retryable error",
            Exit::SessionConflict => "exit with Session Conflict error",
            Exit::Deprecated => "exit with deprecated version exit code: 7",
            Exit::Crashed => "unknown error code: 134",
        };
        assert!(output.contains(script), "{ending:?}: {output}");
    }
    assert_eq!(Ending::Deprecated.exit(false), Exit::Terminated);
}

#[tokio::test]
async fn a_listener_that_lost_its_session_goes_on_with_another_and_says_nothing() {
    let held = Duration::from_millis(1);
    let bench = Bench::behaving(Behaviour { session_held: held, ..Behaviour::default() }).await;
    let package = bench.configured("r", "x").await;
    let running = package.run(&[]);
    running.says("Listening for Jobs").await;
    // Its question is held open for longer than its session lasts without a word.
    until("its session was lost", || {
        read(&package.root.join("output")).matches("Connected to GitHub").count() > 1
    })
    .await;
    bench.stand_in().behave(Behaviour::default()).unwrap();
    let job = bench.finished(bench.queue("x", &["true"])).await;
    assert_eq!(job.status, JobStatus::Completed(Conclusion::Success), "{}", job.log);
    assert_eq!(read(&package.root.join("output")).matches("Listening for Jobs").count(), 1);
}
