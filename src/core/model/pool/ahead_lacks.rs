//! What does a class lack for runners that are registered ahead of claims, by its spec and its operator?

use super::registered_ahead::{AheadOff, AheadStatus, RegisteredAhead};
use crate::model::machine::jobs::Jobs;
use crate::model::pool::{Pool, PoolSpec};
use crate::model::record::state::{RegistrationMode, ReuseWithin};

impl AheadStatus {
    /// Returns the current state of a class: the conditions that its spec lacks, else the operator's last status. None
    /// where that status was about another spec, or where no operator has written one yet.
    #[must_use]
    pub fn of_pool(pool: &Pool) -> Option<Self> {
        let own = Self::of(pool.spec.ahead_lacks());
        if !own.on {
            return Some(own);
        }
        let of_spec = |reason: &String| AheadOff::OF_SPEC.contains(&reason.as_str());
        pool.status.ahead.clone().filter(|told| !told.reasons.iter().any(of_spec))
    }
}

impl PoolSpec {
    /// Lists the conditions that the spec lacks for runners that are registered ahead; empty where it allows them.
    pub fn ahead_lacks(&self) -> impl Iterator<Item = AheadOff> {
        let said = match self.registered_ahead {
            RegisteredAhead::Never => Some(AheadOff::Said),
            RegisteredAhead::Auto | RegisteredAhead::Always => None,
        };
        let mode = match self.registration_mode {
            RegistrationMode::Job => Some(AheadOff::Mode),
            RegistrationMode::Run => None,
        };
        let reuse = match self.reuse_within {
            ReuseWithin::Repository => None,
            ReuseWithin::Owner => self.runner_group.is_empty().then_some(AheadOff::Group),
            within @ (ReuseWithin::Any | ReuseWithin::Never) => Some(AheadOff::Reuse(within)),
        };
        let keep = (!self.keep.is_empty()).then_some(AheadOff::Keep);
        let jobs = (self.jobs != Jobs::default()).then_some(AheadOff::Jobs);
        [said, mode, reuse, keep, jobs].into_iter().flatten()
    }

    /// Returns the condition that an operator lacks for them, by whether it registers runners at a GitHub at all, and
    /// at organisations.
    #[must_use]
    pub fn operator_lacks(&self, github: bool, organization: bool) -> Option<AheadOff> {
        let of_owner = match self.reuse_within {
            ReuseWithin::Owner => true,
            ReuseWithin::Repository | ReuseWithin::Any | ReuseWithin::Never => false,
        };
        match (github, of_owner && !organization) {
            (false, _) => Some(AheadOff::NoGitHub),
            (true, true) => Some(AheadOff::Scope),
            (true, false) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(more: &Value) -> PoolSpec {
        let mut fields = json!({"resourceClass": "linux"});
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn a_flag_or_auto_is_read_and_auto_is_never_stored() {
        for (said, read, stored) in [
            (json!({}), RegisteredAhead::Auto, None),
            (json!({"registeredAhead": "auto"}), RegisteredAhead::Auto, None),
            (json!({"registeredAhead": true}), RegisteredAhead::Always, Some(json!(true))),
            (json!({"registeredAhead": false}), RegisteredAhead::Never, Some(json!(false))),
        ] {
            let spec = spec(&said);
            assert_eq!(spec.registered_ahead, read, "{said}");
            assert_eq!(
                serde_json::to_value(&spec).unwrap().get("registeredAhead").cloned(),
                stored,
                "{said}"
            );
        }
        for bad in [json!("yes"), json!(1), json!(null), json!(["auto"]), json!("true")] {
            let read = serde_json::from_value::<RegisteredAhead>(bad.clone());
            assert!(read.unwrap_err().to_string().contains("true, false or auto"), "{bad}");
        }
    }

    #[test]
    fn all_that_a_spec_lacks_is_told_at_once_with_what_to_set() {
        let lacks = |more: Value| spec(&more).ahead_lacks().map(|off| off.as_str()).collect::<Vec<_>>();
        let none: [&str; 0] = [];
        assert_eq!(lacks(json!({"reuseWithin": "repository"})), none);
        assert_eq!(lacks(json!({"runnerGroup": "g"})), none);
        assert_eq!(lacks(json!({})), ["RunnerGroup"], "the default of reuseWithin is owner");
        assert_eq!(lacks(json!({"reuseWithin": "repository", "registeredAhead": false})), ["Off"]);
        let everything = json!({
            "registeredAhead": false, "registrationMode": "job", "reuseWithin": "any", "jobs": {"containers": "rootless"},
            "keep": [{"name": "a", "path": "~/a"}],
        });
        let all = ["Off", "RegistrationMode", "ReuseWithin", "Keep", "Jobs"];
        assert_eq!(lacks(everything.clone()), all);
        let status = AheadStatus::of(spec(&everything).ahead_lacks());
        assert_eq!(status.reasons, all);
        for word in ["set registeredAhead to auto", "registrationMode", "reuseWithin any", "keep", "jobs"] {
            assert!(status.message.contains(word), "{word}: {}", status.message);
        }
        assert!(status.message.contains("would save about 1.2 s"), "{}", status.message);
    }

    #[test]
    fn an_operator_lacks_a_github_or_for_an_owners_runners_an_organisation() {
        let of = |more: Value, github, organization| {
            spec(&more).operator_lacks(github, organization).map(|off| off.as_str())
        };
        let (own, owner) = (json!({"reuseWithin": "repository"}), json!({"runnerGroup": "g"}));
        assert_eq!(of(own.clone(), false, true), Some("NoGitHub"));
        assert_eq!((of(own.clone(), true, false), of(own, true, true)), (None, None));
        assert_eq!((of(owner.clone(), true, false), of(owner, true, true)), (Some("GitHubScope"), None));
    }

    #[test]
    fn what_an_operator_said_holds_until_the_spec_says_something_else() {
        let pool = |spec: Value, ahead: Option<AheadStatus>| {
            let mut item = json!({"pk": "pool#linux", "sk": "pool", "kind": "pool", "version": 1, "resourceClass": "linux"});
            item.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            let item: serde_dynamo::Item = serde_dynamo::to_item(item).unwrap();
            let item = item.into_inner().into_iter().collect();
            let crate::model::Reading::Record(mut pool) = crate::model::read::<Pool>(&item) else { panic!() };
            pool.status.ahead = ahead;
            AheadStatus::of_pool(&pool).map(|told| told.reasons)
        };
        let own = json!({"reuseWithin": "repository"});
        let said = |off: Option<AheadOff>| Some(AheadStatus::of(off.into_iter()));
        assert_eq!(pool(own.clone(), None), None, "nobody knows the operator's GitHub");
        assert_eq!(pool(own.clone(), said(Some(AheadOff::Scope))), Some(vec!["GitHubScope".to_owned()]));
        assert_eq!(pool(own.clone(), said(None)), Some(vec![]));
        assert_eq!(pool(own, said(Some(AheadOff::Group))), None, "it was said of an earlier spec");
        assert_eq!(pool(json!({}), said(None)), Some(vec!["RunnerGroup".to_owned()]));
    }
}
