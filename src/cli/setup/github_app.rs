//! `runyard setup github`: creates the GitHub App with GitHub's manifest flow. A person agrees in a browser; the App's
//! key is written to the requested files and nowhere else; then the installation and its permissions are checked.

mod key_files;
mod page;
#[cfg(all(test, feature = "local"))]
mod tests;

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::common::duration;
use crate::common::failure::{CliFailure, CliResult, Exit};
use crate::output::screen::Screen;
use crate::session::polling::Interrupts;
use key_files::KeyFiles;
use runyard_core::model::FieldError;
use runyard_core::ports::{Clock, Entropy, GitHubError};
use runyard_operator::github::{
    ApiUrl, AppKey, AppRegistration, AppWish, DEFAULT_DEADLINE, Installed, NewApp, lacking,
};
use runyard_operator::process::clock::{SystemClock, SystemEntropy};

/// The interval at which GitHub is asked whether the App is installed.
const LOOK: Duration = Duration::from_secs(2);
/// The longest allowed wait for the person.
const LONGEST: Duration = Duration::from_hours(1);

/// Sets up what the yard needs elsewhere.
#[derive(Debug, Args)]
pub(crate) struct SetupArgs {
    #[command(subcommand)]
    what: SetupWhat,
}

#[derive(Debug, Subcommand)]
enum SetupWhat {
    /// Create the GitHub App in a browser, store its key, check its installation
    Github(Box<GithubArgs>),
}

/// Makes the GitHub App.
#[derive(Debug, Args)]
#[command(after_help = "\
It prints an address of this machine; open it in a browser here, or through `ssh -L PORT:127.0.0.1:PORT`. GitHub shows \
what the App may do, and a click makes it. The key is written before anything else happens, readable by you alone; nothing \
that exists is overwritten.

Examples:
  runyard setup github --organization acme --key-file app.pem
  runyard setup github --organization acme --scope organization \\
    --secret-manifest secret.yaml --namespace ci")]
pub(crate) struct GithubArgs {
    /// Organisation that owns the App [default: your account]
    #[arg(long, value_name = "ORG", value_parser = login)]
    organization: Option<String>,
    /// Scope of runner registration: the operator's `github.scope`
    #[arg(long, value_enum, default_value = "repository")]
    scope: SetupScope,
    /// Name of the App, unique on GitHub [default: runyard-ORG]
    #[arg(long)]
    name: Option<String>,
    /// New file for the private key
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// New file for a Kubernetes Secret with the private key, as the chart takes it
    #[arg(long, value_name = "FILE")]
    secret_manifest: Option<PathBuf>,
    /// Namespace of the Secret
    #[arg(long, default_value = "runyard")]
    namespace: String,
    /// Name of the Secret: the chart's `github.existingSecret`
    #[arg(long, default_value = "runyard-github")]
    secret_name: String,
    /// API address of GitHub; GitHub Enterprise Server: https://HOST/api/v3
    #[arg(long, value_name = "URL", default_value = "https://api.github.com")]
    api_url: String,
    /// How long to wait for the browser, and for the installation
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = patience)]
    timeout: Duration,
}

/// `github.scope`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum SetupScope {
    Repository,
    Organization,
}

fn patience(text: &str) -> Result<Duration, FieldError> {
    duration::parse(text, LONGEST)
}

fn login(text: &str) -> Result<String, FieldError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if text.is_empty() || text.len() > 39 || !text.chars().all(plain) {
        return Err(FieldError::new(
            "organization",
            text,
            "is no login of GitHub's",
            "write it as in its address",
        ));
    }
    Ok(text.to_owned())
}

/// The checked arguments; the files for the key are open.
pub(crate) struct GithubSetup {
    api: ApiUrl,
    name: String,
    organization: Option<String>,
    organization_runners: bool,
    files: KeyFiles,
    timeout: Duration,
}

/// Checks all that can be checked without the network.
pub(crate) fn check(args: SetupArgs) -> CliResult<GithubSetup> {
    let SetupWhat::Github(args) = args.what;
    let usage = |field: &str, value: &str, message: &str, fix: &str| {
        Err(CliFailure::usage(FieldError::new(field, value, message, fix)))
    };
    let api = match ApiUrl::parse(&args.api_url) {
        Ok(api) => api,
        Err(error) => return usage("--api-url", &args.api_url, &error.to_string(), "give GitHub's API"),
    };
    let organization_runners = args.scope == SetupScope::Organization;
    if organization_runners && args.organization.is_none() {
        return usage(
            "--scope",
            "organization",
            "a person's account has no runners of its own",
            "give --organization",
        );
    }
    let default =
        || args.organization.as_ref().map_or_else(|| "runyard".to_owned(), |org| format!("runyard-{org}"));
    let name = args.name.clone().unwrap_or_else(default);
    if name.is_empty() || name.chars().count() > 34 {
        return usage("--name", &name, "GitHub takes 1 to 34 characters", "give a shorter --name");
    }
    if args.key_file.is_none() && args.secret_manifest.is_none() {
        return usage(
            "--key-file",
            "",
            "the key has no place to go",
            "give --key-file, --secret-manifest or both",
        );
    }
    let files = KeyFiles::create(args.key_file, args.secret_manifest, &args.namespace, &args.secret_name)?;
    Ok(GithubSetup {
        api,
        name,
        organization: args.organization,
        organization_runners,
        files,
        timeout: args.timeout,
    })
}

