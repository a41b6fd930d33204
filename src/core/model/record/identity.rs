//! The identity of a record. A key is parsed once, where an item or a key enters, and is a [`RecordId`] from there on;
//! it is formatted again where it is stored or shown.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::field::FieldError;
use super::ids::{ClassName, InstanceArn, LaunchId, Repository, RequestKey, RequestName, RunId};
use super::item::{AttributeValue, Item};
use super::set_place::SetPlace;
use super::state::words;

words! {
    /// The kinds of records, as in the attribute `kind`.
    Kind {
        /// A machine, as the operator decides about it.
        Instance = "instance",
        /// A machine's agent.
        Agent = "agent",
        /// A workflow's request for machines.
        Request = "request",
        /// A resource class's pool: its spec and its status.
        Pool = "pool",
        /// An intent to launch machines.
        Launch = "launch",
        /// The lease of the operator that may launch.
        Lease = "lease",
        /// A runner scale set: the queue that GitHub keeps for a class.
        Queue = "queue",
        /// What happened.
        Event = "event",
    }
}

/// The stored form of a record's identity: the primary key of its item. Only the store and the stored form of records
/// use it; everything else names records by [`RecordId`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// Partition key.
    pub pk: String,
    /// Sort key.
    pub sk: String,
}

impl Key {
    /// Creates a key from its two parts.
    pub fn new(pk: impl Into<String>, sk: impl Into<String>) -> Self {
        Self { pk: pk.into(), sk: sk.into() }
    }

    /// Returns the key of an item that has one.
    pub fn of(item: &Item) -> Option<Self> {
        let (Some(AttributeValue::S(pk)), Some(AttributeValue::S(sk))) = (item.get("pk"), item.get("sk"))
        else {
            return None;
        };
        Some(Self::new(pk, sk))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} / {}", self.pk, self.sk)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The identity of a record. Every key of a table is exactly one of these, and each of these has exactly one key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "Key", into = "Key")]
pub enum RecordId {
    /// A machine's agent.
    Agent(InstanceArn),
    /// A machine, as the operator decides about it.
    Instance(InstanceArn),
    /// An intent to launch machines.
    Launch(LaunchId),
    /// A lease, by its name.
    Lease(Arc<str>),
    /// A resource class's pool.
    Pool(ClassName),
    /// A workflow's request for machines.
    Request(RequestKey),
    /// A class's runner scale set at a place.
    Queue(ClassName, SetPlace),
    /// An event of a record: the partition key of that record, and the place among its events.
    Event {
        /// The partition key of the record it is about.
        subject: Arc<str>,
        /// The place among the events of that record.
        place: Arc<str>,
    },
    /// A key of a known kind whose name cannot be parsed. Its record counts as unreadable and is reported.
    Unnamed(Kind, Key),
    /// A key of no known kind, such as a newer program's. It is ignored.
    Foreign(Key),
}

/// The prefix of the place of an event in its sort key.
const EVENT: &str = "event#";
/// The prefix of the place of a scale set in its sort key.
const QUEUE: &str = "queue#";

impl RecordId {
    /// Parses the record under a key, given by its two parts.
    pub fn new(pk: impl Into<String>, sk: impl Into<String>) -> Self {
        Key::new(pk, sk).into()
    }

    /// Parses the record of an item with a key.
    pub fn of(item: &Item) -> Option<Self> {
        Key::of(item).map(Self::from)
    }

    /// Returns the kind of record; none when it is not one of ours.
    pub const fn kind(&self) -> Option<Kind> {
        match self {
            Self::Agent(_) => Some(Kind::Agent),
            Self::Instance(_) => Some(Kind::Instance),
            Self::Launch(_) => Some(Kind::Launch),
            Self::Lease(_) => Some(Kind::Lease),
            Self::Pool(_) => Some(Kind::Pool),
            Self::Request(_) => Some(Kind::Request),
            Self::Queue(..) => Some(Kind::Queue),
            Self::Event { .. } => Some(Kind::Event),
            Self::Unnamed(kind, _) => Some(*kind),
            Self::Foreign(_) => None,
        }
    }

    /// Returns whether it is an unknown row where the roles of workflows and machines may write: under the partition
    /// key of a request or an agent. A machine's logs are known.
    pub fn is_unknown_row(&self) -> bool {
        let Self::Foreign(key) = self else { return false };
        key.pk.starts_with("request#") || (key.pk.starts_with("agent#") && key.sk != "log")
    }

