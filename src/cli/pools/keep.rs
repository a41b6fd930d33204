//! Checks the kept directories of a spec: each by itself, and all together with the rest of the spec.

use super::checks::Field;
use crate::common::failure::Problems;
use runyard_core::model::{FieldError, Keep, KeepScope, PoolSpec, ReuseWithin, WriteFrom};

/// Checks one kept directory.
pub(crate) fn one(field: &Field<'_>, problems: &mut Problems) {
    let fix = "its keys are name, path, scope, writeFrom, maxGiB and maxAgeDays";
    let Some(entries) = field.entries(problems, fix) else { return };
    field.require(&["name", "path"], problems, fix);
    for (name, inner) in entries {
        let checked = match name {
            "name" | "path" => inner.text(256).map(|_| ()),
            "scope" => inner.parsed::<KeepScope>().map(|_| ()),
            "writeFrom" => inner.parsed::<WriteFrom>().map(|_| ()),
            "maxGiB" => inner.whole(1, 1000),
            "maxAgeDays" => inner.whole(1, 365),
            _ => Err(inner.refuse("is an unknown key", fix)),
        };
        problems.keep(checked);
    }
}

/// Checks the kept directories of a spec together.
pub(crate) fn together(path: &str, spec: &PoolSpec, problems: &mut Problems) {
    if let Err((at, error)) = Keep::check_all(&spec.keep) {
        let field = format!("{path}.keep[{at}].{}", error.field);
        problems.add(error.named(&field));
    }
    if !spec.keep.is_empty() && spec.reuse_within == ReuseWithin::Never {
        let message = "keeps nothing where reuseWithin is none: each machine ends after its first claim";
        let fix = "leave keep out, or let machines be reused within the repository or the owner";
        problems.add(FieldError::new(format!("{path}.keep"), spec.keep.len().to_string(), message, fix));
    }
}
