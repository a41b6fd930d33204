//! Explains why a machine or a request ended, and who ended it: the first question of most people.

use crate::model::history::Activity;
use crate::model::{Instance, Life, Reason, RecordId, Request, RequestKey};

/// Describes a reason, for people who do not know the word.
const fn meaning(reason: Reason) -> &'static str {
    match reason {
        Reason::Threshold => "it passed the deadline of its state",
        Reason::BootFailed => "its first boot or its pre-runner script failed",
        Reason::RegistrationFailed => "its runner could not be registered",
        Reason::CleanupFailed => "it could not be proved clean",
        Reason::Unhealthy => "its agent fell silent or broke a rule",
        Reason::Interrupted => "EC2 took it back",
        Reason::Drifted => "it no longer matched its class",
        Reason::Surplus => "its class had more machines than it may have",
        Reason::MaxUses => "it had served as many claims as it may",
        Reason::MaxAge => "it was older than its class allows",
        Reason::Expired => "a person asked for its end",
        Reason::Orphan => "no record named it",
        Reason::Vanished => "its provider no longer had it, and Runyard had not ended it",
    }
}

/// Describes why a machine ended, and who ended it; none while it lives.
pub fn ended(instance: &Instance) -> Option<String> {
    let Life::Terminated { reason, .. } = instance.life else { return None };
    let person = match (&instance.expired_by, &instance.hold) {
        (Some(by), _) => Some(by),
        (None, Some(hold)) => Some(&hold.by),
        (None, None) => None,
    };
    let expired = reason == Reason::Expired;
    let by = match person {
        Some(by) if expired && instance.expired_by.is_none() => {
            format!("expired: the hold of {by} was over")
        }
        Some(by) if expired => format!("expired by {by}"),
        Some(by) if instance.expired_by.is_some() => {
            format!("{reason} ({}), after {by} had asked for its end", meaning(reason))
        }
        Some(_) | None => format!("{reason} ({})", meaning(reason)),
    };
    let served = lost_by(instance).map_or(String::new(), |id| format!(", while it served {id}"));
    Some(format!("{by}{served}"))
}

/// Returns the request that lost a machine by its end; none where the machine served no request then, or where its
/// record does not have it any more.
pub fn lost_by(instance: &Instance) -> Option<&RequestKey> {
    let Life::Terminated { .. } = instance.life else { return None };
    let serves = |activity: Activity| match activity {
        Activity::Claimed | Activity::Running => true,
        Activity::Starting | Activity::Idle | Activity::Cleaning | Activity::Held | Activity::Ending => false,
    };
    let last = instance.spans.last().filter(|span| serves(span.activity))?;
    let claim = instance.claim.as_ref().map(|claim| &claim.request);
    last.request.as_ref().or(claim).and_then(RecordId::request)
}

/// Describes the phase of a request: for an ended one, its message states why it ended and who ended it.
pub(super) fn phase(request: &Request) -> String {
    let message = &request.status.message;
    match request.status.phase {
        None => "new (no operator has seen it yet)".into(),
        Some(phase) if phase.is_final() && !message.is_empty() => format!("{phase}: {message}"),
        Some(phase) => phase.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Hold;
    use crate::model::history::PastSpan;
    use crate::testing::{ask, at, machine, request};

    fn told(built: crate::testing::Built) -> String {
        ended(&built.instance).unwrap()
    }

    #[test]
    fn what_ended_names_its_reason_and_the_person_who_ended_it() {
        assert_eq!(ended(&machine("i-1").instance), None);
        for reason in Reason::ALL {
            let said = told(machine("i-1").ended(*reason));
            assert_eq!(said, format!("{reason} ({})", meaning(*reason)));
        }
        let by_ada =
            |reason| told(machine("i-1").ended(reason).with(|i| i.expired_by = Some("cli:ada".into())));
        assert_eq!(by_ada(Reason::Expired), "expired by cli:ada");
        assert_eq!(
            by_ada(Reason::CleanupFailed),
            "cleanup-failed (it could not be proved clean), after cli:ada had asked for its end"
        );
        let hold = Hold { by: "cli:bob".into(), until: at(60) };
        let held = |reason| told(machine("i-1").ended(reason).with(|i| i.hold = Some(hold.clone())));
        assert_eq!(held(Reason::Expired), "expired: the hold of cli:bob was over");
        assert_eq!(held(Reason::Vanished), told(machine("i-1").ended(Reason::Vanished)));
    }

    #[test]
    fn a_machine_that_ended_under_a_run_says_which() {
        let span = |activity| PastSpan::new(activity, at(-9), Some(crate::model::Request::key_of(&ask("7"))));
        let after = |activity| {
            let built = machine("i-1").ended(Reason::Vanished).with(|i| i.spans = vec![span(activity)]);
            told(built)
        };
        assert!(
            after(Activity::Running).ends_with(", while it served acme/web run 7/default/1"),
            "{}",
            after(Activity::Running)
        );
        assert!(after(Activity::Cleaning).ends_with("had not ended it)"));
        // A span without a request has that of its predecessor.
        let later = machine("i-1").running(&ask("7")).ended(Reason::Vanished).with(|i| {
            i.spans = vec![span(Activity::Claimed), PastSpan { request: None, ..span(Activity::Running) }];
        });
        assert_eq!(lost_by(&later.instance), Some(&ask("7")));
    }

    #[test]
    fn a_request_that_is_over_says_why_and_by_whom() {
        let of = |more: serde_json::Value| phase(&request("1", 1, more));
        assert_eq!(of(serde_json::json!({"phase": "Pending"})), "Pending");
        let failed = serde_json::json!({"phase": "Failed", "message": "FailedByPerson: failed by cli:ada"});
        assert_eq!(of(failed), "Failed: FailedByPerson: failed by cli:ada");
        let over = serde_json::json!({"phase": "Released", "message": "GitHub says that its run is over"});
        assert_eq!(of(over), "Released: GitHub says that its run is over");
    }
}
