//! Do the scale sets of two classes share a label at one owner? GitHub would choose between their machines by itself, so
//! only one of the two classes may have it.

use runyard_core::explain::{self, SetReport};
use runyard_core::model::{ClassName, FieldError, Item, PoolSpec};

/// Returns the scale sets of a class.
pub(crate) fn sets_of(items: &[Item], now: jiff::Timestamp, class: &ClassName) -> Vec<SetReport> {
    let (yard, ..) = explain::picture(items, now);
    explain::sets(&yard).into_iter().filter(|set| set.resource_class == *class).collect()
}

/// Returns a refusal for each spec whose scale sets share a label with those of one of the others. A spec comes with the
/// prefix of its fields' names.
pub(crate) fn shared(specs: &[(&str, &PoolSpec)], others: &[&PoolSpec]) -> Vec<FieldError> {
    let clash = |path: &str, spec: &PoolSpec, other: &PoolSpec| {
        let label = spec.shares_a_set_label(other)?;
        let (class, other) = (&spec.resource_class, &other.resource_class);
        let message = format!(
            "is a label of class {class} and of class {other} at one owner: GitHub would choose between their machines"
        );
        let fix =
            format!("give {class} or {other} another label in queue.labels, or repositories of other owners");
        Some(FieldError::new(format!("{path}queue.labels"), label, message, fix))
    };
    let of_spec = |(path, spec): &(&str, &PoolSpec)| {
        let others = others.iter().filter(|other| other.resource_class != spec.resource_class);
        others.filter_map(|other| clash(path, spec, other)).collect::<Vec<_>>()
    };
    specs.iter().flat_map(of_spec).collect()
}

/// Returns a refusal for each spec of a file whose scale sets share a label with those of an earlier one.
pub(crate) fn shared_within(specs: &[(String, PoolSpec)]) -> Vec<FieldError> {
    let earlier = |i: usize| specs[..i].iter().map(|(_, spec)| spec).collect::<Vec<_>>();
    let each = specs.iter().enumerate();
    each.flat_map(|(i, (path, spec))| shared(&[(path.as_str(), spec)], &earlier(i))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(class: &str, label: &str, owner: &str) -> PoolSpec {
        let queue = json!({"labels": [label, "linux"], "scope": "organization"});
        let repositories = [format!("{owner}/*")];
        let spec = json!({"resourceClass": class, "repositories": repositories, "queue": queue});
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn two_classes_with_one_label_at_one_owner_are_refused_with_both_names() {
        let (small, large) = (spec("small", "runyard", "acme"), spec("large", "linux-x64", "acme"));
        assert_eq!(shared(&[("", &small)], &[&large, &small]), [], "the usual labels choose no set");
        let other = spec("other", "Linux-X64", "Acme");
        let found = shared(&[("pools[1].", &other)], &[&small, &large]);
        let told: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 1, "{told:?}");
        assert_eq!(
            (found[0].field.as_str(), found[0].value.as_str()),
            ("pools[1].queue.labels", "Linux-X64")
        );
        assert!(found[0].message.contains("class other") && found[0].message.contains("class large"));
        assert!(found[0].fix.contains("give other or large another label"), "{told:?}");
        assert_eq!(shared(&[("", &spec("other", "linux-x64", "umbrella"))], &[&large]), []);
    }

    #[test]
    fn a_pair_of_a_file_is_refused_once() {
        let named = |i: usize, spec: PoolSpec| (format!("pools[{i}]."), spec);
        let file = [
            named(0, spec("small", "builds", "acme")),
            named(1, spec("large", "tests", "acme")),
            named(2, spec("other", "builds", "acme")),
        ];
        let found: Vec<String> = shared_within(&file).into_iter().map(|one| one.field).collect();
        assert_eq!(found, ["pools[2].queue.labels"]);
    }
}
