use std::convert::Infallible;

use super::*;
use crate::model::history::{Activity, Ended, Span};
use crate::model::{
    ClaimEnd, ClaimProof, CleaningItem, FieldError, Finding, InstanceArn, InstanceId, JobReport, Reason,
    RecordId, Signal, UsageClass,
};
use crate::testing::at;

/// A claim of `i-1` whose every item was proved.
fn claim() -> EndedClaim {
    let id = InstanceId::parse("i-1").unwrap();
    let request = RecordId::new("request#acme/web#42", "request#default#1");
    let span =
        |activity, from, to| Span { activity, from: at(from), to: at(to), request: Some(request.clone()) };
    let line = MachineLine {
        instance_arn: InstanceArn::local(&id),
        instance_id: id,
        resource_class: "linux-x64".parse().unwrap(),
        instance_type: "m7i.large".into(),
        availability_zone: "eu-west-1a".into(),
        usage_class: UsageClass::Spot,
        launched_at: at(-900),
        spans: vec![
            Span { request: None, ..span(Activity::Idle, 0, 60) },
            span(Activity::Claimed, 60, 62),
            span(Activity::Running, 62, 400),
            span(Activity::Cleaning, 400, 403),
        ],
        held_by: None,
        ended: None,
    };
    let claim_id: crate::model::ClaimId = "i-1.4".parse().unwrap();
    let proof = ClaimProof {
        image: Some("ami-0123456789abcdef0".into()),
        package: Some("0a".repeat(32)),
        isolation: vec!["jobUser".into(), "jail".into()],
        jobs: Some(vec![JobReport::of("acme/web", "42", 1, "build", at(70)).unwrap()]),
        cleaning: CleaningItem::ALL.iter().map(|item| (*item, Finding::Passed)).collect(),
        ..ClaimProof::of(&claim_id)
    };
    let end = ClaimEnd {
        claim_id,
        trust_domain: "owner:acme".into(),
        runner: None,
        agent_version: Some("0.1.0".into()),
        signal: Some(Signal::RemoveRegOk),
        detail: None,
        proof: Some(proof),
    };
    EndedClaim { line, domain_before: Some(String::new()), end }
}

/// A toy signature: whether the bytes are all there is what the form is tested with; a real one is of the adapters.
fn toy(bytes: &[u8]) -> Vec<u8> {
    digest_of_text(bytes).into_bytes()
}

fn sealed(claim: &EndedClaim) -> String {
    let sign = |bytes: &[u8]| Ok::<_, Infallible>(("0b".repeat(32), toy(bytes)));
    Envelope::seal(&Statement::of(claim), sign).unwrap().text()
}

fn opened(text: &str) -> Result<Statement, FieldError> {
    let wrong = |what: &str| FieldError::new(what, "", "is another", "give the right one");
    Envelope::parse(text)?.open(|keyid, bytes, signature| {
        if keyid != "0b".repeat(32) {
            return Err(wrong("keyid"));
        }
        if signature == toy(bytes) { Ok(()) } else { Err(wrong("sig")) }
    })
}

#[test]
fn the_same_claim_gives_the_same_bytes_and_a_statement_is_read_as_it_was() {
    let text = sealed(&claim());
    assert_eq!(text, sealed(&claim()));
    let statement = opened(&text).unwrap();
    assert_eq!(statement, Statement::of(&claim()));
    assert!(statement.predicate.clean && statement.predicate.unknown.is_empty(), "{statement:?}");
    assert_eq!(Envelope::parse(&text).unwrap().text(), text);
    assert!(text.len() < 4096, "{} bytes", text.len());
}

#[test]
fn every_changed_byte_of_an_envelope_is_found() {
    let text = sealed(&claim()).into_bytes();
    let mut missed = Vec::new();
    for at in 0..text.len() {
        for bit in 0..8 {
            let mut changed = text.clone();
            changed[at] ^= 1 << bit;
            if String::from_utf8(changed).is_ok_and(|changed| opened(&changed).is_ok()) {
                missed.push((at, bit));
            }
        }
        let mut shorter = text.clone();
        shorter.remove(at);
        if String::from_utf8(shorter).is_ok_and(|shorter| opened(&shorter).is_ok()) {
            missed.push((at, 8));
        }
    }
    assert_eq!(missed, []);
}

#[test]
fn an_envelope_with_more_than_ours_is_refused() {
    let text = sealed(&claim());
    for (from, to) in [
        ("{\"payload\"", "{\"note\":1,\"payload\""),
        ("\"signatures\":[", "\"signatures\":[{\"keyid\":\"\",\"sig\":\"\"},"),
        ("\"keyid\"", "\"cert\":\"\",\"keyid\""),
        (PAYLOAD_TYPE, "text/plain"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text);
        assert!(Envelope::parse(&changed).is_err(), "{to}");
    }
}

#[test]
fn a_payload_of_another_kind_is_refused_though_it_is_signed() {
    for change in [
        |s: &mut Statement| s.kind = "https://in-toto.io/Statement/v0.1".into(),
        |s: &mut Statement| s.predicate_type = "https://slsa.dev/provenance/v1".into(),
        |s: &mut Statement| s.subject.clear(),
        |s: &mut Statement| s.subject[0].name = "claim:i-1.5".into(),
        |s: &mut Statement| s.subject.push(s.subject[0].clone()),
    ] {
        let mut statement = Statement::of(&claim());
        change(&mut statement);
        let sign = |bytes: &[u8]| Ok::<_, Infallible>(("0b".repeat(32), toy(bytes)));
        let text = Envelope::seal(&statement, sign).unwrap().text();
        assert_eq!(opened(&text).unwrap_err().field, "payload", "{text}");
    }
}

#[test]
fn the_digest_is_of_the_line_as_the_history_exports_it() {
    let claim = claim();
    let line = HistoryLine::Machine(claim.line.clone());
    let read = HistoryLine::of_item(&line.to_item(60)).unwrap();
    let text = serde_json::to_string(&read).unwrap();
    assert_eq!(Statement::of(&claim).subject[0].digest.sha256, digest_of_text(text.as_bytes()));
    let mut other = claim;
    other.line.spans[2].to = at(401);
    assert_ne!(digest_of(&other.line), digest_of_text(text.as_bytes()));
}

#[test]
fn a_statement_is_kept_under_the_run_that_it_is_about() {
    let request = claim().request().cloned().unwrap();
    let claim_id = claim().end.claim_id;
    let line =
        crate::model::history::StatementLine { request, claim_id, at: at(403), envelope: sealed(&claim()) };
    let line = HistoryLine::Statement(line);
    let key = line.key();
    assert_eq!(
        (key.pk.as_str(), key.sk.as_str()),
        ("statement#request#acme/web#42", "request#default#1#i-1.4")
    );
    assert_eq!(HistoryLine::of_item(&line.to_item(60)).unwrap(), line);
}

#[test]
fn a_machine_that_ended_or_was_held_is_said_to_be_lent_no_more() {
    let mut ended = claim();
    ended.line.ended = Some(Ended { at: at(500), reason: Reason::MaxUses });
    let said = Statement::of(&ended).predicate;
    assert_eq!((said.claim.outcome, said.claim.ended), (Outcome::Ended, Some(Reason::MaxUses)));
    assert!(said.clean, "it was clean before it ended");
    ended.line.spans.push(Span { activity: Activity::Held, from: at(403), to: at(500), request: None });
    assert_eq!(Statement::of(&ended).predicate.claim.outcome, Outcome::Held);
}
