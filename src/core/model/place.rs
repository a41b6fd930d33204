//! Where the runner of a machine may be registered before its claim is known, and for which classes.

use std::fmt;

use super::field::FieldError;
use super::jobs::Jobs;
use super::pool::PoolSpec;
use super::state::{RegistrationMode, ReuseWithin};

/// Where the runner of a machine can be registered before its claim is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AheadPlace {
    /// At this repository, `owner/name`, the only one that the machine serves.
    Repository(String),
    /// At this organisation, in the runner group of the class.
    Owner(String),
}

impl AheadPlace {
    /// Of a machine of this trust domain.
    #[must_use]
    pub fn of(trust_domain: &str) -> Option<Self> {
        let (kind, name) = trust_domain.split_once(':')?;
        match kind {
            "repository" => Some(Self::Repository(name.to_owned())),
            "owner" => Some(Self::Owner(name.to_owned())),
            _unknown => None,
        }
    }

    /// The trust domain of a machine that serves it.
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
    /// Where the runner of a machine of this trust domain is registered ahead; none where the class does not ask for
    /// it, may not have it, or where the machine has served nobody and may serve more than one owner.
    #[must_use]
    pub fn ahead_place(&self, trust_domain: &str) -> Option<AheadPlace> {
        if !self.registered_ahead || self.check_ahead().is_err() {
            return None;
        }
        match (self.reuse_within, AheadPlace::of(trust_domain)) {
            (ReuseWithin::Owner, None) if trust_domain.is_empty() => self.sole_owner().map(AheadPlace::Owner),
            (ReuseWithin::Repository, None) if trust_domain.is_empty() => {
                self.sole_repository().map(AheadPlace::Repository)
            }
            (ReuseWithin::Owner, place @ Some(AheadPlace::Owner(_))) => place,
            (_, place @ Some(AheadPlace::Repository(_))) => place,
            (_, None | Some(AheadPlace::Owner(_))) => None,
        }
    }

    /// The only repository that may use the class, in lower case.
    fn sole_repository(&self) -> Option<String> {
        let [name] = &self.repositories[..] else { return None };
        (!name.contains('*')).then(|| name.to_ascii_lowercase())
    }

    /// The only owner whose repositories may use the class, in lower case.
    fn sole_owner(&self) -> Option<String> {
        let mut owners =
            self.repositories.iter().map(|glob| glob.split_once('/').map_or("*", |(owner, _)| owner));
        let first = owners.next()?.to_ascii_lowercase();
        let sole = !first.contains('*') && owners.all(|owner| owner.eq_ignore_ascii_case(&first));
        sole.then_some(first)
    }

    /// Checks that runners of the class can be registered ahead.
    ///
    /// # Errors
    /// Names the field that does not go with it, and why.
    pub fn check_ahead(&self) -> Result<(), FieldError> {
        if !self.registered_ahead {
            return Ok(());
        }
        let refuse =
            |message: String, fix: &str| Err(FieldError::new("registeredAhead", "true", message, fix));
        if self.registration_mode != RegistrationMode::Run {
            let message = format!("does not go with registrationMode {}", self.registration_mode);
            return refuse(
                message,
                "set registrationMode to run: a single-use runner is made for its labels",
            );
        }
        match self.reuse_within {
            ReuseWithin::Repository => {}
            ReuseWithin::Owner if !self.runner_group.is_empty() => {}
            ReuseWithin::Owner => {
                let message = "does not go with reuseWithin owner without a runnerGroup".to_owned();
                let fix = "set reuseWithin to repository, or name a runnerGroup that admits its repositories";
                return refuse(message, fix);
            }
            ReuseWithin::Any | ReuseWithin::Never => {
                let message = format!("does not go with reuseWithin {}", self.reuse_within);
                return refuse(message, "set reuseWithin to repository, or to owner with a runnerGroup");
            }
        }
        if !self.keep.is_empty() {
            let message = "does not go with keep: kept directories are lent when the runner starts";
            return refuse(message.to_owned(), "leave one of them out");
        }
        if self.jobs != Jobs::default() {
            let message = "does not go with jobs: what they may do is granted when the runner starts";
            return refuse(message.to_owned(), "leave one of them out");
        }
        Ok(())
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
            assert_eq!(place(refused, "repository:acme/web"), None);
        }
        let off = serde_json::json!({"reuseWithin": "repository", "registeredAhead": false});
        assert_eq!(place(off, "repository:acme/web"), None);
    }
}