/// Runs the verb.
pub(crate) async fn run(screen: &mut Screen, setup: GithubSetup) -> CliResult {
    let mut interrupts = Interrupts::listen()?;
    tokio::select! {
        biased;
        done = make(screen, setup) => done,
        caught = interrupts.next() => {
            let fix = "run the command again; an App that was made already is on your settings page";
            Err(CliFailure::error("setup", "", format!("ended by {}", caught.name()), fix).exiting(Exit::Signal(caught)))
        }
    }
}

async fn make(screen: &mut Screen, setup: GithubSetup) -> CliResult {
    let GithubSetup { api, name, organization, organization_runners, files, timeout } = setup;
    let clock = SystemClock::new();
    let github =
        AppRegistration::new(api, DEFAULT_DEADLINE, Arc::new(move || clock.now())).map_err(|error| {
            CliFailure::error("--api-url", "", error.to_string(), "check the root certificates")
        })?;
    let secret = || format!("{}{}", SystemEntropy.hex(), SystemEntropy.hex());
    let (path, state) = (secret(), secret());
    let page = page::Page::open(&path, &state).await?;
    let wish = AppWish {
        name: &name,
        organization: organization.as_deref(),
        organization_runners,
        redirect_url: &page.redirect_url(),
        state: &state,
    };
    let (address, manifest) = github.proposal(&wish);
    page.show(&address, &manifest);
    tell(
        screen,
        format!("Open this page in a browser on this machine, and agree on GitHub's page:\n  {}", page.url()),
    );
    let code = tokio::time::timeout(timeout, page.code()).await.map_err(|_| {
        let fix = "run the command again and open the page it prints";
        CliFailure::error("browser", "", format!("nobody came back within {timeout:?}"), fix)
            .exiting(Exit::TimedOut)
    })?;
    let app = github.convert(&code).await.map_err(|error| unmade(&error))?;
    let key = AppKey::from_pem(app.id.to_string(), app.pem.as_bytes());
    // The first step after the App is created: GitHub returns the key only once.
    let kept = files.keep(&app.pem)?;
    let install = format!("{}/installations/new", app.page.trim_end_matches('/'));
    page.made(&install);
    tell(
        screen,
        format!("The App {} is made (id {}); its key is in {}", app.name, app.id, kept.join(" and ")),
    );
    tell(screen, format!("Install it, for all repositories or for those that borrow machines:\n  {install}"));
    let key = key
        .map_err(|error| CliFailure::error("key", "", error.to_string(), "download one on the App's page"))?;
    let installed = installation(&github, &key, timeout, &install).await?;
    report(screen, &app, &installed, organization_runners, &kept, &install)
}

/// Prints a line that a person needs even if a program reads the output.
fn tell(screen: &mut Screen, line: String) {
    if screen.format.for_programs() {
        // A closed stderr is ignored.
        let _ = writeln!(std::io::stderr(), "{line}");
    } else {
        screen.say(line);
    }
}

fn unmade(error: &GitHubError) -> CliFailure {
    let fix = match error {
        GitHubError::NotFound(_) => "the code is spent or older than an hour: run the command again",
        GitHubError::Unreachable(_)
        | GitHubError::Throttled { .. }
        | GitHubError::Deferred { .. }
        | GitHubError::Denied(_)
        | GitHubError::NameTaken(_)
        | GitHubError::Busy(_)
        | GitHubError::Invalid(_) => {
            "delete the App on your settings page, for its key is lost, and run the command again"
        }
    };
    CliFailure::error("GitHub", "", format!("the App cannot be had: {error}"), fix)
}

/// Waits until the App is installed somewhere.
async fn installation(
    github: &AppRegistration,
    key: &AppKey,
    timeout: Duration,
    install: &str,
) -> CliResult<Installed> {
    let mut last = None;
    let looking = async {
        loop {
            match github.installations(key).await {
                Ok(all) => match all.into_iter().next() {
                    Some(installed) => return installed,
                    None => last = None,
                },
                // A new App may not be visible everywhere at once.
                Err(error) => last = Some(error),
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(timeout, looking).await.map_err(|_| {
        let why = last.map_or_else(String::new, |error| format!("; GitHub said: {error}"));
        let message = format!("the App is made but not installed within {timeout:?}{why}");
        let fix = format!("install it at {install}, then check with `runyard doctor --config FILE`");
        CliFailure::error("installation", "", message, fix).exiting(Exit::TimedOut)
    })
}

fn report(
    screen: &mut Screen,
    app: &NewApp,
    installed: &Installed,
    organization_runners: bool,
    kept: &[String],
    install: &str,
) -> CliResult {
    let missing = lacking(organization_runners, &installed.permissions);
    if !missing.is_empty() {
        let fix = format!("grant it at {install}, or on the App's page under Permissions");
        let message = format!("the App lacks {} there", missing.join(" and "));
        return Err(CliFailure::error("permissions", installed.account.clone(), message, fix));
    }
    let scope = if organization_runners { "organization" } else { "repository" };
    screen.say(format!(
        "It is installed in {} with the permissions it needs. The operator's file:",
        installed.account
    ));
    screen.say(format!("  [github]\n  app_id = \"{}\"\n  scope = \"{scope}\"", app.id));
    screen.say("  app_key_file = the place where the operator finds the key (the chart: its Secret)");
    screen.document(&json!({
        "appId": app.id.to_string(), "name": app.name, "account": installed.account, "scope": scope, "files": kept,
        "installUrl": install,
    }));
    Ok(())
}
