//! Which EC2 types a request or a pool accepts: globs with `*`, as EC2's attribute-based selection takes them.

use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

/// A list of globs; an empty list accepts every type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InstanceTypes(pub Vec<String>);

impl InstanceTypes {
    /// Whether the type is accepted.
    pub fn accept(&self, instance_type: &str) -> bool {
        Self::accept_any(&self.0, instance_type)
    }

    /// Whether a list of globs accepts the type; an empty one accepts every type.
    pub fn accept_any(globs: &[String], instance_type: &str) -> bool {
        globs.is_empty() || globs.iter().any(|glob| matches(glob, instance_type))
    }

    /// The type of a machine that has none of EC2's: `local`, or a name made to fit the first glob when the list would
    /// not accept that.
    pub fn local(&self) -> String {
        match self.0.first() {
            Some(glob) if !self.accept("local") => glob.replace('*', "local"),
            Some(_) | None => "local".into(),
        }
    }
}

/// Whether `text` matches a glob in which `*` stands for any characters and nothing else is special.
pub fn matches(glob: &str, text: &str) -> bool {
    // WildMatch also reads `?`; no name we match can hold one, so a glob with `?` matches nothing.
    !glob.contains('?') && WildMatch::new(glob).matches(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_like_ec2s() {
        let types = InstanceTypes(vec!["c*".into(), "m7i.*".into()]);
        assert!(types.accept("c6a.large"));
        assert!(types.accept("m7i.large"));
        assert!(!types.accept("m6i.large"));
        assert!(InstanceTypes::default().accept("anything"));
        assert!(!matches("?", "c"));
    }

    #[test]
    fn the_pretended_type_is_one_the_order_accepts() {
        for globs in [vec![], vec!["*"], vec!["c6a.*", "m*"], vec!["m7i.large"]] {
            let types = InstanceTypes(globs.into_iter().map(String::from).collect());
            assert!(types.accept(&types.local()), "{types:?}");
        }
    }
}
