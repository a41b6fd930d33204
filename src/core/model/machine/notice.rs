//! Parses the EventBridge events about machines that arrive on a queue. An event of an unknown kind is readable and
//! empty; a body that is no EventBridge event is unreadable.

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::agent::{Interruption, InterruptionAction};
use crate::model::record::ids::InstanceId;

/// From the warning to the end of a spot machine (EC2, "Spot Instance interruption notices").
const WARNING: SignedDuration = SignedDuration::from_secs(120);

/// The news about a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// EC2 takes it back, or recommends to rebalance.
    Interruption(Interruption),
    /// It is stopping or ending, or has done so: describe it.
    Changed,
}

/// The news in one event about one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The machine, which may not be ours.
    pub instance: InstanceId,
    /// The news.
    pub news: News,
}

#[derive(Deserialize)]
struct Event {
    source: String,
    #[serde(rename = "detail-type")]
    detail_type: String,
    time: Timestamp,
    detail: serde_json::Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct OfInstance {
    instance_id: String,
    #[serde(default)]
    instance_action: String,
    #[serde(default)]
    state: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfHealth {
    service: String,
    event_type_category: String,
    #[serde(default)]
    start_time: Option<String>,
    #[serde(default)]
    affected_entities: Vec<Entity>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entity {
    entity_value: String,
}

/// Parses the body of a message.
///
/// # Errors
/// Describes a body that is no event, or lacks a field that its kind of event has.
pub fn read_notices(body: &str) -> Result<Vec<Notice>, String> {
    let event: Event = serde_json::from_str(body).map_err(|error| error.to_string())?;
    match (event.source.as_str(), event.detail_type.as_str()) {
        ("aws.ec2", "EC2 Spot Instance Interruption Warning") => warning(&event),
        ("aws.ec2", "EC2 Instance Rebalance Recommendation") => {
            let detail: OfInstance = detail(&event)?;
            let interruption = Interruption { action: InterruptionAction::Rebalance, at: event.time };
            Ok(one(&detail, News::Interruption(interruption)))
        }
        ("aws.ec2", "EC2 Instance State-change Notification") => {
            let detail: OfInstance = detail(&event)?;
            Ok(match detail.state.as_str() {
                "stopping" | "stopped" | "shutting-down" | "terminated" => one(&detail, News::Changed),
                _other => Vec::new(),
            })
        }
        ("aws.health", "AWS Health Event") => health(&event),
        _other => Ok(Vec::new()),
    }
}

fn detail<T: serde::de::DeserializeOwned>(event: &Event) -> Result<T, String> {
    serde_json::from_value(event.detail.clone()).map_err(|error| format!("detail: {error}"))
}

/// Returns the notice for the machine of an event; none when its id cannot be one of ours.
fn one(detail: &OfInstance, news: News) -> Vec<Notice> {
    InstanceId::parse(&detail.instance_id).map(|instance| Notice { instance, news }).into_iter().collect()
}

/// Builds the notice of a warning: two minutes ahead, except for hibernation, which begins at once and counts as a
/// stop.
fn warning(event: &Event) -> Result<Vec<Notice>, String> {
    let detail: OfInstance = detail(event)?;
    let soon = event.time.saturating_add(WARNING).unwrap_or(event.time);
    let (action, at) = match detail.instance_action.as_str() {
        "terminate" => (InterruptionAction::Terminate, soon),
        "stop" => (InterruptionAction::Stop, soon),
        "hibernate" => (InterruptionAction::Stop, event.time),
        other => return Err(format!("detail.instance-action: {other:?} is none of EC2's")),
    };
    Ok(one(&detail, News::Interruption(Interruption { action, at })))
}

/// Builds the notices of maintenance that EC2 schedules days ahead: such a machine takes no new work.
fn health(event: &Event) -> Result<Vec<Notice>, String> {
    let detail: OfHealth = detail(event)?;
    if detail.service != "EC2" || detail.event_type_category != "scheduledChange" {
        return Ok(Vec::new());
    }
    let start = detail.start_time.as_deref().and_then(|time| {
        let zoned = jiff::fmt::rfc2822::parse(time).ok()?;
        Some(zoned.timestamp())
    });
    let at = start.unwrap_or(event.time);
    let news = News::Interruption(Interruption { action: InterruptionAction::Rebalance, at });
    let entities = detail.affected_entities.iter();
    let ids = entities.filter_map(|entity| InstanceId::parse(&entity.entity_value).ok());
    Ok(ids.map(|instance| Notice { instance, news: news.clone() }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WARNED: &str = include_str!("../../../../tests/golden/events/spot-interruption-warning.json");
    const REBALANCE: &str = include_str!("../../../../tests/golden/events/rebalance-recommendation.json");
    const CHANGED: &str = include_str!("../../../../tests/golden/events/state-change.json");
    const HEALTH: &str = include_str!("../../../../tests/golden/events/health-scheduled-change.json");

    fn interruption(action: InterruptionAction, at: &str) -> News {
        News::Interruption(Interruption { action, at: at.parse().unwrap() })
    }

    fn said(body: &str) -> Vec<(String, News)> {
        let notices = read_notices(body).unwrap();
        notices.into_iter().map(|notice| (notice.instance.to_string(), notice.news)).collect()
    }

    #[test]
    fn a_warning_tells_the_end_two_minutes_after_it() {
        let news =
            |action| [("i-1234567890abcdef0".to_owned(), interruption(action, "2026-01-05T12:02:00Z"))];
        assert_eq!(said(WARNED), news(InterruptionAction::Terminate));
        assert_eq!(said(&WARNED.replace("terminate", "stop")), news(InterruptionAction::Stop));
    }

    #[test]
    fn a_hibernation_begins_at_once() {
        let news = interruption(InterruptionAction::Stop, "2026-01-05T12:00:00Z");
        assert_eq!(
            said(&WARNED.replace("terminate", "hibernate")),
            [("i-1234567890abcdef0".to_owned(), news)]
        );
    }

    #[test]
    fn a_rebalance_recommendation_names_its_machine() {
        let news = interruption(InterruptionAction::Rebalance, "2026-01-05T12:00:00Z");
        assert_eq!(said(REBALANCE), [("i-1234567890abcdef0".to_owned(), news)]);
    }

    #[test]
    fn a_change_of_state_counts_when_the_machine_goes() {
        for state in ["stopping", "stopped", "shutting-down", "terminated"] {
            let body = CHANGED.replace("shutting-down", state);
            assert_eq!(said(&body), [("i-1234567890abcdef0".to_owned(), News::Changed)], "{state}");
        }
        for state in ["pending", "running"] {
            assert_eq!(said(&CHANGED.replace("shutting-down", state)), [], "{state}");
        }
    }

    #[test]
    fn a_scheduled_change_names_every_machine_and_when() {
        let news = interruption(InterruptionAction::Rebalance, "2026-01-19T15:10:00Z");
        assert_eq!(
            said(HEALTH),
            [("i-1234567890abcdef0".to_owned(), news.clone()), ("i-0fedcba0987654321".to_owned(), news)]
        );
        assert_eq!(said(&HEALTH.replace("scheduledChange", "issue")), []);
        assert_eq!(said(&HEALTH.replace("\"EC2\"", "\"RDS\"")), []);
    }

    #[test]
    fn what_speaks_of_nothing_we_know_says_nothing() {
        assert_eq!(said(&CHANGED.replace("State-change", "Something")), []);
        assert_eq!(said(&CHANGED.replace("aws.ec2", "acme.app")), []);
    }

    #[test]
    fn what_is_no_event_cannot_be_read() {
        for body in ["", "hello", "[]", "{}", "{\"source\":\"aws.ec2\"}"] {
            assert!(read_notices(body).is_err(), "{body}");
        }
        assert!(read_notices(&WARNED.replace("terminate", "dance")).is_err());
        assert!(read_notices(&WARNED.replace("instance-id", "instance")).is_err());
    }
}
