use clap::Parser as _;
use runyard_fakes::MemoryStore;
use serde_json::{Value, json};

use crate::common::failure::CliFailure;
use crate::output::screen::Screen;
use crate::session::context::CliContext;
use crate::session::verb::Verb as _;
use crate::verbs::{AnyVerb, Cli, Once};
use runyard_core::model::Item;

fn item(fields: Value) -> Item {
    let item: serde_dynamo::Item = serde_dynamo::to_item(fields).unwrap();
    item.into_inner().into_iter().collect()
}

fn request(repository: &str, name: &str) -> Item {
    item(json!({
        "pk": format!("request#{repository}#41"), "sk": format!("request#{name}#1"), "kind": "request", "version": 1,
        "runId": "41", "attempt": 1, "repository": repository, "name": name, "resourceClass": "small", "count": 1,
        "desired": "provisioned", "generation": 1, "asked": "job",
    }))
}

fn event(reason: &str) -> Item {
    item(json!({
        "pk": "request#acme/web#41", "sk": format!("event#1970-01-01T00:00:00.000Z#{reason}"), "kind": "event",
        "type": "Warning", "reason": reason, "message": format!("said {reason}"), "at": "1970-01-01T00:00:00Z",
        "subject": "request#acme/web#41", "actor": "operator",
    }))
}

/// Runs `explain` with these words on these items; returns its output.
async fn explained(items: &[Item], words: &[&str]) -> Result<String, CliFailure> {
    let store = MemoryStore::new();
    items.iter().cloned().for_each(|item| store.put(item));
    let cli = Cli::try_parse_from([&["runyard", "explain"], words].concat()).unwrap();
    let (screen, written) = Screen::kept_at(&cli.common.output, None);
    let mut context = CliContext::on(store, screen);
    let AnyVerb::Once(Once::Explain(args)) = cli.verb else { panic!("it is explain") };
    args.run_on(&mut context).await.map(|()| written())
}

#[tokio::test]
async fn a_run_without_a_credential_is_told_by_its_requests_and_events() {
    let items = [request("acme/web", "small"), event("JobAsked"), event("JobNotServed"), event("Claimed")];
    for words in [&["run", "41"][..], &["run/41"], &["runs", "41", "--repository", "Acme/Web"]] {
        let told = explained(&items, words).await.unwrap();
        let lines: Vec<&str> = told.lines().collect();
        assert!(lines[0].to_lowercase().starts_with("run 41 of acme/web"), "{told}");
        assert!(
            lines[1].starts_with("request acme/web run 41/small/1 asks for 1 of class small: new"),
            "{told}"
        );
        assert!(told.contains("\nevent 1970-01-01T00:00:00Z JobAsked: said JobAsked\n"), "{told}");
        assert!(told.contains(" JobNotServed: said JobNotServed\n") && !told.contains("Claimed"), "{told}");
        assert!(
            lines.last().unwrap().starts_with("unknown: its jobs, because GitHub is not asked"),
            "{told}"
        );
        assert!(told.contains("GITHUB_TOKEN") && told.contains("--config"), "{told}");
    }
    let told = explained(&items, &["run", "41", "-o", "json"]).await.unwrap();
    let document: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(document["run"], json!({"repository": "acme/web", "runId": "41"}));
    assert_eq!(document["requests"][0]["request"], "41/small/1");
    assert_eq!(document["events"].as_array().unwrap().len(), 2);
    assert_eq!((&document["jobs"], document["unknown"].as_array().unwrap().len()), (&json!([]), 1));
}

#[tokio::test]
async fn a_run_that_no_record_knows_needs_its_repository() {
    let fix = |failure: CliFailure| (failure.problems[0].message.clone(), failure.problems[0].fix.clone());
    let (message, asks) = fix(explained(&[], &["run", "41"]).await.unwrap_err());
    assert!(message.contains("has no request in this yard"), "{message}");
    assert_eq!(asks, "give --repository OWNER/REPO");
    let two = [request("acme/web", "small"), request("acme/api", "small")];
    let (message, _) = fix(explained(&two, &["run", "41"]).await.unwrap_err());
    assert!(message.contains("acme/api, acme/web"), "{message}");
    let (message, _) = fix(explained(&two, &["run", "42", "--repository", "acme/web"]).await.unwrap_err());
    assert!(message.starts_with("nothing is known of it in acme/web"), "{message}");
    // An event alone tells something.
    let told = explained(&[event("JobNotServed")], &["run", "41", "--repository", "acme/web"]).await.unwrap();
    assert!(told.contains("JobNotServed: said JobNotServed"), "{told}");
}

#[tokio::test]
async fn a_run_is_named_by_its_number_and_other_verbs_lead_to_it() {
    let problem = |failure: CliFailure| failure.problems[0].clone();
    let none = problem(explained(&[], &["run"]).await.unwrap_err());
    assert_eq!((none.field.as_str(), none.fix.as_str()), ("NAME", "write run RUN_ID"));
    let several = problem(explained(&[], &["run", "4 1"]).await.unwrap_err());
    assert_eq!(several.field, "NAME");
    let near = problem(explained(&[], &["rum", "41"]).await.unwrap_err());
    assert!(near.fix.contains("did you mean run?"), "{}", near.fix);
    let other = crate::input::what::noun("run").unwrap_err();
    assert!(other.fix.contains("`runyard explain run RUN_ID`"), "{}", other.fix);
}
