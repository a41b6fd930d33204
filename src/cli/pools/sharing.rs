//! Checks the `sharing` of a spec: each field by itself, then values that cannot be met or match no share.

use super::checks::Field;
use crate::common::failure::Problems;
use std::collections::{BTreeMap, BTreeSet};

use runyard_core::model::{
    FieldError, HalfLife, MOST_GLOBS, MOST_RESERVE, MOST_WEIGHT, PoolSpec, Repository, ShareBy, YardSharing,
    matches,
};

/// The largest number of machines or requests in a quota.
const MOST: u64 = 100_000;

/// Checks each field by itself.
pub(crate) fn check(field: &Field<'_>, problems: &mut Problems) {
    let fix = "its keys are by, weights, quotas, halfLife and reserve";
    let Some(entries) = field.entries(problems, fix) else { return };
    for (name, inner) in entries {
        let checked = match name {
            "by" => inner.parsed::<ShareBy>().map(|_| ()),
            "weights" => {
                globs(&inner, problems, |weight, problems| {
                    problems.keep(weight.whole(1, u64::from(MOST_WEIGHT)));
                });
                continue;
            }
            "quotas" => {
                globs(&inner, problems, quota);
                continue;
            }
            "halfLife" => inner.parsed::<HalfLife>().map(|_| ()),
            "reserve" => inner.whole(0, u64::from(MOST_RESERVE)),
            _ => Err(inner.refuse("is an unknown key", fix)),
        };
        problems.keep(checked);
    }
}

/// Checks an object whose keys are globs of shares.
fn globs(field: &Field<'_>, problems: &mut Problems, check: impl Fn(&Field<'_>, &mut Problems)) {
    let fix = "write globs of shares and their values, such as {\"acme/*\": 3}";
    let Some(entries) = field.entries(problems, fix) else { return };
    if entries.len() > MOST_GLOBS {
        problems.add(field.refuse(format!("has more than {MOST_GLOBS} globs"), "name fewer"));
    }
    for (glob, inner) in entries {
        if is_share_glob(glob) {
            check(&inner, problems);
        } else {
            problems.add(
                inner.refuse(
                    "is no glob of shares",
                    "use letters, digits, _, ., -, / and * for any characters",
                ),
            );
        }
    }
}

fn is_share_glob(glob: &str) -> bool {
    (1..=200).contains(&glob.len())
        && glob.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"*_.-/".contains(&byte))
}

fn quota(field: &Field<'_>, problems: &mut Problems) {
    let fix = "its keys are maxMachines, maxWaiting and guaranteed";
    let Some(entries) = field.entries(problems, fix) else { return };
    for (name, inner) in entries {
        let checked = match name {
            "maxMachines" | "maxWaiting" => inner.whole(1, MOST),
            "guaranteed" => inner.whole(0, MOST),
            _ => Err(inner.refuse("is an unknown key", fix)),
        };
        problems.keep(checked);
    }
}

/// Returns the bounds in the `sharing` of a stored spec that can never be met or match no share.
pub(crate) fn problems_of(spec: &PoolSpec) -> Vec<FieldError> {
    let mut problems = Problems::default();
    bounds("pool", spec, &mut problems);
    problems.check().err().map(|failure| failure.problems).unwrap_or_default()
}

/// Reports bounds that can never be met or match no share.
pub(crate) fn bounds(path: &str, spec: &PoolSpec, problems: &mut Problems) {
    let Some(sharing) = &spec.sharing else { return };
    let mut refuse = |field: String, value: String, message: String, fix: &str| {
        problems.add(FieldError::new(format!("{path}.sharing.{field}"), value, message, fix));
    };
    let named = sharing.weights.keys().map(|glob| ("weights", glob));
    for (field, glob) in named.chain(sharing.quotas.keys().map(|glob| ("quotas", glob))) {
        if let Some(why) = of_nobody(spec, sharing.by, glob) {
            refuse(format!("{field}.{glob}"), glob.clone(), why, "name a share that may use the class");
        }
    }
    let mut sum: u32 = 0;
    for (glob, quota) in &sharing.quotas {
        let guaranteed = quota.guaranteed.unwrap_or(0);
        let field = || format!("quotas.{glob}.guaranteed");
        let before = sum;
        sum = sum.saturating_add(guaranteed);
        if sum > spec.max && before <= spec.max {
            let message = format!("is more than max {} allows", spec.max);
            refuse(field(), guaranteed.to_string(), message, "lower it, or raise max");
        } else if quota.max_machines.is_some_and(|most| guaranteed > most) {
            let message = "is more than its own maxMachines".to_owned();
            refuse(field(), guaranteed.to_string(), message, "lower it, or raise maxMachines");
        }
    }
}

