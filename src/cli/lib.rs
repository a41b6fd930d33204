//! The command line: which verb was asked for, with what, and how it ended. Everything that can be refused without
//! the network is refused before anything is reached.

pub(crate) mod change;
mod duration;
mod environment;
mod failure;
pub(crate) mod input;
pub(crate) mod look;
pub(crate) mod machine;
pub(crate) mod output;
pub(crate) mod pools;
pub(crate) mod session;
pub(crate) mod setup;
mod step;
#[cfg(test)]
mod tests;
mod verbs;
pub(crate) mod why;
pub(crate) mod workflow;

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use runyard_core::model::FieldError;
use runyard_operator::process::panics;

use crate::change::{apply, delete, drain, expire, fail, hold, refresh, scale, ssh};
use crate::environment::Environment;
use crate::failure::{CliFailure, CliResult};
use crate::input::common::Common;
use crate::input::{completion, usage};
use crate::look::{cost, describe, events, get, history, logs, top, version};
use crate::machine::daemon;
#[cfg(feature = "local")]
use crate::machine::local_mode;
use crate::output::format::Format;
use crate::output::screen::{self, Screen};
use crate::session::{connect, yards};
use crate::setup::{config, github_app, init, trial};
use crate::verbs::{Cli, Once, Process, Verb};
use crate::why::{debug, doctor, plan_explain, whatif};
use crate::workflow::{check_workflow, extend, provision, release, wait};

pub use self::step::{StepFailed, StepPorts, step};

/// Runs what the process was asked for; answers its exit code.
pub fn main() -> ExitCode {
    panics::end_the_program();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    #[cfg(feature = "local")]
    if let [_, verb, ..] = arguments.as_slice()
        && verb == local_mode::STAND_IN_RUNNER
    {
        return stand_in_runner(&arguments[1..]);
    }
    if completion::asked(Cli::command, &arguments) {
        return ExitCode::SUCCESS;
    }
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => return not_understood(&error, verbs::format_asked(&arguments)),
    };
    let format = cli.common.output.format;
    match begin(cli) {
        Ok(code) => code,
        Err(failure) => {
            screen::report(&failure, format);
            failure.exit.into()
        }
    }
}

#[cfg(feature = "local")]
fn stand_in_runner(arguments: &[OsString]) -> ExitCode {
    let ended = match local_mode::RunnerArgs::try_parse_from(arguments) {
        Ok(args) => local_mode::stand_in_runner(&args),
        Err(error) => return not_understood(&error, Format::Text),
    };
    ended.unwrap_or_else(|failure| {
        screen::report(&failure, Format::Text);
        failure.exit.into()
    })
}

/// Runs the verb in the surroundings it needs: the long-running ones bring their own.
fn begin(cli: Cli) -> CliResult<ExitCode> {
    let done = |()| ExitCode::SUCCESS;
    match cli.verb {
        #[cfg(feature = "local")]
        Verb::Process(Process::Up(args)) => local_mode::up(args, cli.common.table).map(done),
        #[cfg(feature = "local")]
        Verb::Process(Process::Demo) => local_mode::demo(cli.common.table).map(done),
        Verb::Process(Process::Operator(args)) => daemon::operator(&args, cli.common.table).map(done),
        Verb::Once(verb) => {
            let environment = Environment::of_process();
            log_to_stderr(&cli.common, &environment);
            let annotated = verb.is_step() && environment.get("GITHUB_ACTIONS") == Some("true");
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let refused = |error: std::io::Error| {
                CliFailure::error("runtime", "", error.to_string(), "run the command again")
            };
            let ended = runtime.map_err(refused)?.block_on(run(&cli.common, verb, environment));
            ended.map(done).inspect_err(|failure| {
                if annotated {
                    screen::annotate(failure);
                }
            })
        }
    }
}

