//! The table as a program of another version reads and writes it. An older one neither sees nor writes what
//! docs/contract.md marks as an addition; a newer one adds an attribute to every record when it first writes it. One
//! before `auto` reads that no runner of a class is registered ahead where nobody said that it is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock, Mutex};

use async_trait::async_trait;
use runyard_core::model::{AttributeValue, Guard, Item, Kind, Operation, RecordId, Write};
use runyard_core::ports::{Change, Page, Store, StoreError, Watch};
use runyard_fakes::MemoryStore;

const CONTRACT: &str = include_str!("../../../docs/contract.md");

/// What a newer version adds.
pub(crate) const ADDED: &str = "preemptionScore";

/// The contract's sections whose tables list the attributes of a kind.
const SECTIONS: [(&str, Kind); 8] = [
    ("### 1.5 ", Kind::Launch),
    ("### 1.6 ", Kind::Lease),
    ("### 2.1 ", Kind::Instance),
    ("### 2.2 ", Kind::Agent),
    ("### 3.1 ", Kind::Request),
    ("### 3.2 ", Kind::Request),
    ("### 4.1 ", Kind::Pool),
    ("### 4.2 ", Kind::Pool),
];

/// The attributes that the contract marks as additions, and `uid`, which it says older records lack.
pub(crate) fn additions(kind: Kind) -> &'static BTreeSet<&'static str> {
    static ALL: LazyLock<BTreeMap<&str, BTreeSet<&str>>> = LazyLock::new(|| {
        let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (heading, kind) in SECTIONS {
            let section = CONTRACT.split_once(heading).expect("the section is there").1;
            let rows = section.lines().skip(1).take_while(|line| !line.starts_with('#'));
            let cells = rows.filter_map(|row| row.strip_prefix("| **+** ")?.split(" | ").next());
            let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
            all.entry(kind.as_str()).or_insert_with(|| BTreeSet::from(["uid"])).extend(names);
        }
        all
    });
    static NONE: BTreeSet<&str> = BTreeSet::new();
    ALL.get(kind.as_str()).unwrap_or(&NONE)
}

fn is_addition(key: &RecordId, name: &str) -> bool {
    key.kind().is_some_and(|kind| additions(kind).contains(name))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Older,
    BeforeAuto,
    This,
    Newer,
}

/// The table for one program.
#[derive(Clone)]
pub(crate) struct Table {
    store: MemoryStore,
    version: Version,
    /// Every record that it wrote.
    wrote: Arc<Mutex<BTreeSet<RecordId>>>,
}

impl Table {
    pub(crate) fn new(store: &MemoryStore, version: Version) -> Self {
        Self { store: store.clone(), version, wrote: Arc::default() }
    }

    /// The records that it wrote and that are still there.
    pub(crate) async fn written(&self) -> Vec<(RecordId, Item)> {
        let mut found = Vec::new();
        let wrote = self.wrote.lock().unwrap().clone();
        for key in wrote {
            found.extend(self.store.get(&key).await.unwrap().map(|item| (key, item)));
        }
        found
    }

    fn seen(&self, mut item: Item) -> Item {
        if let (Version::Older, Some(key)) = (self.version, RecordId::of(&item)) {
            item.retain(|name, _| !is_addition(&key, name));
        }
        let is_pool = RecordId::of(&item).and_then(|key| key.kind()) == Some(Kind::Pool);
        match self.version {
            Version::Older | Version::BeforeAuto if is_pool => {
                item.entry("registeredAhead".into()).or_insert(AttributeValue::Bool(false));
            }
            Version::Older | Version::BeforeAuto | Version::This | Version::Newer => {}
        }
        item
    }

    fn page(&self, page: Page) -> Page {
        Page { items: page.items.into_iter().map(|item| self.seen(item)).collect(), next: page.next }
    }

