//! Would the simulation see it? Defects like those that models and reviews have found before, put between production
//! code and the world, each of which must be seen under some seed of every run.

use runyard_core::model::{AttributeValue, Guard, Item, Operation, RecordId, Write};

use crate::simulation::ledger::ahead_of_delivery;

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
    GlanceBelieved = "an agent takes what a glance at its record shows for what is there",
    AgentWritesBlindly = "an agent writes its record although it is gone",
    AgentForgets = "an agent started again does not remember how far it was",
    RunnerOutlivesStop = "an agent calls a runner stopped that still runs",
    FailedCleaningSaidClean = "an agent calls a machine clean that is not",
    SubmitOverwrites = "a request that is submitted again is written again",
    VersionIsIdentity = "an operator takes a class made anew for an old image of the former one",
    EndIsForgotten = "an operator takes a machine for ended that was not",
    PooledWhileBusy = "an operator takes a runner that GitHub calls busy for one that is gone",
    RerunOverwrites = "an operator writes the request of a re-run although there is one",
    PackageSwapped = "an operator names another runner package while a claim runs",
    LabelBeforeClaim = "an operator gives a runner the label of a run before its claim is written",
    EndNotBelieved = "an operator does not believe GitHub when its support of a runner version ends",
    UnreadIsAbsent = "an operator takes a record that it cannot read for one that is not there",
    UsageInMemory = "an operator keeps what shares used in its memory and never writes it",
    PenaltyForgotten = "an operator orders by what shares used, as if what they hold counted for nothing",
    HoldIsForgotten = "an operator does not see that a person holds a machine",
    HoldHasNoEnd = "an operator lets a machine be held for as long as the person likes",
    MarkBeforeDelivery = "an operator says in the lease that the history has what it did not take yet",
    LinesTakenForWritten = "an operator takes lines for written that the history did not take",
    MovedUnkept = "an operator removes the record of a request that the history did not take",
    NameOfTheDead = "an operator names the runner that follows a dead one as the dead one was named",
    RefusalHoldsClass = "a refusal of what one request chose holds back the launches of its class",
    SurplusKept = "an operator keeps idle machines that no waiting request can use",
    DeniedIsNotFound = "an operator takes a wrong credential for a run that is not there",
    RuntimeFromAcceptance = "an operator counts the maximum runtime of a request from its acceptance, not from ready",
    RunTakenForOver = "an operator takes a run that the list of running runs lacks for one that is over",
    JobsUnseen = "an operator sees no queued job",
    FreeWhileBusy = "an agent calls a runner free that has a job",
    AnnouncesNone = "an operator announces that a scale set holds no job",
    BusyGivenBack = "an agent calls a runner free that has a job, and an operator is deaf to GitHub, which keeps it",
    SetRunnerKept = "an operator takes the runner of a scale set for removed that was not",
    ReservationKept = "an operator never takes back what a request held that failed at its deadline",
}

impl Bug {
    /// Whether it harms the neighbours of whoever causes it, in fair weather.
    pub(crate) const fn harms_neighbours(self) -> bool {
        matches!(self, Self::RefusalHoldsClass | Self::SurplusKept | Self::DeniedIsNotFound)
    }

    /// Whether it harms jobs that are queued without anybody asking for machines.
    pub(crate) const fn harms_queued_jobs(self) -> bool {
        matches!(self, Self::RunTakenForOver | Self::JobsUnseen | Self::FreeWhileBusy)
    }

    /// Whether it harms jobs of a runner scale set.
    pub(crate) const fn harms_set_jobs(self) -> bool {
        matches!(self, Self::AnnouncesNone | Self::SetRunnerKept | Self::BusyGivenBack)
    }
}

/// By how much use outweighs what is held where that is forgotten.
const FORGETS: u64 = 10_000;

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
        Some(Bug::PackageSwapped) => vec![writes.iter().map(other_package).collect()],
        Some(Bug::VersionNotRaised) => vec![writes.iter().map(same_version).collect()],
        Some(Bug::MarkBeforeDelivery) => vec![writes.iter().map(marked_early).collect()],
        Some(Bug::UsageInMemory) => vec![writes.iter().map(without_usage).collect()],
        Some(Bug::PenaltyForgotten) => vec![writes.iter().map(as_it_was_used).collect()],
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

