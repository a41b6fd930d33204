//! Checks each spec by itself and against the others. All problems are reported at once, with their paths.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use serde_json::{Map, Value};

use super::checks::{Field, is_label, is_repository_glob, is_type_glob};
use super::{keep, launch, sets, sharing, sizing};
use crate::common::failure::Problems;
use crate::pools::queue_name::fits_queue_name;
use runyard_core::model::{
    ClassName, Containers, FieldError, Item, LONGEST_RUNTIME_MINUTES, LabelMode, MOST_MACHINES, PoolSpec,
    RegisteredAhead, RegistrationMode, Replacement, ReuseWithin, Schedule, SetScope, TableName, UsageClass,
};

/// The attributes of a pool record that are its spec.
pub(crate) const NAMES: &[&str] = &[
    "resourceClass",
    "cpu",
    "mmem",
    "desired",
    "min",
    "max",
    "schedules",
    "usageClass",
    "allowedInstanceTypes",
    "requestTypes",
    "idleSeconds",
    "maxRuntimeMinutes",
    "maxUses",
    "maxAgeSeconds",
    "maxHoldSeconds",
    "paused",
    "labels",
    "labelMode",
    "runnerGroup",
    "registrationMode",
    "repositories",
    "reuseWithin",
    "keep",
    "launch",
    "replacement",
    "sharing",
    "sizing",
    "jobs",
    "registeredAhead",
    "queue",
];

/// The largest number of machines of a class.
const MACHINES: u64 = 100_000;
/// The shortest idle time, in seconds, of a class that keeps machines: with less they would end before they are
/// renewed.
const SHORTEST_IDLE: u64 = 60;
/// The longest hold that a class may allow, in seconds: 7 days.
const LONGEST_HOLD: u64 = 7 * 24 * 3600;
/// Ten years, in seconds: longer than any machine lives.
const LONGEST: u64 = 315_360_000;

/// Parses these entries into specs; all errors are added to the problems.
pub(crate) fn all(entries: &[Value], table: &TableName, problems: &mut Problems) -> Vec<PoolSpec> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut specs: Vec<(String, PoolSpec)> = Vec::new();
    for (i, entry) in entries.iter().enumerate() {
        let path = format!("pools[{i}]");
        let Value::Object(map) = entry else {
            let whole = Field { path, value: entry };
            problems
                .add(whole.refuse("must be an object", "write resourceClass, max and what else it needs"));
            continue;
        };
        if let Some(class) = map.get("resourceClass").and_then(Value::as_str)
            && let Some(first) = seen.insert(class.to_owned(), i)
        {
            let field = Field { path: format!("{path}.resourceClass"), value: &map["resourceClass"] };
            let message = format!("stands in pools[{first}] too");
            problems.add(field.refuse(message, "name each class once"));
        }
        specs.extend(one(&path, entry, map, table, problems).map(|spec| (format!("{path}."), spec)));
    }
    sets::shared_within(&specs).into_iter().for_each(|problem| problems.add(problem));
    specs.into_iter().map(|(_, spec)| spec).collect()
}

fn one(
    path: &str,
    entry: &Value,
    map: &Map<String, Value>,
    table: &TableName,
    problems: &mut Problems,
) -> Option<PoolSpec> {
    let mut found = Problems::default();
    for (name, value) in map {
        let field = Field { path: format!("{path}.{name}"), value };
        check(name, &field, table, &mut found);
    }
    launch::types(path, map, &mut found);
    if !map.contains_key("resourceClass") {
        let fix = "add resourceClass: the name of the class";
        found.add(FieldError::new(format!("{path}.resourceClass"), "", "is missing", fix));
    }
    if let Err(failure) = found.check() {
        failure.problems.into_iter().for_each(|problem| problems.add(problem));
        return None;
    }
    // Everything has been checked, so an error here is one that the checks do not describe.
    let spec = serde_path_to_error::deserialize::<_, PoolSpec>(entry).map_err(|error| {
        let at = format!("{path}.{}", error.path());
        FieldError::new(at, "", error.inner().to_string(), "see `runyard apply --help`")
    });
    let spec = problems.keep(spec)?;
    bounds(path, &spec, problems);
    keep::together(path, &spec, problems);
    Some(spec)
}

