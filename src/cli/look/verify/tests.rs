use clap::Parser as _;
use runyard_core::model::history::{Activity, EndedClaim, HistoryLine, MachineLine, Span};
use runyard_core::model::{
    ClaimEnd, ClaimProof, CleaningItem, Finding, InstanceArn, InstanceId, RecordId, Signal, UsageClass,
};
use runyard_core::ports::Signer as _;
use runyard_operator::signing::StatementKey;

use super::*;
use crate::verbs::{AnyVerb, Cli, Once};

/// The key of RFC 8410, section 10, and another.
const PRIVATE: &str = "-----BEGIN PRIVATE KEY-----\n\
    MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n-----END PRIVATE KEY-----\n";
const OTHER: &str = "-----BEGIN PUBLIC KEY-----\n\
    MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuA=\n-----END PUBLIC KEY-----\n";

/// The files that a person has.
struct Files {
    dir: tempfile::TempDir,
    key: StatementKey,
}

impl Files {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("private.pem");
        std::fs::write(&file, PRIVATE).unwrap();
        Self { key: StatementKey::read(&file).unwrap(), dir }
    }

    fn with(&self, name: &str, contents: &str) -> String {
        let file = self.dir.path().join(name);
        std::fs::write(&file, contents).unwrap();
        file.display().to_string()
    }

    /// Verifies a file of these lines; returns the exit code and the output.
    fn verify(&self, lines: &str, more: &[&str]) -> (u8, String) {
        let file = self.with("claims", lines);
        let words = ["runyard", "verify", &file].into_iter().chain(more.iter().copied());
        let cli = Cli::try_parse_from(words).unwrap();
        let (mut screen, read) = Screen::kept_at(&cli.common.output, None);
        let AnyVerb::Once(Once::Verify(args)) = cli.verb else { panic!("it is verify") };
        let code = run(&mut screen, &args).map_or_else(|failure| failure.exit.code(), |()| 0);
        (code, read())
    }

    fn public(&self) -> String {
        self.with("public.pem", &self.key.public_pem())
    }

    fn sealed(&self, claim: &EndedClaim) -> String {
        let sign = |bytes: &[u8]| Ok::<_, std::convert::Infallible>(self.key.sign(bytes));
        Envelope::seal(&Statement::of(claim), sign).unwrap().text()
    }
}

/// A claim whose items have these findings.
fn claim(finding: impl Fn(CleaningItem) -> Option<Finding>) -> EndedClaim {
    let id = InstanceId::parse("i-1").unwrap();
    let at = |second: i64| jiff::Timestamp::from_second(1_767_614_400 + second).unwrap();
    let request = Some(RecordId::new("request#acme/web#42", "request#default#1"));
    let span = |activity, from, to| Span { activity, from: at(from), to: at(to), request: request.clone() };
    let line = MachineLine {
        instance_arn: InstanceArn::local(&id),
        instance_id: id,
        resource_class: "linux-x64".parse().unwrap(),
        instance_type: "m7i.large".into(),
        availability_zone: "eu-west-1a".into(),
        usage_class: UsageClass::Spot,
        launched_at: at(0),
        spans: vec![span(Activity::Starting, 0, 60), span(Activity::Cleaning, 60, 63)],
        held_by: None,
        ended: None,
    };
    let claim_id: runyard_core::model::ClaimId = "i-1.4".parse().unwrap();
    let items = CleaningItem::ALL.iter().filter_map(|item| Some((*item, finding(*item)?)));
    let end = ClaimEnd {
        trust_domain: "owner:acme".into(),
        runner: None,
        agent_version: None,
        signal: Some(Signal::RemoveRegOk),
        detail: None,
        proof: Some(ClaimProof { cleaning: items.collect(), ..ClaimProof::of(&claim_id) }),
        claim_id,
    };
    EndedClaim { line, domain_before: Some(String::new()), end }
}

