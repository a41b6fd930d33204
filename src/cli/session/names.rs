//! Suggests existing names that are similar to one that does not exist.

use super::context::CliContext;
use crate::common::failure::CliFailure;
use runyard_core::model::kind_of;
use runyard_core::model::{ClassName, Kind, RecordId};

/// The least similarity at which one name is suggested for another; 1 means equal.
const ALIKE: f64 = 0.75;

/// Returns the most similar name, if any is similar enough.
pub(crate) fn near<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let alike = known.map(|known| (strsim::jaro_winkler(name, known), known));
    let near = alike.filter(|(alike, _)| *alike >= ALIKE).max_by(|(a, _), (b, _)| a.total_cmp(b));
    near.map(|(_, known)| known)
}

/// Returns the question that precedes the advice about an unknown name; empty if no name is similar.
pub(crate) fn meant<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    near(name, known).map_or_else(String::new, |near| format!("did you mean {near}? "))
}

/// Returns the failure for a class without a pool, and suggests a similar class.
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