fn check(name: &str, field: &Field<'_>, table: &TableName, problems: &mut Problems) {
    let checked = match name {
        "resourceClass" => field
            .parsed::<ClassName>()
            .and_then(|class| fits_queue_name(table, &class).map_err(|error| error.named(&field.path))),
        "cpu" => field.whole(0, 1024),
        "mmem" => field.whole(0, 64 << 20),
        "desired" | "min" => field.whole(0, MACHINES),
        "max" => field.whole(1, MACHINES),
        "usageClass" => field.parsed::<UsageClass>().map(|_| ()),
        "idleSeconds" | "maxAgeSeconds" => field.whole(1, LONGEST),
        "maxHoldSeconds" => field.whole(0, LONGEST_HOLD),
        "maxRuntimeMinutes" => field.whole(1, LONGEST_RUNTIME_MINUTES),
        "maxUses" => field.whole(1, u64::from(u32::MAX)),
        "paused" => field.flag(),
        "registeredAhead" => ahead(field),
        "queue" => return queue(field, problems),
        "labelMode" => field.parsed::<LabelMode>().map(|_| ()),
        "runnerGroup" => field.text(256).map(|_| ()),
        "registrationMode" => field.parsed::<RegistrationMode>().map(|_| ()),
        "reuseWithin" => field.parsed::<ReuseWithin>().map(|_| ()),
        "schedules" => return each(field, problems, schedule),
        "allowedInstanceTypes" | "requestTypes" => {
            let fix = "write EC2 types with * for any characters, such as m7i.*";
            return each(field, problems, |element, problems| {
                problems.keep(element.shaped(is_type_glob, fix));
            });
        }
        "labels" => {
            let fix = "use 1 to 64 of A-Z, a-z, 0-9, _, . and -, and not self-hosted";
            return each(field, problems, |element, problems| {
                problems.keep(element.shaped(is_label, fix));
            });
        }
        "repositories" => {
            let fix = "write OWNER/REPO with * for any characters, such as acme/*";
            return each(field, problems, |element, problems| {
                problems.keep(element.shaped(is_repository_glob, fix));
            });
        }
        "keep" => return each(field, problems, keep::one),
        "launch" => return launch::check(field, problems),
        "replacement" => return replacement(field, problems),
        "sharing" => return sharing::check(field, problems),
        "sizing" => return sizing::check(field, problems),
        "jobs" => return jobs(field, problems),
        _ => Err(field.refuse("is an unknown key", format!("use one of {}", NAMES.join(", ")))),
    };
    problems.keep(checked);
}

fn ahead(field: &Field<'_>) -> Result<(), FieldError> {
    let read = serde_json::from_value::<RegisteredAhead>(field.value.clone());
    read.map(drop)
        .map_err(|_| field.refuse("must be true, false or auto", "write true and false without quotes"))
}

fn queue(field: &Field<'_>, problems: &mut Problems) {
    let fix = "its keys are runLabels, forks, labels, scope, standing, maxSlots and unusedSeconds";
    let Some(entries) = field.entries(problems, fix) else { return };
    for (name, inner) in entries {
        let checked = match name {
            "runLabels" | "forks" => inner.flag(),
            "maxSlots" => inner.whole(1, u64::from(MOST_MACHINES)),
            "scope" => inner.parsed::<SetScope>().map(|_| ()),
            "standing" => inner.whole(0, u64::from(MOST_MACHINES)),
            // Their bounds are checked with the other fields of a set.
            "unusedSeconds" => inner.whole(1, LONGEST),
            "labels" => {
                for label in problems.keep(inner.elements()).into_iter().flatten() {
                    problems.keep(label.text(1024));
                }
                continue;
            }
            _ => Err(inner.refuse("is an unknown key", fix)),
        };
        problems.keep(checked);
    }
}

fn each(field: &Field<'_>, problems: &mut Problems, check: impl Fn(&Field<'_>, &mut Problems)) {
    // An empty list is equivalent to none for these fields.
    if field.value.as_array().is_some_and(Vec::is_empty) && !field.path.ends_with("repositories") {
        return;
    }
    let Some(elements) = problems.keep(field.elements()) else { return };
    for element in elements {
        check(&element, problems);
    }
}