/// Help and versions go to stdout; what is wrong is said as every other problem is.
fn not_understood(error: &clap::Error, format: Format) -> ExitCode {
    if !error.use_stderr() {
        // A reader that left wants no help either.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let failure = CliFailure::usage(usage::problem(error));
    let own = std::error::Error::source(error).is_some();
    if format == Format::Json || own {
        screen::report(&failure, format);
    } else {
        let _ = error.print();
    }
    failure.exit.into()
}

fn log_to_stderr(common: &Common, environment: &Environment) {
    let level = match common.verbose {
        // What the SDK tries in vain on its way is no news: what became of it is said once, at the end.
        0 => "error,runyard=warn",
        1 => "warn,runyard=debug",
        _ => "debug",
    };
    let filter = environment.get("RUNYARD_LOG").unwrap_or(level);
    let filter = tracing_subscriber::EnvFilter::builder().parse_lossy(filter);
    let logging = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let logging = logging.with_target(false).log_internal_errors(false);
    // A second subscriber in one process is refused; the first one serves as well. Colours are the default, but for
    // NO_COLOR.
    let _ = if std::io::stderr().is_terminal() {
        logging.try_init()
    } else {
        logging.with_ansi(false).try_init()
    };
}

/// `runyard man`: one page for each verb.
fn man(dir: &Path) -> CliResult {
    let made = std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(Cli::command(), dir));
    made.map_err(|error| {
        let fix = "name a directory that you may write to";
        CliFailure::error("DIR", dir.display().to_string(), error.to_string(), fix)
    })
}

