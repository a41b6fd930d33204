//! What does a record that others wrote cost while it is there? Counted in bytes that are kept.

use std::time::Duration;

use jiff::Timestamp;
use runyard_core::model::{AttributeValue, Item, RecordId, bounded};
use runyard_core::yard::{Now, Observation, Yard};

/// The most that one credential of a workflow can put into a record: DynamoDB takes 400 KB.
const LARGEST: usize = 385_000;
const REQUESTS: usize = 400;

fn now() -> Now {
    Now { wall: Timestamp::UNIX_EPOCH, mono: Duration::from_secs(1), seen: Duration::from_secs(1) }
}

fn intent(run: usize, more: &[(&str, AttributeValue)]) -> (RecordId, Item) {
    let text = |text: String| AttributeValue::S(text);
    let number = |number: usize| AttributeValue::N(number.to_string());
    let mut item: Item = [
        ("pk", text(format!("request#acme/web#{run}"))),
        ("sk", text("request#default#1".into())),
        ("kind", text("request".into())),
        ("runId", text(run.to_string())),
        ("repository", text("acme/web".into())),
        ("name", text("default".into())),
        ("resourceClass", text("linux".into())),
        ("desired", text("provisioned".into())),
        ("attempt", number(1)),
        ("count", number(1)),
        ("generation", number(1)),
        ("version", number(1)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    item.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    (RecordId::of(&item).expect("it has a key"), item)
}

/// The bytes that a yard keeps of so many requests with these attributes, each of which is freed once it was taken in.
fn kept(more: &[(&str, AttributeValue)], adapter: bool) -> i64 {
    let mut yard = Yard::default();
    let measured = allocation_counter::measure(|| {
        for run in 0..REQUESTS {
            let (key, item) = intent(run, more);
            let item = if adapter { bounded(item) } else { item };
            yard.observe(Observation::Shown(Duration::ZERO, key, item), &now());
        }
    });
    measured.bytes_current
}

#[test]
fn four_hundred_requests_of_any_shape_are_kept_in_two_megabytes() {
    let text = |bytes: usize| AttributeValue::S("a*".repeat(bytes / 2));
    let texts = |each: usize, all: usize| AttributeValue::L(vec![text(each); all / each]);
    // Those that are too large to be read, and the largest that are not.
    for bytes in [LARGEST, 60_000] {
        for (what, value) in [
            ("allowedInstanceTypes", texts(bytes / 2 - 8, bytes)),
            ("allowedInstanceTypes", texts(2, bytes / 2)),
            ("allowedInstanceTypes", AttributeValue::L(vec![AttributeValue::Null(true); bytes / 2])),
            ("resourceClass", text(bytes)),
            ("priority", text(bytes)),
            ("failRequestedBy", text(bytes)),
            ("createdAt", text(bytes)),
            ("unheard-of", texts(2, bytes / 2)),
        ] {
            for adapter in [true, false] {
                let kept = kept(&[(what, value.clone())], adapter);
                println!("{what} of {bytes} bytes: {kept} bytes kept of {REQUESTS} requests");
                assert!(kept < 2_000_000, "{what} of {bytes} bytes: {kept}");
            }
        }
    }
}