fn schedule(field: &Field<'_>, problems: &mut Problems) {
    let fix = "its keys are cron, timeZone and desired";
    let Some(entries) = field.entries(problems, fix) else { return };
    field.require(&["cron", "desired"], problems, fix);
    for (name, inner) in entries {
        let checked = match name {
            "cron" => cron(&inner),
            "timeZone" => zone(&inner),
            "desired" => inner.whole(0, MACHINES),
            _ => Err(inner.refuse("is an unknown key", fix)),
        };
        problems.keep(checked);
    }
}

fn replacement(field: &Field<'_>, problems: &mut Problems) {
    let fix = "its keys are atOnce, hours and timeZone";
    let Some(entries) = field.entries(problems, fix) else { return };
    for (name, inner) in entries {
        let checked = match name {
            "atOnce" => inner.whole(0, MACHINES),
            "hours" => inner.text(32).and_then(|hours| {
                let replacement = Replacement { hours: Some(hours.to_owned()), ..Replacement::default() };
                replacement.check().map_err(|error| error.named(&inner.path))
            }),
            "timeZone" => zone(&inner),
            _ => Err(inner.refuse("is an unknown key", fix)),
        };
        problems.keep(checked);
    }
}

fn jobs(field: &Field<'_>, problems: &mut Problems) {
    let fix = "its keys are root, containers and environment";
    let Some(entries) = field.entries(problems, fix) else { return };
    for (name, inner) in entries {
        let checked = match name {
            "root" => inner.flag(),
            "containers" => inner.parsed::<Containers>().map(|_| ()),
            "environment" => {
                variables(&inner, problems);
                continue;
            }
            _ => Err(inner.refuse("is an unknown key", fix)),
        };
        problems.keep(checked);
    }
}

fn variables(field: &Field<'_>, problems: &mut Problems) {
    let fix = "write NAME: value for each variable";
    for (_, variable) in field.entries(problems, fix).into_iter().flatten() {
        problems.keep(variable.text(1 << 16));
    }
}

fn cron(field: &Field<'_>) -> Result<(), FieldError> {
    Schedule::check_cron(field.text(256)?).map_err(|message| field.refuse(message, Schedule::CRON_FIX))
}

fn zone(field: &Field<'_>) -> Result<(), FieldError> {
    let fix = "use an IANA name such as Europe/Berlin or UTC";
    TimeZone::get(field.text(256)?).map(|_| ()).map_err(|error| field.refuse(error.to_string(), fix))
}

/// Checks the numbers of one spec against each other.
fn bounds(path: &str, spec: &PoolSpec, problems: &mut Problems) {
    let max = spec.max;
    let scheduled = spec.schedules.iter().enumerate();
    let scheduled = scheduled.map(|(i, s)| (format!("schedules[{i}].desired"), s.desired));
    let numbers = [("desired".to_owned(), spec.desired), ("min".to_owned(), spec.min)];
    for (name, value) in numbers.into_iter().chain(scheduled) {
        if value > max {
            let message = format!("is more than max {max}");
            let fix = "lower it, or raise max";
            problems.add(FieldError::new(format!("{path}.{name}"), value.to_string(), message, fix));
        }
    }
    sharing::bounds(path, spec, problems);
    sizing::bounds(path, spec, problems);
    let of_class = |error: FieldError| FieldError { field: format!("{path}.{}", error.field), ..error };
    problems.keep(spec.jobs.check(spec.reuse_within, spec.registration_mode).map_err(of_class));
    problems.keep(spec.jobs.check_environment().map_err(of_class));
    problems.keep(spec.check_ahead().map_err(of_class));
    problems.keep(spec.check_queue().map_err(of_class));
    let scheduled = spec.schedules.iter().any(|schedule| schedule.desired > 0);
    let keeps = spec.desired.max(spec.min) > 0 || scheduled || spec.sizing.is_some();
    if keeps && spec.idle_seconds < SHORTEST_IDLE {
        let message = format!("must be at least {SHORTEST_IDLE} where a pool keeps machines idle");
        let fix = "raise it, or keep none (desired, min and schedules 0, and no sizing)";
        problems.add(FieldError::new(
            format!("{path}.idleSeconds"),
            spec.idle_seconds.to_string(),
            message,
            fix,
        ));
    }
}

