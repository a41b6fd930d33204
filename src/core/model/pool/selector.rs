//! Which EC2 types a request or a pool accepts: globs with `*`, as EC2's attribute-based selection takes them.

use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

use crate::model::record::text::cut;

/// Most globs of one request.
const MOST_GLOBS: usize = 40;
/// Longest glob (EC2, `AllowedInstanceTypes`: `[a-zA-Z0-9\.\*\-]{1,30}`).
const LONGEST_GLOB: usize = 30;

/// A list of globs; an empty list accepts every type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InstanceTypes(pub Vec<String>);

impl InstanceTypes {
    /// Returns whether the type is accepted.
    pub fn accept(&self, instance_type: &str) -> bool {
        Self::accept_any(&self.0, instance_type)
    }

    /// Returns whether a list of globs accepts the type; an empty one accepts every type.
    pub fn accept_any(globs: &[String], instance_type: &str) -> bool {
        globs.is_empty() || globs.iter().any(|glob| matches(glob, instance_type))
    }

    /// Returns why these types may not be requested; none where all may be.
    pub fn out_of_bounds(&self) -> Option<String> {
        if self.0.len() > MOST_GLOBS {
            return Some(format!("there are more than {MOST_GLOBS} globs"));
        }
        let of_ec2 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'*' | b'-');
        let good = |glob: &&String| (1..=LONGEST_GLOB).contains(&glob.len()) && glob.bytes().all(of_ec2);
        let bad = self.0.iter().find(|glob| !good(glob))?;
        let shown: String = bad.chars().take(LONGEST_GLOB).collect();
        Some(format!("{shown:?} is not 1 to {LONGEST_GLOB} letters, digits, `.`, `*` and `-`"))
    }

    /// Returns the list, or where it is out of bounds enough of it to show that.
    #[must_use]
    pub(crate) fn cut(self) -> Self {
        if self.out_of_bounds().is_none() {
            return self;
        }
        // A new list: a shortened one would keep its old capacity.
        Self(self.0.iter().take(MOST_GLOBS + 1).map(|glob| cut(glob, LONGEST_GLOB)).collect())
    }

    /// Returns the type of a local machine, which has none of EC2's: `local`, or a name that fits the first glob when
    /// the list would not accept that.
    pub fn local(&self) -> String {
        match self.0.first() {
            Some(glob) if !self.accept("local") => glob.replace('*', "local"),
            Some(_) | None => "local".into(),
        }
    }
}

/// Returns whether `text` matches a glob in which `*` stands for any characters and nothing else is special.
pub fn matches(glob: &str, text: &str) -> bool {
    // WildMatch also interprets `?`; no name that is matched here can contain one, so a glob with `?` matches nothing.
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
    fn a_request_may_name_forty_globs_of_thirty_of_ec2s_characters() {
        let types = |globs: &[&str]| InstanceTypes(globs.iter().map(|glob| (*glob).to_owned()).collect());
        let (longest, longer) = ("x".repeat(30), "x".repeat(31));
        for good in [&[][..], &["c*", "m7i.*", "u-6tb1.56xlarge", &longest][..], &["*"; 40][..]] {
            let good = types(good);
            assert_eq!((good.out_of_bounds(), good.clone().cut()), (None, good));
        }
        for bad in ["", &longer, "c_*", "c 6", "c6a,m", "c?", "ç*"] {
            assert!(types(&["c*", bad]).out_of_bounds().is_some_and(|why| why.len() < 120), "{bad}");
        }
        assert_eq!(types(&["*"; 41]).out_of_bounds().as_deref(), Some("there are more than 40 globs"));
    }

    #[test]
    fn of_globs_out_of_bounds_as_much_is_kept_as_shows_that() {
        let wide = format!("{}é{}", "x".repeat(30), "x".repeat(1000));
        for (globs, kept) in
            [(vec!["*".to_owned(); 9000], 41), (vec!["x".repeat(9000)], 31), (vec!["c*".into(), wide], 34)]
        {
            let cut = InstanceTypes(globs).cut();
            assert!(cut.out_of_bounds().is_some(), "{cut:?}");
            assert_eq!(cut.0.iter().map(String::len).sum::<usize>(), kept);
            assert!(cut.0.capacity() <= 64, "the room of the others is given back");
        }
    }

    #[test]
    fn the_pretended_type_is_one_the_order_accepts() {
        for globs in [vec![], vec!["*"], vec!["c6a.*", "m*"], vec!["m7i.large"]] {
            let types = InstanceTypes(globs.into_iter().map(String::from).collect());
            assert!(types.accept(&types.local()), "{types:?}");
        }
    }
}
