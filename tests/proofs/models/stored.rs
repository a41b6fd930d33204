//! Records as the model keeps them: parsed once, shared by all states that hold them, told apart by a fingerprint.

use std::fmt::{Debug, Write};
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use runyard_core::model::{
    Agent, AttributeValue, Instance, Item, Launch, Pool, Reading, Record, RecordId, Request, read,
};

/// A record of one of the kinds the models know.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a model holds a handful")]
pub(crate) enum Typed {
    Instance(Instance),
    Agent(Agent),
    Request(Request),
    Pool(Pool),
    Launch(Launch),
}

/// A kind that can be looked at without parsing.
pub(crate) trait Kept: Record {
    fn of(typed: &Typed) -> Option<&Self>;
}

macro_rules! kept {
    ($($kind:ident),*) => {
        $(impl Kept for $kind {
            fn of(typed: &Typed) -> Option<&Self> {
                if let Typed::$kind(record) = typed { Some(record) } else { None }
            }
        })*

        impl Typed {
            fn read(key: &RecordId, item: &Item) -> Self {
                match key.pk().split('#').next().unwrap_or_default() {
                    $(kind if kind == $kind::KIND.as_str() => Self::$kind(parsed(item)),)*
                    other => panic!("the models know no record of kind {other}"),
                }
            }
        }
    };
}

kept!(Instance, Agent, Request, Pool, Launch);

fn parsed<T: Record>(item: &Item) -> T {
    match read::<T>(item) {
        Reading::Record(record) => record,
        Reading::Newer { .. } | Reading::Unreadable(_) => panic!("not a record: {item:?}"),
    }
}

/// One record as it is stored.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) key: RecordId,
    pub(crate) item: Item,
    pub(crate) typed: Typed,
    pub(crate) version: u64,
    pub(crate) print: u64,
}

impl Stored {
    pub(crate) fn of(item: Item) -> Arc<Self> {
        let key = RecordId::of(&item).expect("a record has a key");
        let typed = Typed::read(&key, &item);
        let version = match item.get("version") {
            Some(AttributeValue::N(n)) => n.parse().expect("a version is a number"),
            Some(_) | None => 0,
        };
        // Not of the item: maps inside it have no order.
        let print = print_of(&(&key, &typed));
        Arc::new(Self { key, item, typed, version, print })
    }

    pub(crate) fn as_kind<T: Kept>(&self) -> Option<&T> {
        T::of(&self.typed)
    }
}

/// A fingerprint of everything a value shows.
pub(crate) fn print_of(value: &impl Debug) -> u64 {
    struct Fold(DefaultHasher);
    impl Write for Fold {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0.write(text.as_bytes());
            Ok(())
        }
    }
    let mut fold = Fold(DefaultHasher::new());
    write!(fold, "{value:?}").expect("a hasher takes everything");
    fold.0.finish()
}

/// The table: records in the order of their keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table(Vec<Arc<Stored>>);

impl Table {
    fn place(&self, key: &RecordId) -> Result<usize, usize> {
        self.0.binary_search_by(|stored| stored.key.cmp(key))
    }

    pub(crate) fn get(&self, key: &RecordId) -> Option<&Arc<Stored>> {
        self.place(key).ok().map(|place| &self.0[place])
    }

    pub(crate) fn put(&mut self, stored: Arc<Stored>) {
        match self.place(&stored.key) {
            Ok(place) => self.0[place] = stored,
            Err(place) => self.0.insert(place, stored),
        }
    }

    pub(crate) fn remove(&mut self, key: &RecordId) {
        if let Ok(place) = self.place(key) {
            self.0.remove(place);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Stored>> {
        self.0.iter()
    }

    pub(crate) fn all<T: Kept + 'static>(&self) -> impl Iterator<Item = &T> {
        self.0.iter().filter_map(|stored| stored.as_kind())
    }

    pub(crate) fn record<T: Kept>(&self, key: &RecordId) -> Option<&T> {
        self.get(key)?.as_kind()
    }

    /// The keys under which two tables differ, in their order.
    pub(crate) fn differs<'a>(&'a self, other: &'a Self) -> Vec<&'a RecordId> {
        let (mut ours, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut keys = Vec::new();
        loop {
            match (ours.peek(), theirs.peek()) {
                (None, None) => return keys,
                (Some(one), Some(two)) if one.key == two.key => {
                    if one.print != two.print {
                        keys.push(&one.key);
                    }
                    ours.next();
                    theirs.next();
                }
                (Some(one), two) if two.is_none_or(|two| one.key < two.key) => {
                    keys.push(&one.key);
                    ours.next();
                }
                (_, two) => {
                    keys.extend(two.map(|two| &two.key));
                    theirs.next();
                }
            }
        }
    }
}
