//! Which repositories may use a machine again? The trust domain that its record stores, interpreted by its class's
//! current setting.

use std::borrow::Cow;

use crate::model::pool::PoolSpec;
use crate::model::record::state::ReuseWithin;

impl PoolSpec {
    /// Returns the trust domain, by the present `reuseWithin`, of the requests that may use a machine which stores this
    /// one; none where no request may. A machine of `repository:o/r` lies within `owner:o`, and both lie within `any`,
    /// so a class that widens keeps its machines. A class that narrows does not: the record does not show which
    /// repository of an owner used the machine. A machine of `none` has no owner.
    #[must_use]
    pub fn reused_as<'a>(&self, stored: &'a str) -> Option<Cow<'a, str>> {
        if stored.is_empty() {
            return Some(Cow::Borrowed(stored));
        }
        match (self.reuse_within, stored.split_once(':')) {
            (ReuseWithin::Repository, Some(("repository", _))) | (ReuseWithin::Owner, Some(("owner", _))) => {
                Some(Cow::Borrowed(stored))
            }
            (ReuseWithin::Owner, Some(("repository", name))) => {
                let (owner, _) = name.split_once('/')?;
                Some(Cow::Owned(format!("owner:{owner}")))
            }
            (ReuseWithin::Any, Some(("repository" | "owner", _))) => Some(Cow::Borrowed("any")),
            (ReuseWithin::Any, None) => (stored == "any").then_some(Cow::Borrowed(stored)),
            (
                ReuseWithin::Repository | ReuseWithin::Owner | ReuseWithin::Any | ReuseWithin::Never,
                _other,
            ) => None,
        }
    }

    /// Returns why a machine of this trust domain has drifted, where no request can get it any more.
    #[must_use]
    pub fn unshared(&self, stored: &str) -> Option<&'static str> {
        self.reused_as(stored).is_none().then_some("reuseWithin of its class lets nobody use it again")
    }

    /// Describes the owners of a trust domain's machines, for people.
    #[must_use]
    pub fn domain_in_words(domain: &str) -> String {
        match domain.split_once(':') {
            Some((kind, name)) => format!("{kind} {name}"),
            None if domain.is_empty() => "anybody".to_owned(),
            None => format!("trust domain {domain}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_lies_within_wider_ones_and_a_narrower_class_has_no_use_for_it() {
        let spec = |within: &str| -> PoolSpec {
            serde_json::from_value(serde_json::json!({"resourceClass": "linux", "reuseWithin": within}))
                .unwrap()
        };
        for (within, stored, read) in [
            ("repository", "repository:acme/web", Some("repository:acme/web")),
            ("repository", "owner:acme", None),
            ("repository", "any", None),
            ("owner", "repository:acme/web", Some("owner:acme")),
            ("owner", "owner:acme", Some("owner:acme")),
            ("owner", "any", None),
            ("owner", "repository:acme", None),
            ("any", "repository:acme/web", Some("any")),
            ("any", "owner:acme", Some("any")),
            ("any", "any", Some("any")),
            ("none", "repository:acme/web", None),
            ("none", "none", None),
            ("owner", "none", None),
            ("any", "none", None),
            ("any", "team:acme", None),
            ("none", "", Some("")),
            ("repository", "", Some("")),
        ] {
            assert_eq!(spec(within).reused_as(stored).as_deref(), read, "{within} {stored}");
        }
        assert_eq!(PoolSpec::domain_in_words("owner:acme"), "owner acme");
        assert_eq!(PoolSpec::domain_in_words("any"), "trust domain any");
    }
}