    /// Returns the request, if it is one.
    pub const fn request(&self) -> Option<&RequestKey> {
        match self {
            Self::Request(id) => Some(id),
            Self::Agent(_)
            | Self::Instance(_)
            | Self::Launch(_)
            | Self::Lease(_)
            | Self::Queue(..)
            | Self::Pool(_)
            | Self::Event { .. }
            | Self::Unnamed(..)
            | Self::Foreign(_) => None,
        }
    }

    /// Returns the machine whose instance record it is, if it is one.
    pub const fn instance(&self) -> Option<&InstanceArn> {
        match self {
            Self::Instance(arn) => Some(arn),
            Self::Agent(_)
            | Self::Request(_)
            | Self::Launch(_)
            | Self::Lease(_)
            | Self::Queue(..)
            | Self::Pool(_)
            | Self::Event { .. }
            | Self::Unnamed(..)
            | Self::Foreign(_) => None,
        }
    }

    /// Returns the machine whose agent record it is, if it is one.
    pub const fn agent(&self) -> Option<&InstanceArn> {
        match self {
            Self::Agent(arn) => Some(arn),
            Self::Instance(_)
            | Self::Request(_)
            | Self::Launch(_)
            | Self::Lease(_)
            | Self::Queue(..)
            | Self::Pool(_)
            | Self::Event { .. }
            | Self::Unnamed(..)
            | Self::Foreign(_) => None,
        }
    }

    /// Returns the class whose pool it is, if it is one.
    pub const fn pool(&self) -> Option<&ClassName> {
        match self {
            Self::Pool(class) => Some(class),
            Self::Agent(_)
            | Self::Instance(_)
            | Self::Request(_)
            | Self::Launch(_)
            | Self::Lease(_)
            | Self::Queue(..)
            | Self::Event { .. }
            | Self::Unnamed(..)
            | Self::Foreign(_) => None,
        }
    }

    /// Returns the id of the machine whose instance or agent record it is, also where the rest of its name cannot be
    /// read.
    pub fn machine(&self) -> Option<&str> {
        let name = match self {
            Self::Instance(arn) | Self::Agent(arn) => arn.as_str(),
            Self::Unnamed(Kind::Instance | Kind::Agent, key) => key.pk.as_str(),
            Self::Unnamed(
                Kind::Request | Kind::Pool | Kind::Launch | Kind::Lease | Kind::Queue | Kind::Event,
                _,
            )
            | Self::Request(_)
            | Self::Launch(_)
            | Self::Lease(_)
            | Self::Queue(..)
            | Self::Pool(_)
            | Self::Event { .. }
            | Self::Foreign(_) => return None,
        };
        name.rsplit_once('/').map(|(_, id)| id)
    }

    /// Returns whether it is an event.
    pub const fn is_event(&self) -> bool {
        matches!(self, Self::Event { .. })
    }

    /// Returns its partition key.
    pub fn pk(&self) -> String {
        match self {
            Self::Agent(arn) => format!("agent#{arn}"),
            Self::Instance(arn) => format!("instance#{arn}"),
            Self::Launch(id) => format!("launch#{id}"),
            Self::Lease(name) => format!("lease#{name}"),
            Self::Pool(class) => format!("pool#{class}"),
            Self::Request(id) => Self::partition(&id.repository, &id.run_id),
            Self::Queue(class, _) => format!("queue#{class}"),
            Self::Event { subject, .. } => subject.to_string(),
            Self::Unnamed(_, key) | Self::Foreign(key) => key.pk.clone(),
        }
    }

    /// Returns its sort key.
    pub fn sk(&self) -> String {
        match self {
            Self::Agent(_) => Kind::Agent.as_str().into(),
            Self::Instance(_) => Kind::Instance.as_str().into(),
            Self::Launch(_) => Kind::Launch.as_str().into(),
            Self::Lease(_) => Kind::Lease.as_str().into(),
            Self::Pool(_) => Kind::Pool.as_str().into(),
            Self::Request(id) => format!("request#{}#{}", id.name, id.attempt),
            Self::Queue(_, place) => format!("{QUEUE}{place}"),
            Self::Event { place, .. } => format!("{EVENT}{place}"),
            Self::Unnamed(_, key) | Self::Foreign(key) => key.sk.clone(),
        }
    }

