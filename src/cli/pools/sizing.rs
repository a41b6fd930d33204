//! Checks the `sizing` of a spec: each field by itself, then its numbers against the pool's.

use super::checks::Field;
use crate::common::failure::Problems;
use runyard_core::model::{FieldError, Money, PoolSpec, WaitTarget};

/// The largest number of machines in a bound.
const MACHINES: u64 = 100_000;

/// Checks each field by itself.
pub(crate) fn check(field: &Field<'_>, problems: &mut Problems) {
    let fix = "its keys are waitP95, maxCostPerDay, min and max";
    let Some(entries) = field.entries(problems, fix) else { return };
    field.require(
        &["waitP95"],
        problems,
        "write waitP95: the wait that 95 of 100 requests may have, such as 20s",
    );
    for (name, inner) in entries {
        let checked = match name {
            "waitP95" => inner.parsed::<WaitTarget>().map(|_| ()),
            "maxCostPerDay" => {
                let amount = inner.value.as_f64().and_then(|amount| Money::try_from(amount).ok());
                let fix = "write an amount from 0.01, such as 40 or 12.50";
                amount.map(|_| ()).ok_or_else(|| inner.refuse("is not an amount to spend", fix))
            }
            "min" => inner.whole(0, MACHINES),
            "max" => inner.whole(1, MACHINES),
            _ => Err(inner.refuse("is an unknown key", fix)),
        };
        problems.keep(checked);
    }
}

/// Checks the numbers against each other and against the pool's `max`.
pub(crate) fn bounds(path: &str, spec: &PoolSpec, problems: &mut Problems) {
    let Some(sizing) = &spec.sizing else { return };
    let most = sizing.max.unwrap_or(spec.max);
    let mut refuse = |name: &str, value: u32, message: String, fix: &str| {
        problems.add(FieldError::new(format!("{path}.sizing.{name}"), value.to_string(), message, fix));
    };
    if most > spec.max {
        refuse(
            "max",
            most,
            format!("is more than max {} of the pool", spec.max),
            "lower it, or raise the pool's max",
        );
    } else if sizing.min > most {
        refuse("min", sizing.min, format!("is more than its max {most}"), "lower it, or raise max");
    }
}
