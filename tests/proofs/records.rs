//! Are records stored as the contract says, read back as they were, and refused by name when they are not records?

mod bad;
mod golden;
mod roundtrip;

use runyard_core::model::{
    Agent, AttributeValue, Event, Instance, Item, Kind, Launch, Lease, Pool, Reading, Record, Request,
    SetRecord, Unreadable, read,
};

/// What reading an item of any kind comes to, without its type.
#[derive(Debug, PartialEq)]
enum Verdict {
    /// A record, and the item it is stored as.
    Record(Item),
    Newer(u64),
    Unreadable(Unreadable),
}

fn verdict(kind: Kind, item: &Item) -> Verdict {
    match kind {
        Kind::Instance => judge(read::<Instance>(item)),
        Kind::Agent => judge(read::<Agent>(item)),
        Kind::Request => judge(read::<Request>(item)),
        Kind::Pool => judge(read::<Pool>(item)),
        Kind::Launch => judge(read::<Launch>(item)),
        Kind::Lease => judge(read::<Lease>(item)),
        Kind::Queue => judge(read::<SetRecord>(item)),
        Kind::Event => judge(read::<Event>(item)),
    }
}

fn judge<T: Record>(reading: Reading<T>) -> Verdict {
    match reading {
        Reading::Record(record) => Verdict::Record(record.to_item()),
        Reading::Newer { schema } => Verdict::Newer(schema),
        Reading::Unreadable(unreadable) => Verdict::Unreadable(unreadable),
    }
}

fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

fn number(value: impl ToString) -> AttributeValue {
    AttributeValue::N(value.to_string())
}
