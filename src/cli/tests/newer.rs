//! Every verb that changes a record in place meets one of a newer program: what that added is still there afterwards.

use clap::Parser as _;
use runyard_fakes::MemoryStore;

use crate::change::{apply, drain, expire, fail, hold, scale};
use crate::failure::CliResult;
use crate::output::format::Format;
use crate::output::screen::Screen;
use crate::session::context::{CliContext, number, text};
use crate::verbs::{Cli, Once, Verb};
use crate::workflow::release;
use runyard_core::model::{AttributeValue, Item, RecordId, TableName};
use runyard_core::ports::Store as _;

const RUNNING: &str = include_str!("../../../tests/golden/instance-running.json");
const POOLED: &str = include_str!("../../../tests/golden/instance-idle-pooled.json");
const HELD: &str = include_str!("../../../tests/golden/instance-held.json");
const REQUEST: &str = include_str!("../../../tests/golden/request-new.json");
const POOL: &str = include_str!("../../../tests/golden/pool-full.json");

async fn run(store: &MemoryStore, line: &str) -> CliResult {
    let context = &mut CliContext::on(store.clone(), Screen::nowhere(Format::Text));
    let environment = context.environment.clone();
    let Verb::Once(verb) = Cli::try_parse_from(line.split(' ')).expect("a command line").verb else {
        panic!("{line}: a process")
    };
    match verb {
        Once::Release(args) => {
            let asked = release::check(&args, &environment)?;
            release::run(context, &args, &asked).await
        }
        Once::Fail(args) => {
            let repository = fail::check(&args, &environment)?;
            fail::run(context, &args, repository.as_ref()).await
        }
        Once::Expire(args) => expire::run(context, &args, &expire::check(&args)?).await,
        Once::Drain(args) => drain::run(context, &args, &drain::check(&args)?).await,
        Once::Hold(args) => hold::run(context, &args, &hold::check(&args)?).await,
        Once::ReleaseHold(args) => hold::release(context, &args, &hold::check_release(&args)?).await,
        Once::Scale(args) => scale::run(context, &args).await,
        Once::Set(args) => apply::set(context, &args).await,
        Once::Pause(args) => apply::pause(context, &args, true).await,
        Once::Apply(args) => {
            let asked = apply::check(&args, &TableName::parse("runyard").expect("a name"))?;
            apply::run(context, &asked).await
        }
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
        // The golden class is launched by ids that `apply` refuses.
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
