//! Suggests existing names that are similar to one that does not exist.

use super::context::CliContext;
use crate::common::failure::CliFailure;
use runyard_core::model::kind_of;
use runyard_core::model::{ClassName, Kind, RecordId};

/// How alike two names must be for one to be meant by the other: 1 is the same.
const ALIKE: f64 = 0.75;

/// The name that is most like this one, if any is like it.
pub(crate) fn near<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let alike = known.map(|known| (strsim::jaro_winkler(name, known), known));
    let near = alike.filter(|(alike, _)| *alike >= ALIKE).max_by(|(a, _), (b, _)| a.total_cmp(b));
    near.map(|(_, known)| known)
}

/// The question after a name that does not exist, in front of what else is advised; nothing where none is like it.
pub(crate) fn meant<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    near(name, known).map_or_else(String::new, |near| format!("did you mean {near}? "))
}

/// The refusal of a class that has no pool, with the one that may be meant.
pub(crate) async fn no_such_pool(context: &CliContext, field: &str, class: &ClassName) -> CliFailure {
    let listed = context.all_that(|item| kind_of(item) == Some(Kind::Pool)).await;
    let pools: Vec<RecordId> = listed.unwrap_or_default().iter().filter_map(RecordId::of).collect();
    let near = meant(class.as_str(), pools.iter().filter_map(RecordId::pool).map(ClassName::as_str));
    let fix = format!("{near}see `runyard get pools`; `runyard apply -f FILE` creates one");
    CliFailure::error(field, class.as_str(), "there is no such pool", fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_like_another_is_taken_for_it_and_a_strange_one_for_none() {
        let known = || ["small", "large", "linux-x64"].into_iter();
        assert_eq!(near("smal", known()), Some("small"));
        assert_eq!(near("linux-x86", known()), Some("linux-x64"));
        assert_eq!(near("gpu", known()), None);
    }
}
