//! Would the simulation see it? Defects like those that models and reviews have found before, put between production
//! code and the world, each of which must be seen under some seed of every run.

use runyard::model::{AttributeValue, Guard, Item, Operation, RecordId, Write};

macro_rules! bugs {
    ($($name:ident = $story:literal,)*) => {
        /// A defect; beside it what it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Bug { $($name,)* }

        impl Bug {
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];

            pub(crate) const fn story(self) -> &'static str {
                match self { $(Self::$name => $story,)* }
            }
        }
    };
}

bugs! {
    WriteWithoutCondition = "an operator writes instance records whatever they are",
    ClaimInParts = "a claim is several writes instead of one transaction",
    BindInParts = "a launch is bound by several writes instead of one transaction",
    LeaseNotChecked = "a launch intent is written without the fence of the lease",
    VersionNotRaised = "a write leaves the version as it was",
    KillsBeforeTombstone = "a machine is ended before its record says so",
    ErrorTakenForSuccess = "a throttled transaction counts as done",
    LastPageLost = "a list ends after its first page",
    TokenEachTime = "a launch that is asked for again gets a new client token",
    AgentReadsStale = "an agent reads its instance record eventually consistent",
    AgentWritesBlindly = "an agent writes its record although it is gone",
    AgentForgets = "an agent started again does not remember how far it was",
    RunnerOutlivesStop = "an agent calls a runner stopped that still runs",
    FailedCleaningSaidClean = "an agent calls a machine clean that is not",
    SubmitOverwrites = "a request that is submitted again is written again",
    VersionIsIdentity = "an operator takes a class made anew for an old image of the former one",
    EndIsForgotten = "an operator takes a machine for ended that was not",
    PooledWhileBusy = "an operator takes a runner that GitHub calls busy for one that is gone",
    RerunOverwrites = "an operator writes the request of a re-run although there is one",
    UnreadIsAbsent = "an operator takes a record that it cannot read for one that is not there",
}

/// What becomes of an operator's writes; each part is one transaction.
pub(crate) fn spoiled(bug: Option<Bug>, writes: &[Write]) -> Vec<Vec<Write>> {
    let of = |kind: &str| writes.iter().any(|write| write.key.pk().starts_with(kind));
    let parts = || writes.iter().map(|write| vec![write.clone()]).collect();
    match bug {
        Some(Bug::ClaimInParts) if of("request#") && of("instance#") && !of("launch#") => parts(),
        Some(Bug::BindInParts) if of("launch#") && of("instance#") => parts(),
        Some(Bug::LeaseNotChecked) => {
            let kept = writes.iter().filter(|w| !matches!(w.operation, Operation::Check(Guard::Lease(_))));
            vec![kept.cloned().collect()]
        }
        Some(Bug::WriteWithoutCondition) => vec![writes.iter().map(unconditional).collect()],
        Some(Bug::VersionNotRaised) => vec![writes.iter().map(same_version).collect()],
        Some(_) | None => vec![writes.to_vec()],
    }
}

fn unconditional(write: &Write) -> Write {
    let mut write = write.clone();
    if let Operation::Update { guard, .. } = &mut write.operation
        && write.key.pk().starts_with("instance#")
    {
        *guard = Guard::Exists;
    }
    write
}

fn same_version(write: &Write) -> Write {
    let mut write = write.clone();
    if let Operation::Update { set, .. } = &mut write.operation
        && write.key.pk().starts_with("instance#")
    {
        set.remove("version");
    }
    write
}

/// The image of a class with the highest version that an operator saw, whichever record it is of.
#[derive(Default)]
pub(crate) struct Highest(std::sync::Mutex<std::collections::BTreeMap<(String, RecordId), Item>>);

impl Highest {
    /// What an operator sees of an item: of a class, whatever had the highest version.
    pub(crate) fn seen_by(&self, who: &str, item: Item) -> Item {
        let Some(key) = RecordId::of(&item).filter(|key| key.sk() == "pool") else { return item };
        let version = |item: &Item| match item.get("version") {
            Some(AttributeValue::N(version)) => version.parse::<u64>().unwrap_or(0),
            Some(_) | None => 0,
        };
        let mut highest = self.0.lock().unwrap();
        let kept = highest.entry((who.to_owned(), key)).or_insert_with(|| item.clone());
        if version(&item) > version(kept) {
            kept.clone_from(&item);
        }
        kept.clone()
    }
}

/// Whether a write tombstones a machine's record.
pub(crate) fn tombstones(write: &Write) -> Option<&RecordId> {
    let Operation::Update { set, .. } = &write.operation else { return None };
    let word = runyard::model::AttributeValue::S("terminated".into());
    (write.key.pk().starts_with("instance#") && set.get("state") == Some(&word)).then_some(&write.key)
}
