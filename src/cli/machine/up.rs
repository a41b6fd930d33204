//! `runyard up`: the whole yard on this machine, kept in a directory. `kill -9` loses nothing: the next `up` finds the
//! table, its requests and its machines again. Ctrl-C ends the machines, so that no process remains (a second one kills
//! them), even if the output has no reader any more, and so does a terminal that closes; at the next start the records
//! show it, and requests that still need machines get new ones.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tokio::net::TcpListener;

use super::opened_environment::{self, LocalModeError, OpenedEnvironment};
use runyard_operator::in_process::local_options::LISTEN;
use runyard_operator::wire;
use runyard_operator::wire::WireError;
use runyard_standin::local_environment::LocalEnvironmentError;
use runyard_standin::{port, say};

/// Runs local mode until a signal stops it.
///
/// # Errors
/// The obstacle, with its fix; or a second signal.
pub(super) async fn run(
    dir: Option<PathBuf>,
    environment: &BTreeMap<String, String>,
) -> Result<(), LocalModeError> {
    let stop = wire::on_signals()?;
    let dir = match dir {
        Some(dir) => {
            std::path::absolute(&dir).map_err(|source| LocalEnvironmentError::Io { path: dir, source })?
        }
        None => {
            runyard_operator::in_process::local_options::directory(environment).map_err(WireError::from)?
        }
    };
    let opened = opened_environment::open(dir, environment, opened_environment::classes()).await?;
    let env_file = opened.local.write_environment(&opened.config.table)?;
    let listener = admin_port(&opened, environment).await?;
    let page =
        listener.local_addr().map_err(|error| WireError::System("the admin port has no address", error))?;
    say(greeting(&opened, &env_file, page));
    let OpenedEnvironment { local, wired, machines, .. } = opened;
    let served = wire::serve_on(listener, wired, stop.clone()).await;
    say("Ending the machines …");
    tokio::select! {
        biased;
        () = stop.at_once.cancelled() => {
            // An impatient second signal still leaves no process behind.
            machines.kill_all().await;
            return Err(served.err().unwrap_or(WireError::Aborted).into());
        }
        () = machines.end_all() => local.close().await,
    }
    Ok(served?)
}

/// Binds the admin port: the configured one, else the port stored in the directory, so that the address of the status
/// page stays the same.
async fn admin_port(
    opened: &OpenedEnvironment,
    environment: &BTreeMap<String, String>,
) -> Result<TcpListener, LocalModeError> {
    if environment.contains_key(LISTEN) {
        return Ok(wire::listener(&opened.config).await?);
    }
    let remembered = port::listen(&opened.local.dir.join("status.port")).await;
    Ok(remembered.map_err(LocalEnvironmentError::from)?)
}

fn greeting(opened: &OpenedEnvironment, env_file: &Path, page: SocketAddr) -> String {
    let (local, table) = (&opened.local, &opened.config.table);
    let endpoint = local.engine.endpoint();
    let class = opened.classes.first().map_or("small", String::as_str);
    let mut text = format!(
        "Runyard is up in {dir}. Ctrl-C ends it and its machines; the table stays.\n\n\
         \x20 table    {table} at {endpoint}\n\
         \x20 classes  {classes}\n",
        dir = local.dir.display(),
        classes = opened.classes.join(", "),
    );
    if let Some(standin) = &local.standin {
        text.push_str(&format!("  GitHub   a stand-in at {}\n", standin.url()));
    }
    text.push_str(&format!("  status   http://{page}/\n"));
    text.push_str(&format!("\nIn another terminal:\n\n\x20 . {}\n", quoted(env_file)));
    if let (Some(standin), Some(token)) =
        (&local.standin, local.standin.as_ref().and_then(|s| s.token_file()))
    {
        text.push_str(&format!(
            "  curl -s {}/_workflow/runs -H \"Authorization: Bearer $(cat {})\" \\\n\
             \x20   -d '{{\"repository\":\"demo/app\",\"run_id\":41,\"jobs\":[{{\"name\":\"hello\",\
             \"runs_on\":[\"41-{class}\"],\"steps\":[\"echo hello\"]}}]}}'    # a job whose label asks for its machine\n",
            standin.url(),
            quoted(&token),
        ));
    }
    text.push_str(&format!(
        "\x20 runyard get instances\n\
         \x20 runyard provision --run-id 1 --repository demo/app --class {class} --count 2 --wait      # two at once\n\
         \x20 runyard release --run-id 1 --repository demo/app --wait\n\
         \x20 runyard --yard {dir} get pools      # or so, and the shell keeps its own AWS environment\n\
         \x20 aws dynamodb scan --table-name {table} --endpoint-url {endpoint}\n",
        dir = quoted(&local.dir),
    ));
    text
}

/// Quotes a path for a shell.
fn quoted(path: &std::path::Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
    if text.chars().all(plain) { text.into_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_quoted_where_a_shell_would_split_or_read_it() {
        for (path, shell) in [("/a/b-c.d", "/a/b-c.d"), ("/a b", "'/a b'"), ("/a'b$c", r"'/a'\''b$c'")] {
            assert_eq!(quoted(std::path::Path::new(path)), shell);
        }
    }
}