/// Returns why no share that may use the class can match a glob.
fn of_nobody(spec: &PoolSpec, by: ShareBy, glob: &str) -> Option<String> {
    let slash = glob.contains('/');
    match by {
        // The operator's file lists the teams (`beside_the_yard`).
        ShareBy::Team => slash.then(|| "names a repository, and the shares are teams".to_owned()),
        ShareBy::Owner => slash.then(|| "names a repository, and the shares are owners".to_owned()),
        ShareBy::Repository if !slash && !glob.contains('*') => {
            Some("names no repository, and the shares are repositories".to_owned())
        }
        ShareBy::Repository => {
            let exact = !glob.contains('*');
            let closed =
                exact && Repository::parse_at_github(glob).is_ok_and(|repository| !spec.admits(&repository));
            closed.then(|| "may not use the class (repositories)".to_owned())
        }
    }
}

/// Returns the parts of a spec's `sharing` that match no share, or can never be met, by the tables in the operator's
/// file.
pub(crate) fn beside_the_yard(path: &str, spec: &PoolSpec, yard: &YardSharing) -> Vec<FieldError> {
    let mut problems = Vec::new();
    let Some(sharing) = &spec.sharing else { return problems };
    let mut refuse = |field: String, value: String, message: String, fix: String| {
        problems.push(FieldError::new(format!("{path}.sharing.{field}"), value, message, fix));
    };
    let by_team = sharing.by == ShareBy::Team;
    if by_team && yard.teams.is_empty() {
        let message =
            "finds no team: the operator's file has no `[sharing] teams`, and every share is an owner";
        refuse("by".into(), "team".into(), message.into(), "add teams to the file, or share by owner".into());
    } else if by_team {
        let named = sharing.weights.keys().map(|glob| ("weights", glob));
        for (field, glob) in named.chain(sharing.quotas.keys().map(|glob| ("quotas", glob))) {
            if !glob.contains('/') && !is_of_a_team(spec, yard, glob) {
                let message =
                    "is no team of `[sharing] teams`, nor an owner of a repository that may use the class";
                refuse(format!("{field}.{glob}"), glob.clone(), message.into(), name_one_of(yard));
            }
        }
        let all = teams(yard)
            .iter()
            .fold(0_u32, |sum, team| sum.saturating_add(sharing.quota(team).guaranteed.unwrap_or(0)));
        if all > spec.max {
            let message = format!("are guaranteed to the teams together, more than max {} allows", spec.max);
            refuse("quotas".into(), all.to_string(), message, "guarantee less, or raise max".into());
        }
    }
    let exact =
        sharing.quotas.keys().filter(|glob| !glob.contains('*')).map(|glob| glob.to_ascii_lowercase());
    let known = if by_team { teams(yard) } else { BTreeSet::new() };
    for share in exact.chain(known).collect::<BTreeSet<String>>() {
        let (guaranteed, most) = (sharing.quota(&share).guaranteed, yard.quota(&share).max_machines);
        if let (Some(guaranteed), Some(most)) = (guaranteed, most)
            && guaranteed > most
        {
            let message =
                format!("are guaranteed, and over all classes it may have {most} (`[sharing] quotas`)");
            let fix = "guarantee less, or raise its maxMachines in the operator's file";
            refuse(format!("quotas.{share}.guaranteed"), guaranteed.to_string(), message, fix.into());
        }
    }
    problems
}

