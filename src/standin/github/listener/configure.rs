//! Registers and removes a runner: `config.sh` and `config.sh remove`.

use std::path::Path;

use super::super::behaviour::PackageBehaviour;
use super::super::http::wire;
use super::super::settings_file::{RunnerConfig, split};
use super::args::{Configure, Remove};
use super::calls::{CallError, Calls};
use super::files::{self, Identity};

/// Registers the runner and stores its identity.
pub(super) async fn configure(
    root: &Path,
    options: Configure,
    behaviour: &PackageBehaviour,
) -> Result<(), String> {
    if Identity::load(root)?.is_some() {
        return Err(
            "Cannot configure the runner because it is already configured. To reconfigure the runner, run \
                    './config.sh remove' first."
                .to_owned(),
        );
    }
    let (server, scope) = split(&options.url)?;
    let name = options.name.unwrap_or_else(host_name);
    let calls = Calls::anonymous(&server)?;
    files::make_key(root)?;
    let registered = calls
        .register(&wire::Register {
            token: options.token,
            scope: scope.clone(),
            name: name.clone(),
            labels: options.labels,
            no_default_labels: options.no_default_labels,
            replace: options.replace,
            ephemeral: options.ephemeral,
            version: behaviour.version.clone(),
        })
        .await
        .map_err(|error| explain(&error, &name))?;
    let config = RunnerConfig {
        url: server,
        scope,
        runner_id: registered.runner_id,
        name,
        ephemeral: options.ephemeral,
        work_folder: options.work,
        admin_flow: registered.admin_flow,
    };
    let identity = Identity { config, credential: registered.credential };
    println!("\u{221a} Connected to GitHub\n");
    println!("\u{221a} Runner successfully added");
    identity.store(root)?;
    println!("\u{221a} Settings Saved.");
    identity.write_service(root)
}

/// How often the admin flow tries a call.
const TRIES: u32 = 3;

/// Removes the runner here and on the server. A runner that the server does not know any more is an error by the admin
/// flow, which reports a 404 at once (actions/runner, `RunnerDotcomServer.cs`), and a success by the older way.
pub(super) async fn remove(root: &Path, options: Remove, behaviour: &PackageBehaviour) -> Result<(), String> {
    if options.local {
        return files::remove(root);
    }
    let Some(identity) = Identity::load(root)? else {
        println!(
            "Cannot connect to server, because config files are missing. Skipping removing runner from the server."
        );
        return files::remove(root);
    };
    let token = options.token.ok_or("Invalid configuration provided for token: give --token.")?;
    let config = identity.config;
    let body = wire::Deregister { token, scope: config.scope.clone(), runner_id: config.runner_id };
    let calls = Calls::anonymous(&config.url)?;
    let tries = if config.admin_flow { TRIES } else { 1 };
    for again in (0..tries).rev() {
        match calls.deregister(&body).await {
            Ok(()) => break,
            Err(CallError::NotFound) if !config.admin_flow => {
                println!("Does not exist. Skipping Removing runner from the server");
                break;
            }
            Err(error) => {
                if config.admin_flow {
                    eprintln!("{}", by_admin_flow(&error, &config));
                }
                if again == 0 || error == CallError::NotFound {
                    return Err(format!("Failed: Removing runner from the server\n{error}"));
                }
                tokio::time::sleep(behaviour.retry).await;
            }
        }
    }
    println!("\n\u{221a} Runner removed successfully");
    files::remove(root)
}

/// Formats the line that the admin flow writes for a response that is no success.
fn by_admin_flow(error: &CallError, config: &RunnerConfig) -> String {
    let code = match error {
        CallError::Unauthorized => "Unauthorized",
        CallError::NotFound => "NotFound",
        CallError::Conflict(_) => "Conflict",
        CallError::Gone => "Gone",
        CallError::Busy(_) => "UnprocessableEntity",
        CallError::Deprecated(_) => "Forbidden",
        CallError::Refused(_) => "BadRequest",
        CallError::NoToken(_) => "ServiceUnavailable",
        CallError::Unreachable(text) => return text.clone(),
    };
    let address = format!("{}/{}/actions/runners/{}", config.url, config.scope, config.runner_id);
    format!("Http response code: {code} from 'Delete {address}' (Request Id: 0)\n{error}")
}

fn explain(error: &CallError, name: &str) -> String {
    match error {
        CallError::Conflict(_) => format!("A runner exists with the same name {name}."),
        CallError::Unauthorized => {
            "Http response code: NotFound from 'POST /actions/runner-registration': the token is not valid here".to_owned()
        }
        CallError::NotFound
        | CallError::Gone
        | CallError::Busy(_)
        | CallError::Deprecated(_)
        | CallError::NoToken(_)
        | CallError::Refused(_)
        | CallError::Unreachable(_) => error.to_string(),
    }
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "runner".to_owned() } else { name.to_owned() }
}
