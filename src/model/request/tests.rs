use super::*;

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
fn a_runner_is_named_by_its_claim_and_from_the_second_box_on_by_that_too() {
    let claim: ClaimId = "i-1.7".parse().unwrap();
    let names = [0, 1, 2, 3].map(|seq| runner_name(&claim, seq));
    assert_eq!(names, ["runyard-i-1.7", "runyard-i-1.7", "runyard-i-1.7-2", "runyard-i-1.7-3"]);
}

#[test]
fn a_key_tells_its_request_and_only_in_the_form_in_which_it_is_written() {
    let key = Request::key_of(&id("gpu", 2));
    assert_eq!((key.pk.as_str(), key.sk.as_str()), ("request#acme/web#7", "request#gpu#2"));
    assert_eq!(Request::id_of(&key).unwrap(), id("gpu", 2));
    for (pk, sk) in [
        ("request#acme/web#7", "request#gpu#02"),
        ("request#acme/web#7", "request#gpu"),
        ("request#acme/web#7", "request#gpu#-1"),
        ("request#acme/web", "request#gpu#2"),
        ("pool#linux", "pool"),
    ] {
        assert!(Request::id_of(&Key::new(pk, sk)).is_err(), "{pk} {sk}");
    }
}
