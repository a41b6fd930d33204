//! Where may the runner of a machine be registered before its claim is known, and for which classes?

use std::fmt;

use super::registered_ahead::RegisteredAhead;
use crate::model::pool::PoolSpec;
use crate::model::record::field::FieldError;
use crate::model::record::state::ReuseWithin;

/// Where the runner of a machine can be registered before its claim is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AheadPlace {
    /// At this repository, `owner/name`, the only one that the machine serves.
    Repository(String),
    /// At this organisation, in the runner group of the class.
    Owner(String),
}

impl AheadPlace {
    /// Returns the place for a machine of this trust domain.
    #[must_use]
    pub fn of(trust_domain: &str) -> Option<Self> {
        let (kind, name) = trust_domain.split_once(':')?;
        match kind {
            "repository" => Some(Self::Repository(name.to_owned())),
            "owner" => Some(Self::Owner(name.to_owned())),
            _unknown => None,
        }
    }

    /// Returns the trust domain of a machine that serves this place.
    #[must_use]
    pub fn trust_domain(&self) -> String {
        match self {
            Self::Repository(repository) => format!("repository:{repository}"),
            Self::Owner(owner) => format!("owner:{owner}"),
        }
    }
}

impl fmt::Display for AheadPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Repository(repository) => f.write_str(repository),
            Self::Owner(owner) => f.write_str(owner),
        }
    }
}

impl PoolSpec {
    /// Returns the place where the runner of a machine of this trust domain is registered ahead, if its class registers
    /// runners ahead; none where the machine has served no request and may serve more than one owner.
    #[must_use]
    pub fn ahead_place(&self, trust_domain: &str) -> Option<AheadPlace> {
        if !trust_domain.is_empty() {
            return AheadPlace::of(&self.reused_as(trust_domain)?);
        }
        match self.reuse_within {
            ReuseWithin::Owner => self.sole_owner().map(AheadPlace::Owner),
            ReuseWithin::Repository => self.sole_repository().map(AheadPlace::Repository),
            ReuseWithin::Any | ReuseWithin::Never => None,
        }
    }

    /// Returns the only repository that may use the class, in lower case.
    fn sole_repository(&self) -> Option<String> {
        let [name] = &self.repositories[..] else { return None };
        (!name.contains('*')).then(|| name.to_ascii_lowercase())
    }

    /// Returns the only owner whose repositories may use the class, in lower case.
    fn sole_owner(&self) -> Option<String> {
        let mut owners =
            self.repositories.iter().map(|glob| glob.split_once('/').map_or("*", |(owner, _)| owner));
        let first = owners.next()?.to_ascii_lowercase();
        let sole = !first.contains('*') && owners.all(|owner| owner.eq_ignore_ascii_case(&first));
        sole.then_some(first)
    }

    /// Checks that runners of a class that requires it can be registered ahead.
    ///
    /// # Errors
    /// Names the conflicting setting, and why it conflicts.
    pub fn check_ahead(&self) -> Result<(), FieldError> {
        match self.registered_ahead {
            RegisteredAhead::Auto | RegisteredAhead::Never => Ok(()),
            RegisteredAhead::Always => self.ahead_lacks().next().map_or(Ok(()), |off| {
                let fix = format!("{}; or leave registeredAhead to auto", off.fix());
                Err(FieldError::new("registeredAhead", "true", off.why(), fix))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(more: &serde_json::Value) -> PoolSpec {
        let mut fields = serde_json::json!({"resourceClass": "linux", "registeredAhead": true});
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn a_runner_is_registered_ahead_only_where_nobody_else_could_use_it() {
        let place = |more, domain: &str| spec(&more).ahead_place(domain).map(|place| place.to_string());
        let own = serde_json::json!({"reuseWithin": "repository"});
        assert_eq!(place(own.clone(), "repository:acme/web").as_deref(), Some("acme/web"));
        assert_eq!(place(own.clone(), ""), None, "it has served nobody");
        let one = serde_json::json!({"reuseWithin": "repository", "repositories": ["Acme/Web"]});
        assert_eq!(place(one, "").as_deref(), Some("acme/web"), "it can serve nobody else");
        let more = serde_json::json!({"reuseWithin": "repository", "repositories": ["acme/w*"]});
        assert_eq!(place(more, ""), None);
        let group = serde_json::json!({"runnerGroup": "g"});
        assert_eq!(place(group.clone(), "owner:acme").as_deref(), Some("acme"));
        assert_eq!(place(group, ""), None, "anybody may be first");
        let ours = serde_json::json!({"runnerGroup": "g", "repositories": ["Acme/web", "acme/*"]});
        assert_eq!(place(ours, "").as_deref(), Some("acme"));
        let two = serde_json::json!({"runnerGroup": "g", "repositories": ["acme/*", "a*/x"]});
        assert_eq!(place(two, ""), None);
        for refused in [
            serde_json::json!({}),
            serde_json::json!({"reuseWithin": "any", "runnerGroup": "g"}),
            serde_json::json!({"reuseWithin": "none"}),
            serde_json::json!({"reuseWithin": "repository", "registrationMode": "job"}),
            serde_json::json!({"reuseWithin": "repository", "keep": [{"name": "a", "path": "~/a"}]}),
            serde_json::json!({"reuseWithin": "repository", "jobs": {"containers": "rootless"}}),
        ] {
            assert!(spec(&refused).check_ahead().is_err(), "{refused}");
            for said in [serde_json::json!("auto"), serde_json::json!(false)] {
                let mut asked = refused.clone();
                asked["registeredAhead"] = said;
                assert!(spec(&asked).check_ahead().is_ok(), "{asked}: only a class that insists is refused");
            }
        }
    }
}
