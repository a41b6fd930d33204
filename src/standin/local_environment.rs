//! A data directory and its services: the table, a stand-in GitHub unless a real one is configured, and the machines.
//! One process holds it at a time; the next one finds everything as it was, on the same ports.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Engine, EngineError, REGION, SECRET_KEY};
use crate::files;
use crate::github::{self, PackageBehaviour, StandIn};
use crate::model::TableName;
use crate::port::{self, PortError};
use crate::ports::Clock;

/// The options of a local environment.
#[derive(Clone, Debug)]
pub struct LocalEnvironmentOptions {
    /// The data directory, as an absolute path.
    pub dir: PathBuf,
    /// The `runyard` executable, as an absolute path: the stand-in's runners use it, too.
    pub executable: PathBuf,
    /// Whether to run a stand-in GitHub, because no real one is configured.
    pub stand_in: bool,
    /// The behaviour of its runner package.
    pub package: PackageBehaviour,
}

/// Why a data directory cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum LocalEnvironmentError {
    /// Another process serves it.
    #[error("{} is served by another `runyard` (pid {pid}): stop that one, or use another --dir", dir.display())]
    Locked {
        /// The directory.
        dir: PathBuf,
        /// The pid of that process, as far as it is known.
        pid: String,
    },
    /// No engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// No port for the stand-in GitHub.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A file or the stand-in GitHub failed.
    #[error("{} cannot be used: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// A data directory that is being served.
pub struct LocalEnvironment {
    /// The directory.
    pub dir: PathBuf,
    /// The table's engine.
    pub engine: Engine,
    /// The stand-in GitHub, if it is wanted.
    pub standin: Option<StandIn>,
    /// Held until the end.
    _lock: File,
}