/// Returns the entries in the tables of the operator's file that match no class.
pub(crate) fn of_no_class(yard: &YardSharing, specs: &[&PoolSpec]) -> Vec<FieldError> {
    let mut problems = Vec::new();
    let may_be = |spec: &&&PoolSpec, glob: &str| match &spec.sharing {
        Some(sharing) if sharing.by == ShareBy::Team => {
            !glob.contains('/') && (yard.teams.is_empty() || is_of_a_team(spec, yard, glob))
        }
        Some(sharing) => of_nobody(spec, sharing.by, glob).is_none(),
        None => false,
    };
    for glob in yard.quotas.keys().filter(|glob| !specs.iter().any(|spec| may_be(&spec, glob))) {
        let message = "is the share of nobody in any class with `sharing`";
        let fix = "name a share that may use a class";
        problems.push(FieldError::new(format!("sharing.quotas.{glob}"), glob, message, fix));
    }
    for (name, priority) in &yard.priorities {
        // A glob with `*` may match repositories that are not named yet.
        let exact = priority.repositories.iter().filter(|glob| !glob.contains('*'));
        let named = exact.filter_map(|glob| Some((glob, Repository::parse_at_github(glob).ok()?)));
        for (glob, _) in named.filter(|(_, repository)| !specs.iter().any(|spec| spec.admits(repository))) {
            let message = format!("may use priority {name}, and no class");
            let fix = "name a repository that a class lets in (repositories)";
            let field = format!("sharing.priorities.{name}.repositories");
            problems.push(FieldError::new(field, glob, message, fix));
        }
    }
    problems
}

/// Returns the teams, in lower case like the names of shares.
fn teams(yard: &YardSharing) -> BTreeSet<String> {
    yard.teams.values().map(|team| team.to_ascii_lowercase()).collect()
}

fn name_one_of(yard: &YardSharing) -> String {
    let some: Vec<String> = teams(yard).into_iter().take(5).collect();
    format!("name a team ({}), or give the repositories a team of that name", some.join(", "))
}

/// Returns whether a glob matches a team, or an owner that a class admits by name and that may have repositories
/// without a team.
fn is_of_a_team(spec: &PoolSpec, yard: &YardSharing, glob: &str) -> bool {
    let glob = glob.to_ascii_lowercase();
    let owner = |of: &String| {
        let owner = of.split('/').next().unwrap_or_default().to_ascii_lowercase();
        let teamed = covers(&yard.teams, &owner);
        (!owner.contains('*') && !teamed).then_some(owner)
    };
    let owners = spec.repositories.iter().filter_map(owner);
    teams(yard).into_iter().chain(owners).any(|share| matches(&glob, &share))
}