/// Returns a spec as the attributes of its record.
pub(crate) fn attributes_of(spec: &PoolSpec) -> Item {
    let item: serde_dynamo::Item =
        serde_dynamo::to_item(spec).expect("a spec has only types that DynamoDB can hold");
    item.into_inner().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn problems_of(entries: Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let table = TableName::parse("runyard").unwrap();
        all(entries.as_array().unwrap(), &table, &mut problems);
        problems.check().err().map(|failure| failure.problems).unwrap_or_default()
    }

    #[test]
    fn a_schedule_is_checked_as_the_operator_reads_it() {
        let told = |cron: &str| {
            let spec = json!([{"resourceClass": "a", "max": 4, "schedules": [{"cron": cron, "desired": 1}]}]);
            problems_of(spec).into_iter().map(|one| (one.field, one.message)).collect::<Vec<_>>()
        };
        for never in ["0 8 31 2 *", "0 0 30 2 *", "0 0 31 4,6 *"] {
            let problems = told(never);
            assert!(
                problems.len() == 1 && problems[0].0.ends_with("schedules[0].cron"),
                "{never}: {problems:?}"
            );
            assert!(problems[0].1.contains("never fires"), "{problems:?}");
        }
        for fires in ["@daily", "0 8 29 2 *", "0 0 30 2 1-5", "0 8 31 * *", "0 0 * * 5-7/2"] {
            assert_eq!(told(fires), [], "{fires}");
        }
    }

    #[test]
    fn a_complete_spec_is_taken() {
        let spec = json!([{
            "resourceClass": "linux-x64", "cpu": 4, "mmem": 16384, "desired": 2, "min": 1, "max": 20,
            "schedules": [{"cron": "0 8 * * 1-5", "timeZone": "Europe/Berlin", "desired": 10}],
            "usageClass": "spot", "allowedInstanceTypes": ["m7i.*", "c*"], "requestTypes": ["m7i.*"],
            "idleSeconds": 600,
            "maxRuntimeMinutes": 60, "maxUses": 20, "maxAgeSeconds": 86400,
            "maxHoldSeconds": 3600, "paused": false, "labels": ["gpu"], "labelMode": "secret", "runnerGroup": "Default", "registrationMode": "job",
            "repositories": ["acme/*"], "reuseWithin": "repository",
            "keep": [{"name": "cargo", "path": "~/.cargo/registry", "scope": "repository",
                      "writeFrom": "protected", "maxGiB": 20, "maxAgeDays": 14}],
            "launch": {"ami": "ami-0123456789abcdef0", "architecture": "x86_64", "instanceProfile": "runner",
                       "subnetIds": ["subnet-01234567"], "securityGroupIds": ["sg-01234567"],
                       "volume": {"gib": 50, "iops": 6000, "throughput": 500, "encrypted": true,
                                  "initializationRate": 200},
                       "tags": {"CostCenter": "4711"}, "preRunnerScript": "#!/bin/sh\n", "maxPriceOver": 20},
            "replacement": {"atOnce": 2, "hours": "22:00-06:00", "timeZone": "Europe/Berlin"},
        }]);
        assert_eq!(problems_of(spec), []);
    }

    #[test]
    fn the_names_of_the_spec_are_those_of_its_type() {
        let spec: PoolSpec = serde_json::from_value(json!({
            "resourceClass": "a", "schedules": [{"cron": "* * * * *", "desired": 0}],
            "allowedInstanceTypes": ["a"], "requestTypes": ["a"], "maxRuntimeMinutes": 1, "maxUses": 1, "labels": ["a"],
            "labelMode": "secret", "runnerGroup": "g", "replacement": {"atOnce": 2}, "jobs": {"root": true},
            "keep": [{"name": "npm", "path": "~/.npm"}], "sharing": {},
            "sizing": {"waitP95": "20s"}, "maxHoldSeconds": 60, "registeredAhead": true,
            "queue": {"runLabels": true},
        }))
        .unwrap();
        let mut names: Vec<String> = NAMES.iter().map(|name| (*name).to_owned()).collect();
        names.sort();
        assert_eq!(attributes_of(&spec).into_keys().collect::<Vec<_>>(), names);
    }

    #[test]
    fn each_bad_field_is_named_by_its_path() {
        for (key, value) in [
            ("resourceClass", json!("Not A Class")),
            ("resourceClass", json!("x-dead")),
            ("resourceClass", json!(7)),
            ("resourceClass", json!("c".repeat(300))),
            ("cpu", json!(-1)),
            ("cpu", json!("4")),
            ("mmem", json!(1.5)),
            ("desired", json!(1_000_000_000u64)),
            ("max", json!(0)),
            ("max", json!(u64::MAX)),
            ("min", json!(null)),
            ("idleSeconds", json!(0)),
            ("idleSeconds", json!("30m")),
            ("maxUses", json!(0)),
            ("usageClass", json!("Spot")),
            ("paused", json!("yes")),
            ("labels", json!(["a b"])),
            ("labels", json!(["self-hosted"])),
            ("labels", json!("gpu")),
            ("labelMode", json!("random")),
            ("repositories", json!([])),
            ("repositories", json!(["acme"])),
            ("allowedInstanceTypes", json!(["m7i.?"])),
            ("registrationMode", json!("once")),
            ("jobs", json!({"root": "yes"})),
            ("jobs", json!({"containers": "podman"})),
            ("jobs", json!({"sudo": true})),
            ("jobs", json!({"environment": {"A": 1}})),
            ("jobs", json!([])),
            ("reuseWithin", json!("org")),
            ("schedules", json!([{"cron": "0 8 * *", "desired": 1}])),
            ("schedules", json!([{"cron": "61 8 * * *", "desired": 1}])),
            ("schedules", json!([{"cron": "0 8 * * *", "timeZone": "Mars/Base", "desired": 1}])),
            ("schedules", json!([{"cron": "0 8 * * *"}])),
            ("schedules", json!([{"cron": "0 8 * * *", "desired": 1, "tz": "UTC"}])),
            ("launch", json!({"ami": "ami-x"})),
            ("launch", json!({"subnetIds": []})),
            ("launch", json!({"image": "x"})),
            ("launch", json!({"launchTemplateId": "lt-01234567", "ami": "ami-01234567"})),
            ("launch", json!({"tags": {"aws:team": "web"}})),
            ("launch", json!({"volume": {"iops": 100}})),
            ("launch", json!([])),
            ("replacement", json!("now")),
            ("replacement", json!({"atOnce": -1})),
            ("replacement", json!({"hours": "at night"})),
            ("replacement", json!({"timeZone": "Mars/Base"})),
            ("replacement", json!({"perHour": 3})),
            ("jobs", json!("root")),
            ("jobs", json!({"root": "yes"})),
            ("jobs", json!({"containers": "docker"})),
            ("jobs", json!({"environment": {"A": 1}})),
            ("jobs", json!({"environment": {"A": "1"}, "privileged": true})),
            ("registeredAhead", json!(true)),
            ("registeredAhead", json!("yes")),
            ("keep", json!("~/.npm")),
            ("keep", json!(["~/.npm"])),
            ("keep", json!([{"path": "~/.npm"}])),
            ("keep", json!([{"name": "npm"}])),
            ("keep", json!([{"name": "npm", "path": "/etc/npm"}])),
            ("keep", json!([{"name": "npm", "path": "~/.npm", "scope": "owner"}])),
            ("keep", json!([{"name": "npm", "path": "~/.npm", "writeFrom": "any"}])),
            ("keep", json!([{"name": "npm", "path": "~/.npm", "maxGiB": 0}])),
            ("maxHoldSeconds", json!(604_801)),
            ("keep", json!([{"name": "npm", "path": "~/.npm", "maxAgeDays": "30"}])),
            ("keep", json!([{"name": "npm", "path": "~/.npm", "key": "x"}])),
            ("keep", json!([{"name": "a", "path": "~/a"}, {"name": "b", "path": "~/a/b"}])),
            ("sharing", json!("fair")),
            ("sharing", json!({"by": "run"})),
            ("sharing", json!({"weights": {"acme/*": 0}})),
            ("sharing", json!({"weights": ["acme/*"]})),
            ("sharing", json!({"weights": {"acme/ *": 2}})),
            ("sharing", json!({"by": "owner", "weights": {"acme/web": 2}})),
            ("sharing", json!({"quotas": {"acme/*": {"machines": 1}}})),
            ("sharing", json!({"quotas": {"acme/*": {"maxMachines": 0}}})),
            ("sharing", json!({"quotas": {"acme/*": {"guaranteed": 6}}})),
            ("sharing", json!({"quotas": {"a/*": {"guaranteed": 3}, "b/*": {"guaranteed": 3}}})),
            ("sharing", json!({"quotas": {"a/*": {"guaranteed": 3, "maxMachines": 2}}})),
            ("sharing", json!({"halfLife": "24"})),
            ("sharing", json!({"halfLife": 24})),
            ("sharing", json!({"reserve": 51})),
            ("sharing", json!({"share": 1})),
            ("sizing", json!("20s")),
            ("sizing", json!({})),
            ("sizing", json!({"waitP95": 20})),
            ("sizing", json!({"waitP95": "2h"})),
            ("sizing", json!({"waitP95": "20s", "maxCostPerDay": "40"})),
            ("sizing", json!({"waitP95": "20s", "maxCostPerDay": 0})),
            ("sizing", json!({"waitP95": "20s", "min": -1})),
            ("sizing", json!({"waitP95": "20s", "min": 3, "max": 2})),
            ("sizing", json!({"waitP95": "20s", "max": 6})),
            ("sizing", json!({"waitP95": "20s", "min": 6})),
            ("sizing", json!({"waitP95": "20s", "target": 1})),
            ("queue", json!(true)),
            ("queue", json!({"runLabels": "yes"})),
            ("queue", json!({"runLabels": true, "maxSlots": 0})),
            ("queue", json!({"runLabels": true, "maxSlots": 501})),
            ("queue", json!({"runLabels": true, "forks": 1})),
            ("queue", json!({"runLabels": true, "label": "a"})),
            ("queue", json!({"labels": "a"})),
            ("queue", json!({"labels": [], "scope": "organization"})),
            ("queue", json!({"labels": [7], "scope": "organization"})),
            ("queue", json!({"labels": ["a"], "scope": "enterprise"})),
            ("queue", json!({"labels": ["a"], "scope": "organization", "standing": 501})),
            ("queue", json!({"labels": ["a"], "scope": "organization", "unusedSeconds": "10m"})),
            ("queue", json!({"labels": ["a"], "scope": "organization", "unusedSeconds": 0})),
            ("queue", json!({"scope": "organization"})),
            ("colour", json!("red")),
            ("kind", json!("pool")),
        ] {
            let mut spec = json!({"resourceClass": "a", "max": 5});
            spec[key] = value.clone();
            let found = problems_of(json!([spec]));
            assert_eq!(found.len(), 1, "{key} {value}: {found:?}");
            assert!(found[0].field.starts_with(&format!("pools[0].{key}")), "{found:?}");
            assert!(!found[0].fix.is_empty() && !found[0].message.is_empty());
        }
    }

    #[test]
    fn a_class_that_insists_on_what_it_cannot_have_is_refused_and_auto_is_not() {
        let found = |ahead: Value| {
            let spec = json!([{"resourceClass": "a", "max": 5, "registeredAhead": ahead, "keep": [{"name": "a", "path": "~/a"}]}]);
            problems_of(spec).into_iter().map(|problem| problem.field).collect::<Vec<_>>()
        };
        assert_eq!(found(json!(true)), ["pools[0].registeredAhead"]);
        assert_eq!((found(json!("auto")), found(json!(false))), (vec![], vec![]));
    }

    #[test]
    fn a_class_whose_label_no_job_can_write_has_no_queue() {
        let found = |class: &str, mode: &str, queue: Value| {
            let spec = json!([{"resourceClass": class, "max": 5, "labelMode": mode, "queue": queue}]);
            problems_of(spec).into_iter().map(|problem| problem.field).collect::<Vec<_>>()
        };
        let queue = json!({"runLabels": true, "maxSlots": 8, "forks": true});
        assert_eq!(found("a", "run", queue.clone()), [""; 0]);
        assert_eq!(found("a", "secret", queue.clone()), ["pools[0].queue.runLabels"]);
        assert_eq!(found("default", "run", queue), ["pools[0].queue.runLabels"]);
        assert_eq!(found("a", "secret", json!({"runLabels": false})), [""; 0]);
    }

    #[test]
    fn a_scale_set_is_taken_and_refused_by_the_setting_that_it_contradicts() {
        let found = |more: Value, queue: Value| {
            let mut spec = json!({"resourceClass": "a", "max": 5, "registrationMode": "job", "reuseWithin": "owner",
                "repositories": ["acme/*"], "queue": {"labels": ["runyard-a", "linux"], "scope": "organization"}});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            spec["queue"].as_object_mut().unwrap().extend(queue.as_object().unwrap().clone());
            problems_of(json!([spec])).into_iter().map(|problem| problem.field).collect::<Vec<_>>()
        };
        let all =
            json!({"standing": 2, "maxSlots": 5, "unusedSeconds": 900, "runLabels": true, "forks": true});
        assert_eq!(found(json!({}), all), [""; 0]);
        assert_eq!(found(json!({"registrationMode": "run"}), json!({})), ["pools[0].queue.labels"]);
        assert_eq!(found(json!({"reuseWithin": "any"}), json!({})), ["pools[0].queue.scope"]);
        assert_eq!(found(json!({"repositories": ["acme/web"]}), json!({})), ["pools[0].repositories"]);
        assert_eq!(found(json!({}), json!({"standing": 6})), ["pools[0].queue.standing"]);
        assert_eq!(found(json!({}), json!({"unusedSeconds": 59})), ["pools[0].queue.unusedSeconds"]);
        assert_eq!(found(json!({}), json!({"labels": ["linux"]})), ["pools[0].queue.labels"]);
    }

    #[test]
    fn a_pool_that_keeps_machines_lets_none_idle_for_less_than_a_minute() {
        let keeps = [
            json!({"desired": 1}),
            json!({"min": 1}),
            json!({"schedules": [{"cron": "0 8 * * *", "desired": 1}]}),
            json!({"sizing": {"waitP95": "20s"}}),
        ];
        let found = |more: &Value, idle: u64| {
            let mut spec = json!({"resourceClass": "a", "max": 5, "idleSeconds": idle});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            problems_of(json!([spec])).into_iter().map(|problem| problem.field).collect::<Vec<_>>()
        };
        for more in keeps {
            assert_eq!(found(&more, 59), ["pools[0].idleSeconds"], "{more}");
            assert_eq!(found(&more, 60), [""; 0], "{more}");
        }
        assert_eq!(found(&json!({}), 1), [""; 0]);
    }

    #[test]
    fn jobs_that_could_become_root_are_refused_by_name_on_machines_that_serve_another() {
        let found = |jobs: Value, within: &str, mode: &str| {
            let spec = json!({"resourceClass": "a", "max": 5, "jobs": jobs, "reuseWithin": within, "registrationMode": mode});
            let found = problems_of(json!([spec]));
            found.into_iter().map(|problem| problem.field).collect::<Vec<_>>()
        };
        let whole = json!({"root": true, "containers": "engine", "environment": {"A": "1"}});
        assert_eq!(found(whole.clone(), "none", "job"), [""; 0]);
        for (within, mode) in [("none", "run"), ("repository", "job"), ("owner", "run"), ("any", "job")] {
            assert_eq!(found(whole.clone(), within, mode), ["pools[0].jobs.root"], "{within} {mode}");
            let engine = json!({"containers": "engine"});
            assert_eq!(found(engine, within, mode), ["pools[0].jobs.containers"], "{within} {mode}");
        }
        let variable = json!({"environment": {"GITHUB_TOKEN": "x"}});
        assert_eq!(found(variable, "owner", "run"), ["pools[0].jobs.environment.GITHUB_TOKEN"]);
    }

    #[test]
    fn everything_wrong_is_said_at_once_in_all_pools() {
        let found = problems_of(json!([
            {"resourceClass": "a", "max": 1, "desired": 2, "min": 3},
            {"resourceClass": "a", "max": 1, "schedules": [{"cron": "* * * * *", "desired": 2}]},
            {"max": 1},
            7,
        ]));
        let fields: Vec<&str> = found.iter().map(|problem| problem.field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "pools[0].desired",
                "pools[0].min",
                "pools[1].resourceClass",
                "pools[1].schedules[0].desired",
                "pools[2].resourceClass",
                "pools[3]"
            ]
        );
    }
}