impl LocalEnvironment {
    /// Opens the directory, creating it if needed, and serves its contents.
    ///
    /// # Errors
    /// Another process serves it, a remembered port is taken, or a file cannot be used.
    pub async fn open(
        options: LocalEnvironmentOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, LocalEnvironmentError> {
        let LocalEnvironmentOptions { dir, executable, stand_in, package } = options;
        let lock = lock(&dir)?;
        let engine = Engine::start(&dir).await?;
        let standin =
            if stand_in { Some(serve_github(&dir, executable, package, clock).await?) } else { None };
        Ok(Self { dir, engine, standin, _lock: lock })
    }

    /// Returns the environment variables that an AWS client needs to reach the table.
    pub fn environment(&self, table: &TableName) -> BTreeMap<String, String> {
        let entries = [
            ("AWS_ENDPOINT_URL", self.engine.endpoint()),
            ("AWS_REGION", REGION.to_owned()),
            ("AWS_DEFAULT_REGION", REGION.to_owned()),
            ("AWS_ACCESS_KEY_ID", self.engine.key().to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.to_owned()),
            ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
            ("RUNYARD_TABLE", table.to_string()),
        ];
        entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Writes the file `env`, which a shell reads to reach the table.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write_environment(&self, table: &TableName) -> Result<PathBuf, LocalEnvironmentError> {
        let path = self.dir.join("env");
        let mut text = String::from("# Read this into a shell: . ./env\n");
        text.push_str("unset AWS_PROFILE AWS_SESSION_TOKEN AWS_ENDPOINT_URL_DYNAMODB\n");
        text.push_str("unset RUNYARD_STAND_IN_URL RUNYARD_STAND_IN_TOKEN\n");
        let mut entries = self.environment(table);
        // The queues are in the operator's process: no verb should look for them.
        entries.insert("RUNYARD_QUEUE__KIND".into(), "memory".into());
        // Not the names of the operator's settings: another operator of this shell is to have a GitHub of its own.
        if let Some(standin) = &self.standin {
            entries.insert("RUNYARD_STAND_IN_URL".into(), standin.url());
            entries.insert("RUNYARD_STAND_IN_TOKEN".into(), standin.api_token().to_owned());
        }
        for (name, value) in entries {
            text.push_str(&format!("export {name}={value}\n"));
        }
        match files::replace(&path, text.as_bytes()) {
            Ok(()) => Ok(path),
            Err(source) => Err(LocalEnvironmentError::Io { path, source }),
        }
    }

    /// Stops serving.
    pub async fn close(self) {
        if let Some(standin) = self.standin {
            // A runner that holds its request open must not block the end.
            let stopped = tokio::time::timeout(Duration::from_secs(2), standin.stop()).await;
            if let Ok(Err(error)) = stopped {
                tracing::warn!(%error, "the stand-in GitHub failed");
            }
        }
        self.engine.stop().await;
    }
}

fn lock(dir: &Path) -> Result<File, LocalEnvironmentError> {
    let path = dir.join("lock");
    let failed = |source| LocalEnvironmentError::Io { path: path.clone(), source };
    files::close_dir(dir, &path)
        .map_err(|source| LocalEnvironmentError::Io { path: dir.to_owned(), source })?;
    let mut options = File::options();
    let mut file = options.read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
    match files::lock(&file) {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let pid = std::fs::read_to_string(&path).unwrap_or_default().trim().to_owned();
            return Err(LocalEnvironmentError::Locked { dir: dir.to_owned(), pid });
        }
        Err(TryLockError::Error(source)) => return Err(failed(source)),
    }
    // For a process that is refused, so that it can name the holder.
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(failed)?;
    Ok(file)
}

async fn serve_github(
    dir: &Path,
    executable: PathBuf,
    package: PackageBehaviour,
    clock: Arc<dyn Clock>,
) -> Result<StandIn, LocalEnvironmentError> {
    let dir = dir.join("github");
    let failed = |source| LocalEnvironmentError::Io { path: dir.clone(), source };
    files::private_dir(&dir).map_err(failed)?;
    let listener = port::listen(&dir.join("api.port")).await?;
    let clock: github::Clock = Arc::new(move || clock.now());
    let behaviour = github::Behaviour { package, ..github::Behaviour::default() };
    let settings = github::Settings { listener, dir: Some(dir.clone()), executable, clock, behaviour };
    StandIn::start(settings).await.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use runyard_fakes::ManualClock;

    fn options(dir: &Path) -> LocalEnvironmentOptions {
        LocalEnvironmentOptions {
            dir: dir.to_owned(),
            executable: "/bin/true".into(),
            stand_in: true,
            package: PackageBehaviour::default(),
        }
    }

    fn clock() -> Arc<dyn Clock> {
        Arc::new(ManualClock::new(jiff::Timestamp::UNIX_EPOCH))
    }

    #[tokio::test]
    async fn a_directory_is_served_once_and_on_the_same_ports_again() {
        let dir = tempfile::tempdir().unwrap();
        let local = LocalEnvironment::open(options(dir.path()), clock()).await.unwrap();
        let refused =
            LocalEnvironment::open(options(dir.path()), clock()).await.err().expect("refused").to_string();
        assert!(refused.contains(&std::process::id().to_string()) && refused.contains("--dir"), "{refused}");
        let addresses =
            |local: &LocalEnvironment| (local.engine.endpoint(), local.standin.as_ref().unwrap().url());
        let before = addresses(&local);
        local.close().await;
        let local = LocalEnvironment::open(options(dir.path()), clock()).await.unwrap();
        assert_eq!(addresses(&local), before);
        local.close().await;
    }

    #[tokio::test]
    async fn the_environment_file_says_where_the_table_is() {
        let dir = tempfile::tempdir().unwrap();
        let local = LocalEnvironment::open(options(dir.path()), clock()).await.unwrap();
        let file = local.write_environment(&TableName::parse("yard").unwrap()).unwrap();
        let text = std::fs::read_to_string(file).unwrap();
        assert!(text.contains(&format!("export AWS_ENDPOINT_URL={}\n", local.engine.endpoint())), "{text}");
        assert!(text.contains("export RUNYARD_TABLE=yard\n"), "{text}");
        let standin = local.standin.as_ref().unwrap();
        assert!(text.contains(&format!("export RUNYARD_STAND_IN_URL={}\n", standin.url())), "{text}");
        assert!(text.contains(&format!("export RUNYARD_STAND_IN_TOKEN={}\n", standin.api_token())), "{text}");
        local.close().await;
    }
}