fn whole() -> EndedClaim {
    claim(|_| Some(Finding::Passed))
}

#[test]
fn a_statement_is_proved_by_its_key_alone_and_says_what_is_not_known() {
    let files = Files::new();
    let (text, public) = (files.sealed(&whole()), files.public());
    let (code, told) = files.verify(&text, &["--key", &public]);
    assert_eq!(code, 0, "{told}");
    assert!(told.starts_with("i-1.4 of acme/web run 42/default/1: proved clean\n"), "{told}");
    for part in ["signature     of the given key", "records       not compared", "not known     agentVersion"]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(files.verify(&text, &[]).0, 1, "nobody checked who signed it");
    let other = files.with("other.pem", OTHER);
    let (code, told) = files.verify(&text, &["--key", &other]);
    assert!(code == 1 && told.starts_with("not proved: keyid: "), "{told}");
}

#[test]
fn every_changed_byte_of_a_statement_is_found() {
    let files = Files::new();
    let (text, public) = (files.sealed(&whole()).into_bytes(), files.public());
    let key = PublicKey::of_pem(std::fs::read(public).unwrap().as_slice()).unwrap();
    for at in 0..text.len() {
        for bit in 0..7 {
            let mut changed = text.clone();
            changed[at] ^= 1 << bit;
            let line = String::from_utf8(changed).unwrap();
            assert!(!verdict(&line, Some(&key), None).proved(), "byte {at}, bit {bit}: {line}");
        }
    }
    assert!(verdict(str::from_utf8(&text).unwrap(), Some(&key), None).proved());
}

#[test]
fn a_claim_with_a_failed_or_missing_item_is_not_proved_although_it_is_signed() {
    let files = Files::new();
    let public = files.public();
    for (finding, word) in [(Some(Finding::Failed), "failed"), (None, "unknown")] {
        let planted = claim(|item| if item == CleaningItem::Files { finding } else { Some(Finding::Passed) });
        let (code, told) = files.verify(&files.sealed(&planted), &["--key", &public]);
        assert!(code == 1 && told.contains(": not proved\n"), "{told}");
        assert!(told.lines().any(|line| line == format!("  {word:<14}files")), "{told}");
    }
}

#[test]
fn records_are_compared_with_the_history_and_each_statement_counts() {
    let files = Files::new();
    let (good, public) = (whole(), files.public());
    let line = serde_json::to_string(&HistoryLine::Machine(good.line.clone())).unwrap();
    let kept = files.with("history.jsonl", &format!("{{}}\n{line}\n"));
    let text = files.sealed(&good);
    assert_eq!(files.verify(&text, &["--key", &public, "--history", &kept]).0, 0);
    let changed = files.with("changed.jsonl", &line.replace("m7i.large", "m7i.metal"));
    let (code, told) = files.verify(&text, &["--key", &public, "--history", &changed]);
    assert!(code == 1 && told.contains("records       not in the given history"), "{told}");
    let (code, told) = files.verify(&format!("{text}\n{{}}\n"), &["--key", &public, "-o", "json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    let proved = |at: usize| told["items"][at]["proved"].as_bool();
    assert_eq!((code, proved(0), proved(1)), (1, Some(true), Some(false)), "{told}");
    assert_eq!(told["items"][0]["statement"]["subject"][0]["name"], "claim:i-1.4");
}

#[test]
fn a_file_that_cannot_be_used_is_wrong_usage_and_a_private_key_is_refused_unseen() {
    let files = Files::new();
    let (text, public) = (files.sealed(&whole()), files.public());
    let private = files.with("private.pem", PRIVATE);
    for more in [&["--key", &private][..], &["--key", "/none"], &["--history", "/none"]] {
        let (code, told) = files.verify(&text, more);
        assert!(code == 2 && !told.contains("MC4C"), "{more:?} {told}");
    }
    assert_eq!(files.verify("\n", &["--key", &public]).0, 2);
}