async fn run(common: &Common, verb: Once, environment: Environment) -> CliResult {
    if let Once::Config(args) = verb {
        return config::run(&mut Screen::stdout(&common.output), args, common.table.as_ref(), &environment);
    }
    let environment = yards::environment_of(common.yard.as_deref(), common.table.as_ref(), environment)?;
    let table = yards::table_of(common.table.as_ref(), &environment)?;
    let mut screen = Screen::stdout(&common.output);
    screen.quiet = common.quiet;
    if screen.wants_focus() && !matches!(verb, Once::Cost(_)) {
        let fix = "use csv, or `runyard cost -o focus`";
        let problem = FieldError::new("--output", "focus", "is the form of costs alone", fix);
        return Err(CliFailure::usage(problem));
    }
    let env = &environment;
    match verb {
        Once::Completions { shell } => {
            screen.text(&completion::script(shell));
            Ok(())
        }
        Once::Config(_) => unreachable!("it was answered before a yard was chosen"),
        Once::CheckWorkflow(args) => check_workflow::run(&mut screen, &args, &table),
        Once::Man { dir } => man(&dir),
        Once::Provision(args) => {
            let id = provision::check(&args, env, &table)?;
            provision::run(&mut connect::connect(table, environment, screen).await?.0, &args, &id).await
        }
        Once::Release(args) => {
            let asked = release::check(&args, env)?;
            release::run(&mut connect::connect(table, environment, screen).await?.0, &args, &asked).await
        }
        Once::Get(args) => {
            let target = get::check(&args, env)?;
            get::run(&mut connect::connect(table, environment, screen).await?.0, &args, &target).await
        }
        Once::Describe(args) => {
            let target = describe::check(&args, env)?;
            describe::run(&mut connect::connect(table, environment, screen).await?.0, &args, &target).await
        }
        Once::Events(args) => {
            let target = events::check(&args, env)?;
            events::run(&mut connect::connect(table, environment, screen).await?.0, &args, &target).await
        }
        Once::History(args) => {
            history::run(&mut connect::connect(table, environment, screen).await?.0, &args).await
        }
        Once::Scale(args) => {
            scale::run(&mut connect::connect(table, environment, screen).await?.0, &args).await
        }
        Once::Apply(mut args) => {
            args.stack.of_yard(env);
            let asked = apply::check(&args, &table)?;
            apply::run(&mut connect::connect(table, environment, screen).await?.0, &asked).await
        }
        Once::Diff(mut args) => {
            args.stack.of_yard(env);
            let wanted = apply::check_diff(&args, &table)?;
            apply::diff(&mut connect::connect(table, environment, screen).await?.0, &wanted).await
        }
        Once::Set(args) => {
            apply::set(&mut connect::connect(table, environment, screen).await?.0, &args).await
        }
        Once::Edit(args) => {
            apply::edit(&mut connect::connect(table, environment, screen).await?.0, &args).await
        }
        Once::Pause(args) => {
            apply::pause(&mut connect::connect(table, environment, screen).await?.0, &args, true).await
        }
        Once::Resume(args) => {
            apply::pause(&mut connect::connect(table, environment, screen).await?.0, &args, false).await
        }
        Once::Delete(args) => {
            let class = delete::check(&args)?;
            delete::run(&mut connect::connect(table, environment, screen).await?.0, &args, &class).await
        }
        Once::Drain(args) => {
            let machines = drain::check(&args)?;
            drain::run(&mut connect::connect(table, environment, screen).await?.0, &args, &machines).await
        }
        Once::Hold(args) => {
            let machine = hold::check(&args)?;
            hold::run(&mut connect::connect(table, environment, screen).await?.0, &args, &machine).await
        }
        Once::ReleaseHold(args) => {
            let machines = hold::check_release(&args)?;
            let context = &mut connect::connect(table, environment, screen).await?.0;
            hold::release(context, &args, &machines).await
        }
        Once::Logs(args) => {
            let target = logs::check(&args, env)?;
            logs::run(&mut connect::connect(table, environment, screen).await?.0, &args, &target).await
        }
        Once::Wait(args) => {
            let target = wait::check(&args, env)?;
            wait::run(&mut connect::connect(table, environment, screen).await?.0, &args, &target).await
        }
        Once::Cost(args) => {
            let asked = cost::check(&args, &table)?;
            cost::run(&mut connect::connect(table, environment, screen).await?.0, &args, asked).await
        }
        Once::Top(args) => top::run(&mut connect::connect(table, environment, screen).await?.0, &args).await,
        Once::Ssh(args) => {
            let machine = ssh::check(&args)?;
            ssh::run(&mut connect::connect(table, environment, screen).await?.0, &args, &machine).await
        }
        Once::Version(args) if args.client => {
            version::client(&mut screen);
            Ok(())
        }
        Once::Version(_) => version::run(&mut connect::connect(table, environment, screen).await?.0).await,
        Once::Expire(args) => {
            let target = expire::check(&args)?;
            expire::run(&mut connect::connect(table, environment, screen).await?.0, &args, &target).await
        }
        Once::Extend(args) => {
            let repository = extend::check(&args, env)?;
            let context = &mut connect::connect(table, environment, screen).await?.0;
            extend::run(context, &args, repository.as_ref()).await
        }
        Once::Fail(args) => {
            let repository = fail::check(&args, env)?;
            let context = &mut connect::connect(table, environment, screen).await?.0;
            fail::run(context, &args, repository.as_ref()).await
        }
        Once::Refresh(args) => {
            refresh::run(&mut connect::connect(table, environment, screen).await?.0, &args).await
        }
        Once::Doctor(args) => {
            doctor::run(&mut connect::connect(table, environment, screen).await?.0, &args).await
        }
        Once::Try(args) => {
            let asked = trial::check(&args, env, &table).await?;
            trial::run(&mut connect::connect(table, environment, screen).await?.0, &args, &asked).await
        }
        Once::Init(mut args) => {
            args.stack.of_yard(env);
            let asked = init::check(&args, &table)?;
            let (mut context, store) = connect::connect(table, environment, screen).await?;
            init::run(&mut context, &asked, &store).await
        }
        Once::Setup(args) => github_app::run(&mut screen, github_app::check(args)?).await,
        Once::Plan(args) => {
            let policy = plan_explain::check_plan(&args, &table)?;
            plan_explain::plan(&mut connect::connect(table, environment, screen).await?.0, &policy).await
        }
        Once::Explain(args) => {
            let target = plan_explain::check_explain(&args, env, &table)?;
            plan_explain::explain(&mut connect::connect(table, environment, screen).await?.0, &args, &target)
                .await
        }
        Once::Simulate(args) => {
            let recorded = args.input.recorded(&table, &environment).await?;
            whatif::simulate(&mut screen, &args, &table, recorded)
        }
        Once::Recommend(args) => {
            let recorded = args.input.recorded(&table, &environment).await?;
            whatif::recommended(&mut screen, &args, &table, recorded)
        }
        Once::Debug(args) => {
            let target = debug::check(&args, env, &table)?;
            debug::run(&mut connect::connect(table, environment, screen).await?.0, &args, &target).await
        }
    }
}
