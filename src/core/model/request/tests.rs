use super::*;
use crate::model::{AttributeValue, Item, Reading, Record, read};

fn id(name: &str, attempt: u32) -> RequestKey {
    RequestKey {
        repository: "acme/web".parse().unwrap(),
        run_id: "7".parse().unwrap(),
        name: name.parse().unwrap(),
        attempt,
    }
}

#[test]
fn runners_of_a_run_stand_under_its_id_and_of_another_name_under_both() {
    assert_eq!(label(&id("default", 1)), "7");
    assert_eq!(label(&id("gpu", 1)), "7-gpu");
    assert_eq!(label(&id("default", 2)), "7", "attempts share it");
}

#[test]
fn a_runners_name_holds_its_machine_and_version() {
    let id = |text: &str| InstanceId::parse(text).unwrap();
    let machine = "i-0123456789abcdef0";
    for (name, version) in [(format!("runyard-{machine}.12"), 12), (format!("runyard-{machine}.12-3"), 12)] {
        assert_eq!(claim_of_runner(&name), Some((id(machine), version)));
        assert_eq!(machine_of_runner(&name), Some(id(machine)));
    }
    for other in ["runyard-x", "build-box", "runyard-i-1", &format!("{machine}.12"), "runyard-.1", ""] {
        assert_eq!((claim_of_runner(other), machine_of_runner(other)), (None, None), "{other}");
    }
    // Its number is not that of a claim: the machine may serve the claim with any number.
    let ahead = format!("runyard-ahead-{machine}.5");
    assert_eq!((claim_of_runner(&ahead), machine_of_runner(&ahead)), (None, Some(id(machine))));
}

#[test]
fn a_request_has_the_runners_of_its_claims_and_those_ahead_of_them() {
    let machine = "i-0123456789abcdef0";
    let id = InstanceId::parse(machine).unwrap();
    let mut request = of("default", None);
    request.status.instances = vec![id.clone()];
    request.status.claims = [(id.clone(), format!("{machine}.18").parse().unwrap())].into();
    for (runner, has) in [
        (format!("runyard-{machine}.18"), Some(true)),
        (format!("runyard-{machine}.18-2"), Some(true)),
        (format!("runyard-{machine}.12"), Some(false)),
        (format!("runyard-ahead-{machine}.16"), Some(true)),
        ("runyard-ahead-i-0123456789abcdef1.16".to_owned(), Some(false)),
        ("build-box".to_owned(), None),
    ] {
        assert_eq!(request.has_runner(&runner), has, "{runner}");
    }
    request.lose(&id);
    assert_eq!(request.has_runner(&format!("runyard-ahead-{machine}.16")), Some(false));
}

/// Returns the golden request under this run and name.
fn of(name: &str, suffix: Option<&str>) -> Request {
    let golden = include_str!("../../../../tests/golden/request-new.json");
    let item: Item = serde_json::from_str(golden).unwrap();
    let Reading::Record(mut request) = read::<Request>(&item) else { panic!("it is golden") };
    request.id = id(name, 1);
    request.intent.label_suffix = suffix.map(|suffix| suffix.parse().unwrap());
    request
}

#[test]
fn a_secret_part_ends_the_label_and_is_left_out_where_others_can_read() {
    let secret = of("gpu", Some("k3x9q0ab"));
    assert_eq!((secret.label(), secret.public_label()), ("7-gpu-k3x9q0ab".into(), "7-gpu-********".into()));
    assert_eq!(secret.labels(&["big".to_owned()])[1], "7-gpu-k3x9q0ab.big");
    assert_eq!((of("default", None).label(), of("default", None).public_label()), ("7".into(), "7".into()));
}

