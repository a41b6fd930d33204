//! `runyard cost` over a history: what it reads, and that its formats agree.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::Parser as _;
use jiff::{SignedDuration, Timestamp};
use runyard_fakes::{MemoryStore, TokioClock};
use serde_json::Value;

use super::*;
use crate::output::screen::Screen;
use crate::verbs::{AnyVerb, Cli, Once};
use runyard_core::model::history::{Activity, Ended, HistoryLine, MachineLine, RequestLine, Span};
use runyard_core::model::{
    JobReport, Phase, Reason, RecordId, Repository, Request, RequestKey, Uid, UsageClass,
};

/// The current time of the tests.
fn now() -> Timestamp {
    "2026-11-20T12:00:00Z".parse().unwrap()
}

fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

/// Returns two history lines of a machine that started for a run, served it, was cleaned, waited in the pool and ended.
fn machine(number: u32, repository: &str, begun: i64) -> Vec<HistoryLine> {
    let id = format!("i-{number:017x}");
    let request = RecordId::new(format!("request#{repository}#{number}"), "request#default#1");
    let span = |activity, from: i64, to: i64, mine: bool| Span {
        activity,
        from: ago(begun - from),
        to: ago(begun - to),
        request: mine.then(|| request.clone()),
    };
    let line = |spans| MachineLine {
        instance_id: id.parse().unwrap(),
        instance_arn: format!("arn:aws:ec2:us-east-1:123456789012:instance/{id}").parse().unwrap(),
        resource_class: "small".parse().unwrap(),
        instance_type: "m7i.xlarge".into(),
        availability_zone: "us-east-1a".into(),
        usage_class: UsageClass::OnDemand,
        launched_at: ago(begun),
        spans,
        held_by: None,
        ended: None,
    };
    let first = line(vec![
        span(Activity::Starting, 0, 60, true),
        span(Activity::Running, 60, 3_000, true),
        span(Activity::Cleaning, 3_000, 3_030, true),
    ]);
    let mut last =
        line(vec![span(Activity::Idle, 3_030, 3_590, false), span(Activity::Ending, 3_590, 3_600, false)]);
    last.ended = Some(Ended { at: ago(begun - 3_600), reason: Reason::Surplus });
    vec![HistoryLine::Machine(first), HistoryLine::Machine(last)]
}

fn history() -> Vec<HistoryLine> {
    [machine(1, "acme/web", 50_000), machine(2, "acme/api", 20_000), machine(3, "acme/web", 10_000)].concat()
}

async fn told(line: &str, history: Option<&[HistoryLine]>) -> String {
    let cli = Cli::try_parse_from(line.split(' ')).unwrap_or_else(|error| panic!("{line}: {error}"));
    let (screen, read) = Screen::kept_at(&cli.common.output, None);
    let mut context = CliContext::on(MemoryStore::new(), screen);
    context.clock = Arc::new(TokioClock::starting(now()));
    if let Some(lines) = history {
        let store = MemoryStore::new();
        lines.iter().for_each(|line| store.put(line.to_item(86_400)));
        context.history = Some(Arc::new(store));
    }
    let AnyVerb::Once(Once::Cost(args)) = cli.verb else { panic!("{line} is not cost") };
    args.run_on(&mut context).await.unwrap_or_else(|failure| panic!("{line}: {failure:?}"));
    read()
}

