//! The output of every reading verb, at 60, 80 and 120 columns and in a pipe, compared with the files of
//! `tests/golden/cli`. With RUNYARD_GOLDEN=write they are rewritten.

use std::path::PathBuf;

use clap::Parser as _;
use runyard_fakes::{MemoryStore, TokioClock};
use std::sync::Arc;

use crate::output::screen::Screen;
use crate::session::context::{CliContext, text};
use crate::session::verb::Verb as _;
use crate::verbs::{AnyVerb, Cli, Once};
use runyard_core::model::{AttributeValue, Item};

const WIDTHS: [Option<usize>; 4] = [Some(60), Some(80), Some(120), None];

/// The attributes of the stored records that are shown here; attributes added later do not affect the tables.
const SHOWN: &[&str] = &[
    "pk",
    "sk",
    "kind",
    "version",
    "updatedAt",
    "instanceId",
    "instanceArn",
    "resourceClass",
    "state",
    "runId",
    "claimId",
    "request",
    "createdAt",
    "stateSince",
    "pooledAt",
    "threshold",
    "thresholdSetAt",
    "instanceType",
    "usageClass",
    "cpu",
    "mmem",
    "availabilityZone",
    "launchId",
    "trustDomain",
    "uses",
    "agentVersion",
    "heartbeatAt",
    "heartbeatSeq",
    "signal",
    "signalAt",
    "signalDetail",
    "repository",
    "name",
    "attempt",
    "phase",
    "message",
    "instances",
    "served",
    "count",
    "minCount",
    "desired",
    "timeoutSeconds",
    "acceptedAt",
    "deadline",
    "readyAt",
    "generation",
    "observedGeneration",
    "conditions",
    "counts",
    "min",
    "max",
    "paused",
    "override",
    "schedules",
    "idleSeconds",
    "maxAgeSeconds",
    "reuseWithin",
    "repositories",
    "registrationMode",
    "labelMode",
    "queue",
    "clientToken",
    "holder",
    "token",
    "renewals",
    "termSeconds",
    "operatorVersion",
    "at",
    "type",
    "reason",
    "actor",
    "subject",
    "from",
    "to",
    "expiresAt",
    "futureNote",
];

fn item(record: &str) -> Item {
    let mut item: Item = serde_json::from_str(record).expect("it is a record");
    item.retain(|name, _| SHOWN.contains(&name.as_str()));
    item
}

fn with(record: &str, more: &[(&str, AttributeValue)]) -> Item {
    let mut item = item(record);
    item.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    item
}

/// Returns a yard with one record of each kind, and some with long texts.
fn yard() -> MemoryStore {
    let store = MemoryStore::new();
    let golden = [
        include_str!("../../../tests/golden/pool-full.json"),
        include_str!("../../../tests/golden/instance-running.json"),
        include_str!("../../../tests/golden/agent-speaking.json"),
        include_str!("../../../tests/golden/request-served.json"),
        include_str!("../../../tests/golden/launch-bound.json"),
        include_str!("../../../tests/golden/lease-operator.json"),
        include_str!("../../../tests/golden/event.json"),
    ];
    golden.iter().for_each(|record| store.put(item(record)));
    let long = "waits for 6 of 12 machines, because class linux-x64 has as many machines as max allows (20)";
    store.put(with(
        include_str!("../../../tests/golden/request-new.json"),
        &[
            ("pk", text("request#a-long-organization/with-a-repository-of-a-long-name#99887766554")),
            ("repository", text("a-long-organization/with-a-repository-of-a-long-name")),
            ("runId", text("99887766554")),
            ("phase", text("Pending")),
            ("message", text(long)),
            ("acceptedAt", text("2026-01-02T03:02:00Z")),
        ],
    ));
    let idle = include_str!("../../../tests/golden/instance-idle-pooled.json");
    let arn = "arn:aws:ec2:eu-west-1:123456789012:instance/i-0fedcba9876543210";
    store.put(with(
        idle,
        &[
            ("pk", text(format!("instance#{arn}"))),
            ("instanceArn", text(arn)),
            ("instanceId", text("i-0fedcba9876543210")),
        ],
    ));
    store
}

