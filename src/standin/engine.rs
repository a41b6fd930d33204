//! The table of local mode: an embedded DynamoDB-compatible engine on a SQLite file of the data directory, served on
//! loopback from this process, so that the operator, the agents, the command line and any DynamoDB client use the same
//! code path as on AWS.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use dynoxide::Database;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::door::Door;
use crate::files;
use crate::port::{self, PortError};
use rand::TryRngCore as _;
use rand::rngs::OsRng;

/// The region of local mode: the engine accepts any, but clients need one.
pub const REGION: &str = "local";
/// The secret key of local mode: signatures are not checked, the access key is the secret.
pub const SECRET_KEY: &str = "local";

/// The table's file in the data directory.
pub const FILE: &str = "table.sqlite";
const PORT: &str = "table.port";
const KEY: &str = "table.key";

/// Why the engine is not available.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The file cannot be used.
    #[error("the table's file {} cannot be opened: {reason}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The cause.
        reason: String,
    },
    /// The key of the data directory cannot be read or kept.
    #[error("the table's key {} cannot be used: {source}", file.display())]
    Key {
        /// The file that holds it.
        file: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

/// The running engine. Dropping it leaves it running; the data survives `kill -9` either way.
pub struct Engine {
    address: SocketAddr,
    key: String,
    stop: CancellationToken,
    server: JoinHandle<std::io::Result<()>>,
}

impl Engine {
    /// Serves the table of a data directory, on the port that the directory remembers.
    ///
    /// # Errors
    /// The port is taken by another program, or the file or its key cannot be used.
    pub async fn start(dir: &Path) -> Result<Self, EngineError> {
        let listener = port::listen(&dir.join(PORT)).await?;
        let file = dir.join(FILE);
        let unusable = |reason: String| EngineError::File { file: file.clone(), reason };
        let shared = shared(&file).map_err(|error| unusable(error.to_string()))?;
        let database = Database::new(&shared).map_err(|error| unusable(error.to_string()))?;
        // As SQLite advises for a write-ahead log: the disk is waited for at checkpoints, not at every commit. Nothing
        // is lost when this process dies; when the power fails, the machines are gone too.
        database.disable_bulk_loading().map_err(|error| unusable(error.to_string()))?;
        number_changes(&file).map_err(|error| unusable(error.to_string()))?;
        remember_more(&shared).map_err(|error| unusable(error.to_string()))?;
        let address = listener.local_addr().map_err(|error| unusable(error.to_string()))?;
        let stop = CancellationToken::new();
        let key = key(&dir.join(KEY))?;
        let router = Door::new(database, key.clone()).router();
        let served = axum::serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
        let server = tokio::spawn(served.into_future());
        Ok(Self { address, key, stop, server })
    }

    /// Returns the access key that the table requires. A secret: its holder can run programs as this user.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the value of `AWS_ENDPOINT_URL_DYNAMODB`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Lets running requests finish for a moment, then ends.
    pub async fn stop(mut self) {
        self.stop.cancel();
        // A client that keeps a request open must not block the end.
        let served = tokio::time::timeout(std::time::Duration::from_secs(2), &mut self.server).await;
        if served.is_err() {
            self.server.abort();
        }
    }
}

/// Returns the directory's key, which is created at its first start.
fn key(file: &Path) -> Result<String, EngineError> {
    let unusable = |source| EngineError::Key { file: file.to_owned(), source };
    match std::fs::read_to_string(file) {
        Ok(key) if !key.trim().is_empty() => return Ok(key.trim().to_owned()),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(unusable(error)),
    }
    let mut key = [0_u8; 16];
    OsRng.try_fill_bytes(&mut key).map_err(|error| unusable(std::io::Error::other(error)))?;
    let key = format!("{:032x}", u128::from_be_bytes(key));
    files::replace(file, key.as_bytes()).map_err(unusable)?;
    Ok(key)
}

/// Returns the file's name for connections of this process that share one page cache.
fn shared(file: &Path) -> std::io::Result<String> {
    let absolute = std::path::absolute(file)?;
    let odd = || std::io::Error::other("its path cannot be written as a URI");
    let mut uri = reqwest::Url::from_file_path(&absolute).map_err(|()| odd())?;
    uri.set_query(Some("cache=shared"));
    Ok(uri.into())
}

/// Keeps the pages of some ten thousand machines in memory. The engine keeps 2 MB and offers more only together with
/// commits that a power cut can corrupt; but in a shared cache the setting of one connection applies to the other.
fn remember_more(shared: &str) -> rusqlite::Result<()> {
    let settings = "PRAGMA synchronous = NORMAL; PRAGMA cache_size = -64000; PRAGMA mmap_size = 268435456";
    rusqlite::Connection::open(shared)?.execute_batch(settings)
}

/// Indexes the changes of the table by their numbers. The engine stores a number as text and looks for the last one at
/// each write, and for those after it at each read of the stream: without this index it reads every change of the last
/// 24 hours each time.
fn number_changes(file: &Path) -> rusqlite::Result<()> {
    rusqlite::Connection::open(file)?.execute_batch(
        "CREATE INDEX IF NOT EXISTS runyard_changes
         ON _stream_records (table_name, CAST(sequence_number AS INTEGER))",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn call(engine: &Engine, operation: &str, body: &str) -> String {
        let response = reqwest::Client::new()
            .post(engine.endpoint())
            .header("x-amz-target", format!("DynamoDB_20120810.{operation}"))
            .header("content-type", "application/x-amz-json-1.0")
            .header(
                "authorization",
                format!(
                    "AWS4-HMAC-SHA256 Credential={}/20260101/local/dynamodb/aws4_request, \
                     SignedHeaders=host;x-amz-date, Signature=00",
                    engine.key()
                ),
            )
            .header("x-amz-date", "20260101T000000Z")
            .body(body.to_owned());
        response.send().await.unwrap().text().await.unwrap()
    }

    #[tokio::test]
    async fn data_and_port_are_there_again_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::start(dir.path()).await.unwrap();
        let (before, key) = (engine.endpoint(), engine.key().to_owned());
        let table = r#"{"TableName":"yard","BillingMode":"PAY_PER_REQUEST",
            "AttributeDefinitions":[{"AttributeName":"pk","AttributeType":"S"}],
            "KeySchema":[{"AttributeName":"pk","KeyType":"HASH"}]}"#;
        let made = call(&engine, "CreateTable", table).await;
        assert!(made.contains("yard"), "{made}");
        call(&engine, "PutItem", r#"{"TableName":"yard","Item":{"pk":{"S":"kept"}}}"#).await;
        engine.stop().await;
        let engine = Engine::start(dir.path()).await.unwrap();
        assert_eq!((engine.endpoint(), engine.key()), (before, key.as_str()));
        let found = call(&engine, "GetItem", r#"{"TableName":"yard","Key":{"pk":{"S":"kept"}}}"#).await;
        assert!(found.contains("kept"), "{found}");
        engine.stop().await;
    }

    #[tokio::test]
    async fn its_connection_keeps_more_than_two_megabytes_wherever_its_file_lies() {
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join("a yard? #1, 50% more");
        std::fs::create_dir(&odd).unwrap();
        let engine = Engine::start(&odd).await.unwrap();
        assert!(odd.join(FILE).exists());
        let other = rusqlite::Connection::open(shared(&odd.join(FILE)).unwrap()).unwrap();
        let is = |pragma| other.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).unwrap();
        // Both as the engine's connection has them; how it waits for the disk is set per connection.
        assert_eq!((is("cache_size"), is("mmap_size")), (-64_000, 268_435_456));
        engine.stop().await;
    }

    /// Uses the engine's own queries, word for word: with another wording they would read every change again.
    #[tokio::test]
    async fn changes_are_found_by_their_number() {
        let dir = tempfile::tempdir().unwrap();
        Engine::start(dir.path()).await.unwrap().stop().await;
        let database = rusqlite::Connection::open(dir.path().join(FILE)).unwrap();
        for query in [
            "SELECT COALESCE(MAX(CAST(sequence_number AS INTEGER)), 0) + 1 FROM _stream_records WHERE table_name = ?1",
            "SELECT event_name FROM _stream_records
             WHERE table_name = ?1 AND shard_id = ?2 AND CAST(sequence_number AS INTEGER) > ?3
             ORDER BY CAST(sequence_number AS INTEGER) ASC LIMIT ?4",
        ] {
            let mut plan = database.prepare(&format!("EXPLAIN QUERY PLAN {query}")).unwrap();
            let given = vec![1; plan.parameter_count()];
            let steps =
                plan.query_map(rusqlite::params_from_iter(given), |row| row.get::<_, String>("detail"));
            let steps: Vec<String> = steps.unwrap().map(Result::unwrap).collect();
            assert!(steps.iter().any(|step| step.contains("INDEX runyard_changes")), "{steps:?}");
            assert!(!steps.iter().any(|step| step.contains("SCAN") || step.contains("B-TREE")), "{steps:?}");
        }
    }

    #[tokio::test]
    async fn a_file_that_is_no_database_is_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), "no database, but long enough to be looked at".repeat(50))
            .unwrap();
        let error = Engine::start(dir.path()).await.err().unwrap().to_string();
        assert!(error.contains(FILE), "{error}");
    }
}
