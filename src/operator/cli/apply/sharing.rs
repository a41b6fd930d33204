//! Checks the `sharing` of a spec: each field by itself, then what can never be met.

use super::checks::Field;
use crate::cli::failure::Problems;
use crate::model::{
    FieldError, HalfLife, MOST_GLOBS, MOST_RESERVE, MOST_WEIGHT, PoolSpec, Repository, ShareBy,
};

/// The most machines or requests that a quota names.
const MOST: u64 = 100_000;

/// Each field by itself.
pub(super) fn check(field: &Field<'_>, problems: &mut Problems) {
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

/// An object whose names are globs of shares.
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

/// What can never be met and what is of nobody in the `sharing` of a stored spec.
pub(in crate::cli) fn problems_of(spec: &PoolSpec) -> Vec<FieldError> {
    let mut problems = Problems::default();
    bounds("pool", spec, &mut problems);
    problems.check().err().map(|failure| failure.problems).unwrap_or_default()
}

/// What can never be met, and what is of nobody.
pub(super) fn bounds(path: &str, spec: &PoolSpec, problems: &mut Problems) {
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

/// Why no share that may use the class can match a glob.
fn of_nobody(spec: &PoolSpec, by: ShareBy, glob: &str) -> Option<String> {
    let slash = glob.contains('/');
    match by {
        // Teams are the operator's to know.
        ShareBy::Team => slash.then(|| "names a repository, and the shares are teams".to_owned()),
        ShareBy::Owner => slash.then(|| "names a repository, and the shares are owners".to_owned()),
        ShareBy::Repository if !slash && !glob.contains('*') => {
            Some("names no repository, and the shares are repositories".to_owned())
        }
        ShareBy::Repository => {
            let exact = !glob.contains('*');
            let closed = exact && Repository::parse(glob).is_ok_and(|repository| !spec.admits(&repository));
            closed.then(|| "may not use the class (repositories)".to_owned())
        }
    }
}
