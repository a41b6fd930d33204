//! Every verb that changes a record in place keeps the attributes that a newer program added to it.

use clap::Parser as _;
use runyard_fakes::MemoryStore;

use crate::common::failure::CliResult;
use crate::output::format::Format;
use crate::output::screen::Screen;
use crate::session::context::{CliContext, number, text};
use crate::session::verb::Verb as _;
use crate::verbs::{AnyVerb, Cli, Once};
use runyard_core::model::{AttributeValue, Item, RecordId};
use runyard_core::ports::Store as _;

const RUNNING: &str = include_str!("../../../tests/golden/instance-running.json");
const POOLED: &str = include_str!("../../../tests/golden/instance-idle-pooled.json");
const HELD: &str = include_str!("../../../tests/golden/instance-held.json");
const REQUEST: &str = include_str!("../../../tests/golden/request-new.json");
const POOL: &str = include_str!("../../../tests/golden/pool-full.json");

async fn run(store: &MemoryStore, line: &str) -> CliResult {
    let context = &mut CliContext::on(store.clone(), Screen::nowhere(Format::Text));
    let AnyVerb::Once(verb) = Cli::try_parse_from(line.split(' ')).expect("a command line").verb else {
        panic!("{line}: a process")
    };
    match verb {
        Once::Release(args) => args.run_on(context).await,
        Once::Fail(args) => args.run_on(context).await,
        Once::Expire(args) => args.run_on(context).await,
        Once::Drain(args) => args.run_on(context).await,
        Once::Hold(args) => args.run_on(context).await,
        Once::ReleaseHold(args) => args.run_on(context).await,
        Once::Scale(args) => args.run_on(context).await,
        Once::Set(args) => args.run_on(context).await,
        Once::Apply(args) => args.run_on(context).await,
        Once::Pause(args) => args.paused(true).run_on(context).await,
        _ => panic!("{line}: changes no record in place"),
    }
}

#[tokio::test]
async fn every_verb_that_changes_a_record_keeps_what_a_newer_program_added() {
    let file = tempfile::NamedTempFile::with_suffix(".json").expect("a file");
    std::fs::write(file.path(), r#"[{"resourceClass": "linux-x64", "max": 9}]"#).expect("it is written");
    let apply = format!("apply -f {} --allow-widening", file.path().display());
    let id = "i-0123456789abcdef0";
    for (record, line) in [
        (REQUEST, "release --run-id 1234567890 --repository acme/web".to_owned()),
        (REQUEST, "fail 1234567890 --repository acme/web".to_owned()),
        (POOLED, format!("expire {id}")),
        (RUNNING, format!("drain {id}")),
        (RUNNING, format!("hold {id} --for 1h")),
        (HELD, format!("release-hold {id}")),
        (POOL, "scale linux-x64 --desired 1".to_owned()),
        (POOL, "set pool linux-x64 max=20".to_owned()),
        (POOL, "pause linux-x64".to_owned()),
        (POOL, apply),
    ] {
        let mut before: Item = serde_json::from_str(record).expect("a golden record");
        let inner =
            [("since".to_owned(), text("0.2")), ("tags".to_owned(), AttributeValue::L(vec![number(1u64)]))];
        let added = AttributeValue::M(inner.into_iter().collect());
        before.insert("preemption".to_owned(), added.clone());
        // The golden class is launched with ids that `apply` refuses.
        before.remove("launch");
        let (store, key) = (MemoryStore::new(), RecordId::of(&before).expect("a key"));
        store.put(before.clone());
        run(&store, &format!("runyard {line}")).await.unwrap_or_else(|failure| panic!("{line}: {failure:?}"));
        let after = store.get(&key).await.expect("it answers").expect("it is there");
        assert_ne!(after["version"], before["version"], "{line}: it wrote the record");
        assert_eq!(after.get("preemption"), Some(&added), "{line}");
        assert_eq!(after.get("futureNote"), before.get("futureNote"), "{line}");
    }
}
