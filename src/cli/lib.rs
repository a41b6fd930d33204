//! The command line: parses the verb and its arguments, runs it, and maps its result to an exit code. Everything that
//! can be refused without the network is refused before anything is connected.

pub(crate) mod change;
pub(crate) mod common;
pub(crate) mod input;
pub(crate) mod look;
pub(crate) mod machine;
pub(crate) mod output;
pub(crate) mod pools;
pub(crate) mod session;
pub(crate) mod setup;
#[cfg(test)]
mod tests;
mod verbs;
pub(crate) mod why;
pub(crate) mod workflow;

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;

use runyard_core::model::{FieldError, TableName};
use runyard_operator::process::panics;

use crate::common::environment::Environment;
use crate::common::failure::{CliFailure, CliResult};
use crate::input::common::Common;
use crate::input::{completion, usage};
use crate::look::{verify, version};
use crate::machine::daemon;
#[cfg(feature = "local")]
use crate::machine::local_mode;
use crate::output::format::Format;
use crate::output::screen::{self, Screen};
use crate::session::verb::{Start, Verb as _};
use crate::session::{connect, yards};
use crate::setup::{config, github_app, init, trial};
use crate::verbs::{AnyVerb, Cli, Once, Process};
use crate::why::whatif;
use crate::workflow::{check_workflow, provision};

pub use crate::verbs::step::{StepFailed, StepPorts, step};