#[tokio::test(start_paused = true)]
async fn what_the_history_has_is_added_up_by_repository() {
    let told: Value = serde_json::from_str(&told("runyard cost -o json", Some(&history())).await).unwrap();
    let seconds = |item: &Value| item["machineSeconds"].as_u64().unwrap();
    let items: BTreeMap<&str, u64> = told["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["repository"].as_str().unwrap(), seconds(item)))
        .collect();
    assert_eq!(items, BTreeMap::from([("acme/api", 3_030), ("acme/web", 6_060)]));
    assert_eq!((seconds(&told["total"]), seconds(&told["idle"][0])), (10_800, 3 * 570));
    // Three machine-hours at list price.
    assert_eq!(told["total"]["cost"].as_f64(), Some(0.6048));
    assert_eq!(told["unpriced"], Value::Array(vec![]));
}

/// A slot's key names a scale set, of an organisation even no repository.
#[tokio::test(start_paused = true)]
async fn a_slot_is_charged_to_the_repository_and_the_run_of_its_job() {
    let slot = RequestKey {
        repository: Repository::of_organization("acme").unwrap(),
        run_id: "set-7".parse().unwrap(),
        name: "s1".parse().unwrap(),
        attempt: 1,
    };
    let on_slot = |line: HistoryLine| match line {
        HistoryLine::Machine(mut line) => {
            let serves = line.spans.iter_mut().filter(|span| span.request.is_some());
            serves.for_each(|span| span.request = Some(Request::key_of(&slot)));
            HistoryLine::Machine(line)
        }
        other => other,
    };
    let machine: Vec<HistoryLine> = machine(4, "acme/web", 40_000).into_iter().map(on_slot).collect();
    let uid = Uid::parse("u-1").unwrap();
    let mut over = Request::slot_of_set(&slot, &"small".parse().unwrap(), uid, ago(40_000));
    (over.status.phase, over.status.ended_at) = (Some(Phase::Released), Some(ago(36_970)));
    let with = |over: &Request| {
        let line = RequestLine::of(over).expect("it is over");
        [machine.clone(), vec![HistoryLine::Request(line)]].concat()
    };
    let waited = figures(&told("runyard cost", Some(&with(&over))).await);
    assert!(waited.contains_key("acme/~"), "its runner waited in vain: {waited:?}");
    over.status.job = Some(JobReport::of("Acme/Web", "41", 2, "build", ago(39_000)).unwrap());
    let lines = with(&over);
    for (line, row) in [("runyard cost", "acme/web"), ("runyard cost --by run", "acme/web 41")] {
        let rows = figures(&told(line, Some(&lines)).await);
        assert!(rows.contains_key(row) && rows.len() == 3, "{rows:?}");
    }
    let focus = told("runyard cost -o focus", Some(&lines)).await;
    assert!(focus.contains(r#"""runyard_repository"":""acme/web"",""runyard_run"":""41"""#), "{focus}");
}

/// Returns the rows of a table by their first word: hours, cost, idle, total.
fn figures(text: &str) -> BTreeMap<String, Vec<String>> {
    let rows =
        text.lines().skip(1).filter(|line| !line.starts_with("no price") && !line.starts_with("prices"));
    rows.map(|line| {
        let cells: Vec<String> =
            line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect();
        (cells[0].clone(), cells[1..].to_vec())
    })
    .collect()
}

fn hours(rows: &BTreeMap<String, Vec<String>>, row: &str, at: usize) -> f64 {
    rows[row][at].parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_has_no_price_is_never_shown_as_free() {
    let elsewhere = |line: HistoryLine| match line {
        HistoryLine::Machine(mut line) => {
            line.availability_zone = "eu-west-1a".into();
            HistoryLine::Machine(line)
        }
        other => other,
    };
    let unknown: Vec<HistoryLine> = machine(9, "acme/far", 40_000).into_iter().map(elsewhere).collect();
    let text = told("runyard cost", Some(&unknown)).await;
    let rows = figures(&text);
    let all = &rows["all"];
    assert_eq!(all.last().map(String::as_str), Some("?"), "{text}");
    assert!(!all.iter().any(|cell| cell.starts_with('$')), "{text}");
    assert_eq!(rows["acme/far"][3], "?", "{text}");
    assert!(text.contains("what they cost is not known"), "{text}");
    let both = [history(), unknown].concat();
    let text = told("runyard cost", Some(&both)).await;
    assert!(figures(&text)["all"].last().unwrap().starts_with("at least $0.6"), "{text}");
    let document: Value = serde_json::from_str(&told("runyard cost -o json", Some(&both)).await).unwrap();
    let far =
        document["items"].as_array().unwrap().iter().find(|item| item["repository"] == "acme/far").unwrap();
    assert_eq!((&far["cost"], &far["totalCost"]), (&Value::Null, &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn the_hours_of_the_rows_add_up_to_those_of_all() {
    for (line, rows) in [
        ("runyard cost", &["acme/web", "acme/api", "(idle)"][..]),
        ("runyard cost --share-idle none", &["acme/web", "acme/api", "(idle)"]),
        ("runyard cost --by pool", &["small"]),
    ] {
        let text = told(line, Some(&history())).await;
        let shown = figures(&text);
        // `(idle)` has no requests, so its hours come first.
        let of = |row: &&str| hours(&shown, row, usize::from(*row != "(idle)"));
        let sum: f64 = rows.iter().map(of).sum();
        assert!((sum - hours(&shown, "all", 1)).abs() < 0.15, "{line}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn words_of_others_in_a_note_move_no_cursor_and_begin_no_line() {
    let hostile = |line: HistoryLine| match line {
        HistoryLine::Machine(mut line) => {
            line.instance_type = "x\u{1b}[2J\n::error::\u{202e}".into();
            HistoryLine::Machine(line)
        }
        other => other,
    };
    let lines: Vec<HistoryLine> = machine(9, "acme/web", 40_000).into_iter().map(hostile).collect();
    let text = told("runyard cost", Some(&lines)).await;
    assert!(text.chars().all(|c| c == '\n' || !runyard_operator::telemetry::unprintable(c)), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("::")), "{text:?}");
}

#[tokio::test(start_paused = true)]
async fn an_export_tells_the_same_as_the_table() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text: String = history().iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect();
    std::fs::write(file.path(), text).unwrap();
    for form in ["json", "csv", "focus", "wide"] {
        let read = format!("runyard cost --by pool -o {form}");
        let exported = format!("{read} --from {}", file.path().display());
        assert_eq!(told(&exported, None).await, told(&read, Some(&history())).await, "{form}");
    }
}

#[tokio::test(start_paused = true)]
async fn focus_rows_have_the_mandatory_columns_and_cost_what_the_table_says() {
    let text = told("runyard cost -o focus", Some(&history())).await;
    let mut lines = text.lines();
    let heads: Vec<&str> = lines.next().unwrap().split(',').collect();
    // FOCUS 1.2, feature level "Mandatory".
    for column in [
        "BilledCost",
        "BillingAccountId",
        "BillingAccountName",
        "BillingCurrency",
        "BillingPeriodEnd",
        "BillingPeriodStart",
        "ChargeCategory",
        "ChargeClass",
        "ChargeDescription",
        "ChargePeriodEnd",
        "ChargePeriodStart",
        "ContractedCost",
        "EffectiveCost",
        "InvoiceIssuerName",
        "ListCost",
        "PricingQuantity",
        "PricingUnit",
        "ProviderName",
        "PublisherName",
        "ServiceCategory",
        "ServiceName",
    ] {
        assert!(heads.contains(&column), "{column}");
    }
    let at = heads.iter().position(|head| *head == "BilledCost").unwrap();
    let sum: f64 = lines.map(|line| line.split(',').nth(at).unwrap().parse::<f64>().unwrap()).sum();
    assert!((sum - 0.6048).abs() < 1e-7, "{sum}");
}

/// Splits a line of CSV into cells; those with commas are quoted.
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut quoted) = (vec![String::new()], false);
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            letter => cells.last_mut().unwrap().push(letter),
        }
    }
    cells
}

/// A cost and usage report counts a machine's seconds from `running` to `shutting-down`, which the records do not
/// contain.
#[tokio::test(start_paused = true)]
async fn hours_by_machine_are_within_a_hundredth_of_a_cost_and_usage_report() {
    let text = told("runyard cost -o focus", Some(&history())).await;
    let mut lines = text.lines();
    let heads: Vec<&str> = lines.next().unwrap().split(',').collect();
    let column = |name: &str| heads.iter().position(|head| *head == name).unwrap();
    let mut seconds: BTreeMap<String, f64> = BTreeMap::new();
    for line in lines {
        let cells = cells(line);
        let consumed: f64 = cells[column("ConsumedQuantity")].parse().unwrap();
        *seconds.entry(cells[column("ResourceId")].clone()).or_default() += consumed;
    }
    assert_eq!(seconds.len(), 3);
    let report = 3_600.0 - 9.0 - 10.0;
    for (machine, ours) in seconds {
        let off = (ours - report).abs() / report;
        assert!(off <= 0.01, "{machine}: {ours} and {report}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_price_the_type_is_named_and_how_to_add_it() {
    let mut lines = history();
    for line in &mut lines {
        if let HistoryLine::Machine(line) = line {
            line.availability_zone = "eu-west-1a".into();
        }
    }
    let text = told("runyard cost", Some(&lines)).await;
    assert!(text.contains("no price: m7i.xlarge in eu-west-1") && text.contains("--prices FILE"), "{text}");
}

#[test]
fn what_leaves_no_time_or_no_teams_is_refused() {
    let refused = |line: &str| {
        let AnyVerb::Once(Once::Cost(args)) = Cli::try_parse_from(line.split(' ')).unwrap().verb else {
            panic!("{line} is not cost")
        };
        let (environment, table) =
            (&crate::common::environment::Environment::default(), &"runyard".parse().unwrap());
        args.check(&Start { environment, table }).err().map(|failure| failure.problems[0].field.clone())
    };
    assert_eq!(refused("runyard cost --since 1d --until 2d").as_deref(), Some("--until"));
    assert_eq!(refused("runyard cost --by team").as_deref(), Some("--by"));
    assert_eq!(refused("runyard cost --prices /nowhere").as_deref(), Some("prices"));
    assert_eq!(refused("runyard cost --from /nowhere").as_deref(), Some("--from"));
    assert_eq!(refused("runyard cost"), None);
}

#[tokio::test(start_paused = true)]
async fn a_held_machine_is_a_row_of_its_holder() {
    let mut lines = history();
    if let Some(HistoryLine::Machine(line)) = lines.get_mut(1) {
        line.spans[0].activity = Activity::Held;
        line.held_by = Some("ada".into());
    }
    let told: Value = serde_json::from_str(&told("runyard cost -o json", Some(&lines)).await).unwrap();
    let items = told["items"].as_array().unwrap();
    let held = items.iter().find(|item| item["repository"] == "(held for ada)").expect("a row");
    assert_eq!((held["heldSeconds"].as_u64(), held["requests"].as_u64()), (Some(560), Some(0)));
}
