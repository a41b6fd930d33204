//! Fresh tables on every engine. An engine that is a process is started once and shared: each table has its own name.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_dynamodb::config::Credentials;
use runyard_core::model::TableName;
use runyard_fakes::MemoryStore;
use runyard_store::{DynamoStore, Watching};

use super::Table;
use runyard_support::engine::Engine;

static DYNOXIDE: LazyLock<Engine> = LazyLock::new(Engine::dynoxide_memory);
static MINISTACK: LazyLock<Engine> = LazyLock::new(Engine::ministack);
static GIVEN: LazyLock<Option<Engine>> = LazyLock::new(Engine::given);
static TABLES: AtomicU32 = AtomicU32::new(0);

/// Where tables come from.
pub(crate) enum Tables {
    Memory,
    Dynoxide,
    Ministack,
}

impl Tables {
    pub(crate) async fn fresh(&self) -> Table {
        match self {
            Self::Memory => in_memory(MemoryStore::new()),
            Self::Dynoxide => on(DYNOXIDE.endpoint()).await,
            Self::Ministack => on(MINISTACK.endpoint()).await,
        }
    }

    pub(crate) async fn given() -> Option<Table> {
        match GIVEN.as_ref() {
            Some(engine) => Some(on(engine.endpoint()).await),
            None => None,
        }
    }
}

fn in_memory(store: MemoryStore) -> Table {
    let paged = Arc::new(store.clone().paged(2));
    Table { polling: Arc::new(store.clone()), store: Arc::new(store), paged }
}

async fn on(endpoint: &str) -> Table {
    let store = connect(endpoint).await;
    store.create_table().await.expect("the engine makes a table");
    let every = Duration::from_millis(10);
    // Where the stream is to be read, a scan would come too late for any test.
    let scan_every = Duration::from_secs(3600);
    let watching = Watching { stream: true, every, scan_every, stream_every: every };
    let store = store.watching(watching);
    Table {
        paged: Arc::new(store.clone().paged(2)),
        polling: Arc::new(store.clone().paged(2).watching(Watching {
            stream: false,
            scan_every: every,
            ..watching
        })),
        store: Arc::new(store),
    }
}

/// A store on a table name nobody else has; the table is not made.
pub(crate) async fn connect(endpoint: &str) -> DynamoStore {
    let number = TABLES.fetch_add(1, Ordering::SeqCst);
    let name = format!("contract-{}-{number}", std::process::id());
    let table = TableName::parse(&name).expect("a valid table name");
    DynamoStore::connect(table, &sdk_config(endpoint).await)
}

/// What a test tells the SDK.
pub(crate) async fn sdk_config(endpoint: &str) -> SdkConfig {
    aws_config::defaults(BehaviorVersion::latest())
        .endpoint_url(endpoint)
        .region(Region::from_static("eu-west-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .load()
        .await
}