#[test]
fn a_malformed_label_suffix_makes_a_request_unreadable_and_names_the_form() {
    let golden = include_str!("../../../../tests/golden/request-new.json");
    for (suffix, readable) in [("k3x9q0ab", true), ("K3X9Q0AB", false), ("1", false), ("", false)] {
        let mut item: Item = serde_json::from_str(golden).unwrap();
        item.insert("labelSuffix".into(), AttributeValue::S(suffix.into()));
        match read::<Request>(&item) {
            Reading::Record(request) => {
                assert!(readable && request.intent.label_suffix.is_some(), "{suffix}");
                assert_eq!(request.to_item()["labelSuffix"], item["labelSuffix"]);
            }
            Reading::Unreadable(why) => {
                let why = why.to_string();
                assert!(!readable && why.contains("labelSuffix") && why.contains("use 8 of"), "{why}");
            }
            Reading::Newer { schema } => panic!("{schema}"),
        }
    }
}

#[test]
fn a_request_keeps_the_label_with_which_it_was_taken_on() {
    let mut request = of("default", Some("k3x9q0ab"));
    request.keep_intent();
    let mut item = request.to_item();
    item.insert("labelSuffix".into(), AttributeValue::S("00000000".into()));
    let Reading::Record(changed) = read::<Request>(&item) else { panic!("it is readable") };
    assert_eq!((changed.label(), changed.changed_attributes()), (request.label(), vec!["labelSuffix"]));
}

#[test]
fn a_runner_is_named_by_its_claim_and_from_the_second_box_on_by_that_too() {
    let claim: ClaimId = "i-1.7".parse().unwrap();
    let names = [0, 1, 2, 3].map(|seq| runner_name(&claim, seq));
    assert_eq!(names, ["runyard-i-1.7", "runyard-i-1.7", "runyard-i-1.7-2", "runyard-i-1.7-3"]);
}

#[test]
fn a_key_tells_its_request_and_only_in_the_form_in_which_it_is_written() {
    let key = Request::key_of(&id("gpu", 2));
    assert_eq!((key.pk().as_str(), key.sk().as_str()), ("request#acme/web#7", "request#gpu#2"));
    assert_eq!(Request::id_of(&key).unwrap(), id("gpu", 2));
    for (pk, sk) in [
        ("request#acme/web#7", "request#gpu#02"),
        ("request#acme/web#7", "request#gpu"),
        ("request#acme/web#7", "request#gpu#-1"),
        ("request#acme/web", "request#gpu#2"),
        ("pool#linux", "pool"),
    ] {
        assert!(Request::id_of(&RecordId::new(pk, sk)).is_err(), "{pk} {sk}");
    }
}

#[test]
fn extra_labels_are_bound_to_the_runs_own_by_a_dot_and_for_now_by_a_hyphen() {
    let extras = ["gpu".to_owned(), "big".to_owned()];
    assert_eq!(of("default", None).labels(&extras), ["7", "7.gpu", "7-gpu", "7.big", "7-big"]);
    assert_eq!(of("build", None).labels(&[]), ["7-build"]);
}

#[test]
fn a_key_of_before_is_read_however_its_repository_is_spelt() {
    let golden = include_str!("../../../../tests/golden/request-new.json");
    for (key, attribute, readable) in [
        ("acme/web", "acme/web", true),
        ("acme/web", "Acme/Web", true),
        ("Acme/Web", "Acme/Web", true),
        ("Acme/Web", "acme/web", true),
        ("acme/web", "acme/api", false),
    ] {
        let mut item: Item = serde_json::from_str(golden).unwrap();
        let text = |text: String| AttributeValue::S(text);
        item.insert("pk".into(), text(format!("request#{key}#1234567890")));
        item.insert("repository".into(), text(attribute.into()));
        let read = match read::<Request>(&item) {
            Reading::Record(request) => Some(request),
            Reading::Unreadable(_) => None,
            Reading::Newer { schema } => panic!("{schema}"),
        };
        assert_eq!(read.is_some(), readable, "{key} {attribute}");
        if let Some(request) = read {
            assert_eq!(
                (request.id.repository.as_str(), request.intent.repository.as_str()),
                (key, attribute)
            );
            assert_eq!(request.key().pk(), format!("request#{key}#1234567890"));
            assert_eq!(request.to_item()["repository"], item["repository"]);
        }
    }
}