    fn change(&self, write: &Write) -> Write {
        let (version, key) = (self.version, write.key.clone());
        let first = !self.wrote.lock().unwrap().contains(&key);
        let set = |mut set: Item| {
            match version {
                Version::Older => set.retain(|name, _| !is_addition(&key, name)),
                Version::Newer if first => drop(set.insert(ADDED.into(), AttributeValue::N("7".into()))),
                Version::BeforeAuto | Version::This | Version::Newer => {}
            }
            set
        };
        let operation = match write.operation.clone() {
            Operation::Create(item) => Operation::Create(set(item)),
            Operation::Update { guard, set: items, mut remove, add } => {
                remove.retain(|name| version != Version::Older || !is_addition(&key, name));
                Operation::Update { guard: self.guard(guard), set: set(items), remove, add }
            }
            Operation::Delete(guard) => Operation::Delete(self.guard(guard)),
            Operation::Check(guard) => Operation::Check(self.guard(guard)),
        };
        Write { key: write.key.clone(), operation }
    }

    fn note(&self, writes: &[Write]) {
        let changed = |write: &&Write| match write.operation {
            Operation::Create(_) | Operation::Update { .. } => true,
            Operation::Delete(_) | Operation::Check(_) => false,
        };
        self.wrote.lock().unwrap().extend(writes.iter().filter(changed).map(|write| write.key.clone()));
    }

    /// An older program knows no `uid`.
    fn guard(&self, guard: Guard) -> Guard {
        match (self.version, guard) {
            (Version::Older, Guard::Image(_, version)) => Guard::Version(version),
            (_, guard) => guard,
        }
    }
}

#[async_trait]
impl Store for Table {
    async fn get(&self, key: &RecordId) -> Result<Option<Item>, StoreError> {
        Ok(self.store.get(key).await?.map(|item| self.seen(item)))
    }

    async fn list(&self, after: Option<&RecordId>) -> Result<Page, StoreError> {
        Ok(self.page(self.store.list(after).await?))
    }

    async fn query(&self, pk: &str, sk_prefix: &str, after: Option<&RecordId>) -> Result<Page, StoreError> {
        Ok(self.page(self.store.query(pk, sk_prefix, after).await?))
    }

    async fn write(&self, write: &Write) -> Result<Item, StoreError> {
        let written = self.store.write(&self.change(write)).await?;
        self.note(std::slice::from_ref(write));
        Ok(self.seen(written))
    }

    async fn transact(&self, writes: &[Write]) -> Result<(), StoreError> {
        let changed: Vec<Write> = writes.iter().map(|write| self.change(write)).collect();
        self.store.transact(&changed).await?;
        self.note(writes);
        Ok(())
    }

    async fn append(&self, items: &[Item]) -> Result<usize, StoreError> {
        self.store.append(items).await
    }

    async fn watch(&self) -> Result<Box<dyn Watch>, StoreError> {
        Ok(Box::new(Changes { inner: self.store.watch().await?, table: self.clone() }))
    }
}

struct Changes {
    inner: Box<dyn Watch>,
    table: Table,
}

#[async_trait]
impl Watch for Changes {
    async fn next(&mut self) -> Result<Vec<Change>, StoreError> {
        let changes = self.inner.next().await?.into_iter();
        Ok(changes
            .map(|change| Change { item: change.item.map(|item| self.table.seen(item)), ..change })
            .collect())
    }
}

#[test]
fn what_older_programs_do_not_know_is_read_from_the_contract() {
    for (kind, some, none) in [
        (
            Kind::Instance,
            &["spans", "ahead", "registrationExpiresAt", "removalExpiresAt", "hold"][..],
            "claimId",
        ),
        (Kind::Agent, &["kept", "ahead"], "runnerId"),
        (Kind::Request, &["failRequestedAt", "failRequestedBy", "accepted", "claims", "uid"], "labelSuffix"),
        (Kind::Pool, &["keep", "registeredAhead", "runner", "ahead"], "override"),
        (Kind::Launch, &["launchDigest"], "attempt"),
        (Kind::Lease, &["historyUntil"], "token"),
    ] {
        let found = additions(kind);
        assert!(some.iter().all(|name| found.contains(name)), "{kind}: {found:?}");
        assert!(!found.contains(none), "{kind}: {found:?}");
    }
}