/// With the write that makes a machine `running` it gets another package.
fn other_package(write: &Write) -> Write {
    let mut write = write.clone();
    if let Operation::Update { set, .. } = &mut write.operation
        && set.get("state") == Some(&AttributeValue::S("running".into()))
    {
        let of = |value: &str| AttributeValue::S(value.into());
        let package = [("version", of("2.999.0")), ("url", of("https://github.com/a")), ("sha256", of("0"))];
        let package = package.map(|(name, value)| (name.to_owned(), value));
        set.insert("runner".to_owned(), AttributeValue::M(package.into()));
    }
    write
}

/// Whether a write ends an idle machine because there are too many.
pub(crate) fn ends_surplus(write: &Write) -> bool {
    let Operation::Update { set, .. } = &write.operation else { return false };
    write.key.pk().starts_with("instance#") && set.get("reason") == Some(&AttributeValue::S("surplus".into()))
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

fn marked_early(write: &Write) -> Write {
    let mut write = write.clone();
    if let Operation::Update { set, .. } = &mut write.operation {
        ahead_of_delivery(set);
    }
    write
}

fn without_usage(write: &Write) -> Write {
    let mut write = write.clone();
    if let Operation::Update { set, .. } = &mut write.operation {
        set.remove("usage");
    }
    write
}

/// Puts the sums of a class's use to what another number of milliseconds is.
fn weighed(item: &mut Item, change: impl Fn(u64) -> u64) {
    let Some(AttributeValue::M(usage)) = item.get_mut("usage") else { return };
    let Some(AttributeValue::M(sums)) = usage.get_mut("sums") else { return };
    for sum in sums.values_mut() {
        if let AttributeValue::N(number) = sum {
            *number = change(number.parse().unwrap_or(0)).to_string();
        }
    }
}

/// A machine as one sees it who knows of no holds.
pub(crate) fn without_hold(mut item: Item) -> Item {
    item.remove("hold");
    item
}

/// A request as one sees it who takes it for ready since it was accepted.
pub(crate) fn ready_since_accepted(mut item: Item) -> Item {
    if let (true, Some(accepted)) = (item.contains_key("readyAt"), item.get("acceptedAt").cloned()) {
        item.insert("readyAt".to_owned(), accepted);
    }
    item
}

/// A class as one sees it who bounds no hold.
pub(crate) fn held_for_long(mut item: Item) -> Item {
    if let Some(most) = item.get_mut("maxHoldSeconds") {
        *most = AttributeValue::N("604800".into());
    }
    item
}

/// A class as one sees it who forgets what shares hold.
pub(crate) fn outweighed(mut item: Item) -> Item {
    weighed(&mut item, |sum| sum.saturating_mul(FORGETS));
    item
}

fn as_it_was_used(write: &Write) -> Write {
    let mut write = write.clone();
    if let Operation::Update { set, .. } = &mut write.operation {
        weighed(set, |sum| sum / FORGETS);
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

/// The machine that a write claims, and for which run.
pub(crate) fn claims(write: &Write) -> Option<(&RecordId, &str)> {
    let Operation::Update { set, .. } = &write.operation else { return None };
    let word = AttributeValue::S("claimed".into());
    let claimed = write.key.pk().starts_with("instance#") && set.get("state") == Some(&word);
    match set.get("runId").filter(|_| claimed) {
        Some(AttributeValue::S(run)) => Some((&write.key, run)),
        Some(_) | None => None,
    }
}

/// Whether a write tombstones a machine's record.
pub(crate) fn tombstones(write: &Write) -> Option<&RecordId> {
    let Operation::Update { set, .. } = &write.operation else { return None };
    let word = runyard_core::model::AttributeValue::S("terminated".into());
    (write.key.pk().starts_with("instance#") && set.get("state") == Some(&word)).then_some(&write.key)
}
