//! What people write: names, keys, patterns of instance types, schedules and hours. Each input is lines: what a word is
//! tried as does not matter, it is tried as everything.

use jiff::Timestamp;
use runyard_core::decide::effective;
use runyard_core::model::{
    ClaimId, ClassName, FieldError, InstanceArn, InstanceId, InstanceTypes, Item, LaunchId, Pool, Reading,
    RecordId, Replacement, Repository, Request, RequestKey, RequestName, RunId, Schedule, TableName, label,
    read, runner_name,
};

use crate::fuzz::{fuzz, seeds};

/// A name is what was written, of characters that can be shown, or the complaint says field, value and fix.
fn name<T: std::fmt::Display>(parse: fn(&str) -> Result<T, FieldError>, word: &str) -> Option<T> {
    match parse(word) {
        Ok(name) => {
            assert_eq!(name.to_string(), word);
            assert!(word.bytes().all(|byte| byte.is_ascii_graphic()) && !word.is_empty(), "{word:?}");
            Some(name)
        }
        Err(error) => {
            assert!(!error.to_string().contains(['\n', '\0']), "{error}");
            None
        }
    }
}

fn names(word: &str) {
    name(ClassName::parse, word);
    name(InstanceId::parse, word);
    name(InstanceArn::parse, word);
    name(LaunchId::parse, word);
    name(TableName::parse, word);
    let claim = name(ClaimId::parse, word);
    if let Some(claim) = claim {
        assert!(runner_name(&claim, 2).len() > claim.as_str().len() && claim.version() < u64::MAX);
    }
    if let (Some(run_id), Ok(repository)) = (name(RunId::parse, word), Repository::parse("acme/web")) {
        let key = RequestKey { repository, run_id, name: RequestName::default_name(), attempt: 1 };
        assert_eq!(label(&key), word);
        assert_eq!(Request::id_of(&Request::key_of(&key)).ok(), Some(key), "a key says whose it is");
    }
    if let Some(repository) = name(Repository::parse, word) {
        assert_eq!(format!("{}/{}", repository.owner(), repository.name()), word);
    }
    name(RequestName::parse, word);
}

fn keys(word: &str) {
    let (pk, sk) = word.split_once(' ').unwrap_or((word, ""));
    let key = RecordId::new(pk, sk);
    if let Ok(id) = Request::id_of(&key) {
        assert_eq!(Request::key_of(&id), key);
    }
}

/// A class that keeps such schedules is judged at any moment, and every schedule that passes the check fires or says
/// that it does not.
fn schedules(word: &str, pool: &Pool) {
    let (cron, zone) = word.split_once('@').unwrap_or((word, "UTC"));
    let schedule = Schedule { cron: cron.into(), time_zone: zone.into(), desired: 1 };
    let checked = schedule.check();
    let mut pool = pool.clone();
    pool.scale = None;
    pool.spec.sizing = None;
    pool.spec.schedules = vec![schedule];
    for at in ["2026-02-28T23:59:59Z", "2026-03-29T01:00:00Z", "1970-01-01T00:00:00Z"] {
        let now: Timestamp = at.parse().unwrap();
        let wanted = effective(&pool, now);
        assert!(wanted.until.is_none_or(|until| until >= now), "{word:?} at {at}");
        assert!(checked.is_ok() || wanted.until.is_none(), "{word:?} is refused and fires");
    }
}

fn hours(word: &str) {
    let (hours, zone) = word.split_once('@').unwrap_or((word, "Europe/Berlin"));
    let replacement =
        Replacement { hours: Some(hours.into()), time_zone: zone.into(), ..Replacement::default() };
    let now: Timestamp = "2026-03-29T00:59:59Z".parse().unwrap();
    let readable = replacement.check().is_ok();
    let unreadable = replacement.hours_at(now) == runyard_core::model::Hours::Unreadable;
    assert_ne!(readable, unreadable, "{word:?}");
}

fn pool() -> Pool {
    let item: Item = serde_json::from_str(include_str!("../../golden/pool-full.json")).unwrap();
    match read::<Pool>(&item) {
        Reading::Record(pool) => pool,
        other => panic!("the golden pool is a pool: {other:?}"),
    }
}

#[test]
fn whatever_people_write_is_a_name_a_schedule_or_a_clear_refusal() {
    let pool = pool();
    let words =
        ["*", "*/5", "1-5", "L", "W", "#", "@UTC", "@Europe/Berlin", "29 2", "?", "MON", "@yearly", "arn:"];
    fuzz("words", &seeds("words", &[]), &words, |input| {
        let text = String::from_utf8_lossy(input);
        for word in text.split('\n').take(8) {
            names(word);
            keys(word);
            schedules(word, &pool);
            hours(word);
            let types: Result<InstanceTypes, _> = serde_json::from_value(serde_json::json!([word]));
            if let Ok(types) = types {
                types.accept("m7i.large");
            }
        }
    });
}