/// Runs the program and returns its exit code.
pub fn main() -> ExitCode {
    panics::end_the_program();
    let arguments: Vec<OsString> = std::env::args_os().collect();
    #[cfg(feature = "local")]
    if let [_, verb, ..] = arguments.as_slice()
        && verb == local_mode::STAND_IN_RUNNER
    {
        return stand_in_runner(&arguments[1..]);
    }
    if completion::asked(verbs::command, &arguments) {
        return ExitCode::SUCCESS;
    }
    let cli = match Cli::read(&arguments) {
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
    let ended = match <local_mode::RunnerArgs as clap::Parser>::try_parse_from(arguments) {
        Ok(args) => local_mode::stand_in_runner(&args),
        Err(error) => return not_understood(&error, Format::Text),
    };
    ended.unwrap_or_else(|failure| {
        screen::report(&failure, Format::Text);
        failure.exit.into()
    })
}

/// Runs the verb; long-running verbs create their own runtime.
fn begin(cli: Cli) -> CliResult<ExitCode> {
    let done = |()| ExitCode::SUCCESS;
    match cli.verb {
        #[cfg(feature = "local")]
        AnyVerb::Process(Process::Up(args)) => local_mode::up(args, cli.common.table).map(done),
        #[cfg(feature = "local")]
        AnyVerb::Process(Process::Demo) => local_mode::demo(cli.common.table).map(done),
        AnyVerb::Process(Process::Operator(args)) => daemon::operator(&args, cli.common.table).map(done),
        AnyVerb::Once(verb) => {
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

/// Prints help and versions to stdout; reports errors like every other problem.
fn not_understood(error: &clap::Error, format: Format) -> ExitCode {
    if !error.use_stderr() {
        // A closed pipe is ignored.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let failure = CliFailure::usage(usage::problem(error));
    if format == Format::Json || usage::better_told(error) {
        screen::report(&failure, format);
    } else {
        let _ = error.print();
    }
    failure.exit.into()
}

fn log_to_stderr(common: &Common, environment: &Environment) {
    let level = match common.verbose {
        // Retries of the SDK are not logged; their result is reported once, at the end.
        0 => "error,runyard=warn",
        1 => "warn,runyard=debug",
        _ => "debug",
    };
    let filter = environment.get("RUNYARD_LOG").unwrap_or(level);
    let filter = tracing_subscriber::EnvFilter::builder().parse_lossy(filter);
    let logging = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let logging = logging.with_target(false).log_internal_errors(false);
    // A second subscriber in one process is refused; the first one serves as well. Colours are the default, unless
    // NO_COLOR is set.
    let _ = if std::io::stderr().is_terminal() {
        logging.try_init()
    } else {
        logging.with_ansi(false).try_init()
    };
}

/// Runs `runyard man`: writes one page for each verb.
fn man(dir: &Path) -> CliResult {
    let made = std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(verbs::command(), dir));
    made.map_err(|error| {
        let fix = "name a directory that you may write to";
        CliFailure::error("DIR", dir.display().to_string(), error.to_string(), fix)
    })
}

/// The state common to all verbs, before anything is connected.
struct Begun {
    table: TableName,
    environment: Environment,
    screen: Screen,
}

impl Begun {
    fn start(&self) -> Start<'_> {
        Start { environment: &self.environment, table: &self.table }
    }

    /// Checks a verb, connects to the table, and runs it.
    async fn run(self, verb: &impl crate::session::verb::Verb) -> CliResult {
        let input = verb.check(&self.start())?;
        verb.run(&mut connect::connect(self.table, self.environment, self.screen).await?.0, input).await
    }

    /// The same for `provision`, which may go on without the table.
    async fn provision(self, args: &provision::ProvisionArgs, common: &Common) -> CliResult {
        let input = args.check(&self.start())?;
        let (environment, quiet) = (self.environment.clone(), self.screen.quiet);
        match connect::connect(self.table, self.environment, self.screen).await {
            Ok((mut context, _)) => args.run(&mut context, input).await,
            Err(failure) => {
                let mut screen = Screen::stdout(&common.output);
                screen.quiet = quiet;
                args.not_connected(&mut screen, &environment, failure)
            }
        }
    }
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
    let mut begun = Begun { table, environment, screen };
    match verb {
        Once::Provision(args) => begun.provision(args.as_ref(), common).await,
        Once::Release(args) => begun.run(&args).await,
        Once::Extend(args) => begun.run(&args).await,
        Once::Wait(args) => begun.run(&args).await,
        Once::CheckWorkflow(args) => check_workflow::run(&mut begun.screen, &args, &begun.table),
        Once::Get(args) => begun.run(&args).await,
        Once::Describe(args) => begun.run(&args).await,
        Once::Events(args) => begun.run(&args).await,
        Once::Logs(args) => begun.run(&args).await,
        Once::Top(args) => begun.run(&args).await,
        Once::Cost(args) => begun.run(args.as_ref()).await,
        Once::Verify(args) => verify::run(&mut begun.screen, &args),
        Once::History(args) => begun.run(&args).await,
        Once::Version(args) if args.client => {
            version::client(&mut begun.screen);
            Ok(())
        }
        Once::Version(args) => begun.run(&args).await,
        Once::Explain(args) => begun.run(&args).await,
        Once::Plan(args) => begun.run(&args).await,
        Once::Debug(args) => begun.run(&args).await,
        Once::Doctor(args) => begun.run(&args).await,
        Once::Simulate(args) => {
            let recorded = args.input.recorded(&begun.table, &begun.environment).await?;
            whatif::simulate(&mut begun.screen, &args, &begun.table, recorded)
        }
        Once::Recommend(args) => {
            let recorded = args.input.recorded(&begun.table, &begun.environment).await?;
            whatif::recommended(&mut begun.screen, &args, &begun.table, recorded)
        }
        Once::Apply(args) => begun.run(&args).await,
        Once::Diff(args) => begun.run(&args).await,
        Once::Set(args) => begun.run(&args).await,
        Once::Edit(args) => begun.run(&args).await,
        Once::Pause(args) => begun.run(&args.paused(true)).await,
        Once::Resume(args) => begun.run(&args.paused(false)).await,
        Once::Scale(args) => begun.run(&args).await,
        Once::Delete(args) => begun.run(&args).await,
        Once::Drain(args) => begun.run(&args).await,
        Once::Hold(args) => begun.run(&args).await,
        Once::ReleaseHold(args) => begun.run(&args).await,
        Once::Expire(args) => begun.run(&args).await,
        Once::Fail(args) => begun.run(&args).await,
        Once::Refresh(args) => begun.run(&args).await,
        Once::Ssh(args) => begun.run(&args).await,
        Once::Init(args) => {
            let input = init::check(&args, &begun.start())?;
            let Begun { table, environment, screen } = begun;
            let (mut context, store) = connect::connect(table, environment, screen).await?;
            init::run(&mut context, &input, &store).await
        }
        Once::Setup(args) => github_app::run(&mut begun.screen, github_app::check(args)?).await,
        Once::Try(args) => {
            let input = trial::check(&args, &begun.start()).await?;
            let Begun { table, environment, screen } = begun;
            trial::run(&mut connect::connect(table, environment, screen).await?.0, &args, &input).await
        }
        Once::Config(_) => unreachable!("it was answered before a yard was chosen"),
        Once::Man { dir } => man(&dir),
        Once::Completions { shell } => {
            begun.screen.text(&completion::script(shell));
            Ok(())
        }
    }
}