    /// Returns its stored form.
    pub fn key(&self) -> Key {
        Key { pk: self.pk(), sk: self.sk() }
    }

    /// Returns the partition key of a run's requests; current keys have the repository in lower case.
    pub fn partition(repository: &Repository, run_id: &RunId) -> String {
        format!("request#{repository}#{run_id}")
    }
}

impl From<Key> for RecordId {
    fn from(key: Key) -> Self {
        if let Some(place) = key.sk.strip_prefix(EVENT) {
            return Self::Event { subject: key.pk.as_str().into(), place: place.into() };
        }
        let Some((prefix, name)) = key.pk.split_once('#') else { return Self::Foreign(key) };
        let kind = Kind::ALL.iter().copied().filter(|kind| kind.as_str() == prefix).find(|kind| match kind {
            Kind::Instance | Kind::Agent | Kind::Pool | Kind::Launch | Kind::Lease => key.sk == kind.as_str(),
            Kind::Request => key.sk.starts_with("request#"),
            Kind::Queue => key.sk.starts_with(QUEUE),
            Kind::Event => false,
        });
        let Some(kind) = kind else { return Self::Foreign(key) };
        let named = match kind {
            Kind::Agent => InstanceArn::parse(name).map(Self::Agent),
            Kind::Instance => InstanceArn::parse(name).map(Self::Instance),
            Kind::Launch => LaunchId::parse(name).map(Self::Launch),
            Kind::Lease => Ok(Self::Lease(name.into())),
            Kind::Pool => ClassName::parse(name).map(Self::Pool),
            Kind::Request => request(&key).map(Self::Request),
            Kind::Queue => queue(name, &key),
            Kind::Event => return Self::Foreign(key),
        };
        named.unwrap_or(Self::Unnamed(kind, key))
    }
}

impl From<RecordId> for Key {
    fn from(id: RecordId) -> Self {
        match id {
            RecordId::Unnamed(_, key) | RecordId::Foreign(key) => key,
            id @ (RecordId::Agent(_)
            | RecordId::Instance(_)
            | RecordId::Launch(_)
            | RecordId::Lease(_)
            | RecordId::Queue(..)
            | RecordId::Pool(_)
            | RecordId::Request(_)
            | RecordId::Event { .. }) => id.key(),
        }
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.key(), f)
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<&Self> for RecordId {
    fn from(id: &Self) -> Self {
        id.clone()
    }
}

impl From<RequestKey> for RecordId {
    fn from(id: RequestKey) -> Self {
        Self::Request(id)
    }
}

impl From<&RequestKey> for RecordId {
    fn from(id: &RequestKey) -> Self {
        Self::Request(id.clone())
    }
}

impl PartialEq<RequestKey> for RecordId {
    fn eq(&self, other: &RequestKey) -> bool {
        self.request() == Some(other)
    }
}

/// Parses the scale set that a key names.
fn queue(class: &str, key: &Key) -> Result<RecordId, FieldError> {
    let place = SetPlace::parse(key.sk.strip_prefix(QUEUE).unwrap_or_default())?;
    let id = RecordId::Queue(ClassName::parse(class)?, place);
    // One set, one key: `queue#Acme` would be another record of the same set.
    let wrong =
        || FieldError::new("sk", key.to_string(), "not the key of a queue", "see contract, section 1");
    if id.sk() == key.sk { Ok(id) } else { Err(wrong()) }
}

/// Parses the request that a key names.
///
/// # Errors
/// Names the part of the key that is wrong.
pub(crate) fn request(key: &Key) -> Result<RequestKey, FieldError> {
    let wrong =
        || FieldError::new("pk", key.to_string(), "not the key of a request", "see contract, section 1");
    let (repository, run_id) =
        key.pk.strip_prefix("request#").and_then(|rest| rest.split_once('#')).ok_or_else(wrong)?;
    let (name, attempt) =
        key.sk.strip_prefix("request#").and_then(|rest| rest.split_once('#')).ok_or_else(wrong)?;
    let id = RequestKey {
        repository: Repository::parse(repository)?,
        run_id: RunId::parse(run_id)?,
        name: RequestName::parse(name)?,
        attempt: attempt.parse().map_err(|_| wrong())?,
    };
    // One request, one key: `#01` would be another record under the same name.
    if id.attempt.to_string() == attempt { Ok(id) } else { Err(wrong()) }
}

/// Returns the kind of an item by its key, as the operator sees it, whatever its other attributes are; none for items
/// that other programs store in the table.
pub fn kind_of(item: &Item) -> Option<Kind> {
    RecordId::of(item)?.kind()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARN: &str = "arn:aws:ec2:eu-central-1:1:instance/i-1";

    #[test]
    fn a_key_is_told_in_both_its_parts() {
        let key = Key::new("pool#linux", "pool");
        let id = RecordId::from(key.clone());
        for told in [format!("{key}"), format!("{key:?}"), format!("{id}"), format!("{id:?}")] {
            assert_eq!(told, "pool#linux / pool");
        }
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let mut item: Item = [("pk".to_owned(), text("pool#linux")), ("sk".to_owned(), text("pool"))].into();
        assert_eq!((Key::of(&item), RecordId::of(&item)), (Some(key), Some(id)));
        item.remove("sk");
        assert_eq!((Key::of(&item), RecordId::of(&item)), (None, None));
    }

    #[test]
    fn every_key_is_one_record_and_every_record_has_one_key() {
        let kind = |pk: &str, sk: &str| {
            let key = Key::new(pk, sk);
            let id = RecordId::from(key.clone());
            assert_eq!((id.key(), Key::from(id.clone())), (key.clone(), key.clone()));
            let json = serde_json::to_string(&id).unwrap();
            assert_eq!(json, serde_json::to_string(&key).unwrap());
            assert_eq!(serde_json::from_str::<RecordId>(&json).unwrap(), id);
            let named = !matches!(id, RecordId::Unnamed(..) | RecordId::Foreign(_));
            (id.kind(), named)
        };
        assert_eq!(kind(&format!("agent#{ARN}"), "agent"), (Some(Kind::Agent), true));
        assert_eq!(kind(&format!("instance#{ARN}"), "instance"), (Some(Kind::Instance), true));
        assert_eq!(kind("launch#l-1", "launch"), (Some(Kind::Launch), true));
        assert_eq!(kind("lease#", "lease"), (Some(Kind::Lease), true));
        assert_eq!(kind("pool#linux", "pool"), (Some(Kind::Pool), true));
        assert_eq!(kind("request#Acme/web#7", "request#gpu#10"), (Some(Kind::Request), true));
        assert_eq!(kind("queue#linux", "queue#acme"), (Some(Kind::Queue), true));
        assert_eq!(kind("queue#linux", "queue#acme/web"), (Some(Kind::Queue), true));
        assert_eq!(kind("whatever", "event#now#x#y"), (Some(Kind::Event), true));
        for (pk, sk) in [
            ("agent#", "agent"),
            ("instance#i-1", "instance"),
            ("launch#l.1", "launch"),
            ("pool#x-dead", "pool"),
            ("queue#x-dead", "queue#acme"),
            ("queue#linux", "queue#Acme"),
            ("queue#linux", "queue#acme/~"),
            ("request#acme/web#7", "request#gpu#02"),
            ("request#acme/web#7", "request#gpu#+2"),
            ("request#acme/web#7", "request#gpu"),
            ("request#acme#7", "request#gpu#2"),
        ] {
            let prefix = pk.split_once('#').map(|(prefix, _)| prefix);
            assert_eq!(kind(pk, sk), (Kind::ALL.iter().copied().find(|k| Some(k.as_str()) == prefix), false));
        }
        for (pk, sk) in
            [("pool", "pool"), ("pool#linux", "note"), ("event#1", "event"), ("note#1", "pool"), ("", "")]
        {
            assert_eq!(kind(pk, sk), (None, false), "{pk} {sk}");
        }
    }

    #[test]
    fn records_of_one_kind_stand_in_the_order_of_their_keys() {
        let keys = [
            ("launch#l-1", "launch"),
            ("launch#l-10", "launch"),
            ("request#a-b/c#1", "request#default#1"),
            ("request#a/b#1", "request#default#1"),
            ("request#a/b#1", "request#default#2"),
            ("request#a/b#1", "request#other#1"),
            ("request#a/b#10", "request#default#1"),
            ("request#a/b-c#1", "request#default#1"),
        ];
        assert!(keys.map(|(pk, sk)| Key::new(pk, sk)).is_sorted());
        assert!(keys.map(|(pk, sk)| RecordId::new(pk, sk)).is_sorted());
    }
}