/// Returns whether every repository of an owner has a team.
fn covers(teams: &BTreeMap<String, String>, owner: &str) -> bool {
    teams.keys().map(|glob| glob.to_ascii_lowercase()).any(|glob| match glob.split_once('/') {
        Some((of, "*")) => matches(of, owner),
        Some(_) => false,
        None => glob == "*",
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use runyard_core::model::Priority;

    fn spec(sharing: Value, repositories: &[&str]) -> PoolSpec {
        let spec =
            json!({"resourceClass": "small", "max": 4, "sharing": sharing, "repositories": repositories});
        serde_json::from_value(spec).unwrap()
    }

    fn yard(teams: &[(&str, &str)], quotas: Value) -> YardSharing {
        YardSharing {
            teams: teams.iter().map(|(glob, team)| ((*glob).to_owned(), (*team).to_owned())).collect(),
            quotas: serde_json::from_value(quotas).unwrap(),
            ..YardSharing::default()
        }
    }

    fn told(problems: Vec<FieldError>) -> Vec<String> {
        problems.into_iter().map(|one| format!("{} {} {}", one.field, one.value, one.message)).collect()
    }

    #[test]
    fn weights_and_quotas_of_no_team_of_the_operators_file_are_found() {
        let two = yard(&[("acme/web*", "Web"), ("acme/*", "platform")], json!({}));
        let found = |sharing: Value, repositories: &[&str], yard: &YardSharing| {
            told(beside_the_yard("pool", &spec(sharing, repositories), yard))
        };
        let by_team = |glob: &str| json!({"by": "team", "weights": {glob: 2}});
        for glob in ["web", "WEB", "w*", "*", "platform"] {
            assert_eq!(found(by_team(glob), &["*"], &two), [""; 0], "{glob}");
        }
        let of_nobody =
            "is no team of `[sharing] teams`, nor an owner of a repository that may use the class";
        let wrong = |glob: &str| [format!("pool.sharing.weights.{glob} {glob} {of_nobody}")];
        assert_eq!(found(by_team("wbe"), &["*"], &two), wrong("wbe"));
        // Repositories without a team count as their owner's.
        assert_eq!(found(by_team("other"), &["other/*"], &two), [""; 0]);
        assert_eq!(found(by_team("acme"), &["acme/*"], &two), wrong("acme"), "all of acme have a team");
        assert_eq!(found(by_team("x"), &["x/*"], &yard(&[("*", "all")], json!({}))), wrong("x"));
        let none = found(by_team("web"), &["*"], &yard(&[], json!({})));
        assert!(none.len() == 1 && none[0].starts_with("pool.sharing.by team finds no team"), "{none:?}");
        assert_eq!(found(json!({"weights": {"acme/web": 2}}), &["*"], &two), [""; 0], "by repository");
    }

    #[test]
    fn guarantees_that_teams_or_the_yards_quotas_make_impossible_are_found() {
        let three = [("a/*", "a"), ("b/*", "b"), ("c/*", "c")];
        let sharing = json!({"by": "team", "quotas": {"*": {"guaranteed": 2}}});
        let found = told(beside_the_yard("pool", &spec(sharing.clone(), &["*"]), &yard(&three, json!({}))));
        assert_eq!(
            found,
            ["pool.sharing.quotas 6 are guaranteed to the teams together, more than max 4 allows"]
        );
        let two = yard(&three[..2], json!({"b": {"maxMachines": 1}}));
        let over = "2 are guaranteed, and over all classes it may have 1 (`[sharing] quotas`)";
        let found = told(beside_the_yard("pool", &spec(sharing, &["*"]), &two));
        assert_eq!(found, [format!("pool.sharing.quotas.b.guaranteed {over}")]);
        let sharing = json!({"quotas": {"acme/web": {"guaranteed": 2}, "acme/api": {"guaranteed": 1}}});
        let all = yard(&[], json!({"acme/*": {"maxMachines": 1}}));
        let found = told(beside_the_yard("pool", &spec(sharing, &["*"]), &all));
        assert_eq!(found, [format!("pool.sharing.quotas.acme/web.guaranteed {over}")]);
    }

    #[test]
    fn quotas_and_priorities_of_the_operators_file_that_fit_no_class_are_found() {
        let of = |repositories: &[&str]| Priority {
            value: 1,
            repositories: repositories.iter().map(|glob| (*glob).to_owned()).collect(),
        };
        let mut tables =
            yard(&[("acme/*", "web")], json!({"web": {"maxMachines": 9}, "acme/*": {"maxWaiting": 9}}));
        tables.priorities = [("high".to_owned(), of(&["acme/web", "gone/x", "any/*"]))].into();
        let by = |by: &str| spec(json!({"by": by}), &["acme/*"]);
        let (team, repository, plain) = (by("team"), by("repository"), spec(Value::Null, &["acme/*"]));
        let gone = "sharing.priorities.high.repositories gone/x may use priority high, and no class";
        let nobody = "is the share of nobody in any class with `sharing`";
        assert_eq!(told(of_no_class(&tables, &[&team, &repository])), [gone]);
        assert_eq!(
            told(of_no_class(&tables, &[&team])),
            [format!("sharing.quotas.acme/* acme/* {nobody}"), gone.to_owned()]
        );
        assert_eq!(told(of_no_class(&tables, &[&plain])).len(), 3, "nothing is shared");
        assert_eq!(told(of_no_class(&YardSharing::default(), &[])), [""; 0]);
    }
}