async fn shown(line: &str, width: Option<usize>) -> String {
    let cli = Cli::try_parse_from(line.split(' ')).unwrap_or_else(|error| panic!("{line}: {error}"));
    let (screen, read) = Screen::kept_at(&cli.common.output, width);
    let mut context = CliContext::on(yard(), screen);
    let now = "2026-01-02T03:07:30Z".parse().expect("a time");
    context.clock = Arc::new(TokioClock::starting(now));
    let AnyVerb::Once(verb) = cli.verb else { panic!("{line} is no verb that reads") };
    let context = &mut context;
    let ended = match verb {
        Once::Get(args) => args.run_on(context).await,
        Once::Describe(args) => args.run_on(context).await,
        Once::Events(args) => args.run_on(context).await,
        Once::Explain(args) => args.run_on(context).await,
        Once::Plan(args) => args.run_on(context).await,
        Once::Doctor(args) => args.run_on(context).await,
        Once::Top(args) => args.run_on(context).await,
        Once::Cost(args) => args.run_on(context).await,
        Once::Version(args) => args.run_on(context).await,
        other => panic!("{line} is no verb that reads: {other:?}"),
    };
    // `doctor` fails if it has findings.
    let _ = ended;
    read()
}

fn golden(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/cli")).join(name)
}

/// Compares with a golden file, or writes it.
pub(crate) fn compare(path: &std::path::Path, seen: &str) {
    if runyard_operator::config::environment().any(|(name, _)| name == "RUNYARD_GOLDEN") {
        std::fs::create_dir_all(path.parent().expect("it has a folder")).expect("the folder can be made");
        std::fs::write(path, seen).expect("the file can be written");
        return;
    }
    let wanted = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(seen, wanted, "{} (RUNYARD_GOLDEN=write writes it anew)", path.display());
}

const LINES: &[(&str, &[&str])] = &[
    ("get-instances", &["get instances", "get instances -o wide"]),
    ("get-requests", &["get requests", "get requests -o wide"]),
    ("get-pools", &["get pools", "get pools -o wide", "get po --no-headers"]),
    ("get-launches", &["get launches", "get launches -o wide"]),
    (
        "get-several",
        &[
            "get all",
            "get pool/linux-x64 instance/i-01",
            "get i,po -o name",
            "get pools -o custom-columns=CLASS:.resourceClass,MAX:.max",
            "get i --sort-by .state --limit 1 -o jsonpath={.items[*].instanceId}",
        ],
    ),
    ("describe-instance", &["describe instance i-0123456789abcdef0"]),
    ("describe-request", &["describe request/1234567890/build"]),
    ("describe-pool", &["describe pool linux-x64"]),
    ("describe-launch", &["describe launch l-00000000000000a1"]),
    ("events", &["events", "events -o wide"]),
    ("explain", &["explain instance i-0123", "explain pool linux-x64", "explain launch l-00000000000000a1"]),
    ("plan", &["plan"]),
    ("doctor", &["doctor"]),
    ("top", &["top", "top --by class"]),
    (
        "cost",
        &[
            "cost --since 24h",
            "cost --since 24h --by pool -o wide",
            "cost --since 24h --by run -o csv",
            "cost --since 24h -o json",
            "cost --since 24h -o focus",
        ],
    ),
    ("version", &["version"]),
];

#[tokio::test(start_paused = true)]
async fn every_verb_that_reads_shows_the_same_at_four_widths() {
    for (name, lines) in LINES {
        let mut all = String::new();
        for line in *lines {
            for width in WIDTHS {
                let at = width.map_or_else(|| "a pipe".to_owned(), |width| width.to_string());
                let seen = shown(&format!("runyard {line}"), width).await;
                all.push_str(&format!("$ runyard {line}    # {at}\n{seen}\n"));
            }
        }
        compare(&golden(&format!("{name}.txt")), &all);
    }
}

#[tokio::test(start_paused = true)]
async fn no_id_time_or_name_is_broken_at_any_width() {
    for (_, lines) in LINES {
        for line in *lines {
            let whole = shown(&format!("runyard {line}"), None).await;
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            for width in [20, 60, 80, 120] {
                let narrow = shown(&format!("runyard {line}"), Some(width)).await;
                assert_eq!(narrow.lines().count(), whole.lines().count(), "{line} at {width}:\n{narrow}");
                let known = words(&whole);
                for word in words(&narrow).iter().filter(|word| !word.ends_with('…')) {
                    assert!(known.contains(word), "{line} at {width}: {word} is broken:\n{narrow}");
                }
            }
        }
    }
}
