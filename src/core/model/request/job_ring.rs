//! Parses the messages that say that jobs of a repository were queued: the payload of GitHub's webhook `workflow_job`,
//! as API Gateway or EventBridge brings it. Anybody may send one, so it only names a repository to look at.

use serde::Deserialize;

use crate::model::record::ids::Repository;

/// The largest message that is read, in bytes. GitHub's own have about 30 000.
pub const LARGEST_JOB_RING: usize = 256 * 1024;

/// Why a message names no job of a repository. It contains nothing of the message, which anybody may have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAJobRing {
    /// It is larger than [`LARGEST_JOB_RING`].
    #[error("it is larger than 256 KiB")]
    TooLarge,
    /// It is not JSON, or a field that is read has another type.
    #[error("it is not the JSON of a webhook")]
    Unreadable,
    /// It has no `workflow_job.run_id`: another event of GitHub's, or another sender.
    #[error("it is not about a job: workflow_job.run_id is missing")]
    NoJob,
    /// It has no `repository.full_name` that GitHub would allow.
    #[error("it names no repository: repository.full_name is missing or invalid")]
    NoRepository,
}

/// What a message says: something became of a job of this run. It may be forged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobRing {
    /// The repository.
    pub repository: Repository,
    /// The run as GitHub numbers it.
    pub run: u64,
}

/// The payload of GitHub's webhook, in which nothing else is read.
#[derive(Deserialize)]
struct Payload {
    repository: Option<NamedRepository>,
    workflow_job: Option<JobOfRun>,
    /// The payload, where the message is an event of EventBridge.
    detail: Option<Box<Payload>>,
}

#[derive(Deserialize)]
struct NamedRepository {
    full_name: Option<String>,
}

#[derive(Deserialize)]
struct JobOfRun {
    run_id: Option<u64>,
}

/// Parses the body of a message.
///
/// # Errors
/// The reason why it names no job of a repository; the message is of no use then.
pub fn read_job_ring(body: &str) -> Result<JobRing, NotAJobRing> {
    if body.len() > LARGEST_JOB_RING {
        return Err(NotAJobRing::TooLarge);
    }
    let payload = match form_payload(body) {
        Some(json) => serde_json::from_str::<Payload>(&json),
        None => serde_json::from_str(body),
    };
    let mut payload = payload.map_err(|_| NotAJobRing::Unreadable)?;
    if let Some(detail) = payload.detail.take() {
        payload = *detail;
    }
    let run = payload.workflow_job.and_then(|job| job.run_id).ok_or(NotAJobRing::NoJob)?;
    let name = payload.repository.and_then(|repository| repository.full_name);
    let repository =
        name.and_then(|name| Repository::parse_at_github(&name).ok()).ok_or(NotAJobRing::NoRepository)?;
    Ok(JobRing { repository, run })
}

/// Returns the JSON in the body of a webhook whose content type is `application/x-www-form-urlencoded`, GitHub's
/// default for the webhooks of repositories and organisations.
fn form_payload(body: &str) -> Option<String> {
    body.starts_with("payload=").then(|| {
        let mut pairs = form_urlencoded::parse(body.as_bytes());
        pairs.next().map(|(_, value)| value.into_owned()).unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const QUEUED: &str = include_str!("../../../../tests/golden/webhooks/workflow-job-queued.json");
    const EVENT: &str = include_str!("../../../../tests/golden/webhooks/workflow-job-eventbridge.json");

    fn payload() -> Value {
        serde_json::from_str(QUEUED).unwrap()
    }

    fn form(json: &str) -> String {
        form_urlencoded::Serializer::new(String::new()).append_pair("payload", json).finish()
    }

    /// The golden payload with a change, as text.
    fn with(change: impl FnOnce(&mut Value)) -> String {
        let mut payload = payload();
        change(&mut payload);
        payload.to_string()
    }

    fn ring(repository: &str, run: u64) -> Result<JobRing, NotAJobRing> {
        Ok(JobRing { repository: repository.parse().unwrap(), run })
    }

    #[test]
    fn a_queued_job_names_its_repository_and_run_in_every_shape_that_brings_it() {
        for body in [QUEUED, EVENT, &form(QUEUED)] {
            assert_eq!(read_job_ring(body), ring("Acme/Web", 42), "{body}");
        }
    }

    #[test]
    fn nothing_but_the_repository_and_the_run_is_read() {
        for action in [json!("in_progress"), json!(7), Value::Null] {
            assert_eq!(read_job_ring(&with(|body| body["action"] = action)), ring("Acme/Web", 42));
        }
        let bare = r#"{"repository": {"full_name": "acme/api"}, "workflow_job": {"run_id": 1}}"#;
        assert_eq!(read_job_ring(bare), ring("acme/api", 1));
        let deep = format!("{{\"sender\": {}{}, {}", "[".repeat(5000), "]".repeat(5000), &bare[1..]);
        assert_eq!(read_job_ring(&deep), ring("acme/api", 1));
    }

    #[test]
    fn what_is_about_no_job_of_a_repository_is_refused_with_a_reason() {
        use NotAJobRing::{NoJob, NoRepository, TooLarge, Unreadable};
        let named = |name: Value| with(|body| body["repository"]["full_name"] = name);
        let of_run = |run: Value| with(|body| body["workflow_job"]["run_id"] = run);
        let without = |field: &str| with(|body| drop(body.as_object_mut().unwrap().remove(field)));
        let large = with(|body| body["sender"] = json!("x".repeat(LARGEST_JOB_RING)));
        for (body, why) in [
            (String::new(), Unreadable),
            ("no JSON".into(), Unreadable),
            ("[]".into(), Unreadable),
            (r#""text""#.into(), Unreadable),
            ("payload=".into(), Unreadable),
            ("payload=%ff%fe".into(), Unreadable),
            (QUEUED[..QUEUED.len() / 2].into(), Unreadable),
            (of_run(json!("7")), Unreadable),
            (of_run(json!(-1)), Unreadable),
            (named(json!(["acme/web"])), Unreadable),
            (r#"{"detail": "text"}"#.into(), Unreadable),
            ("{}".into(), NoJob),
            (r#"{"zen": "Design for failure.", "hook_id": 1}"#.into(), NoJob),
            (without("workflow_job"), NoJob),
            (of_run(Value::Null), NoJob),
            (r#"{"detail": {}}"#.into(), NoJob),
            (without("repository"), NoRepository),
            (named(Value::Null), NoRepository),
            (named(json!("acme")), NoRepository),
            (named(json!("acme/../admin")), NoRepository),
            (named(json!("acme/web\u{1b}[2J\nlevel=error")), NoRepository),
            (large, TooLarge),
        ] {
            assert_eq!(read_job_ring(&body), Err(why), "{body:.200}");
        }
    }

    #[test]
    fn a_message_is_read_up_to_its_bound_and_not_beyond() {
        let least = with(|body| body["sender"] = json!("")).len();
        let filled = |bytes: usize| with(|body| body["sender"] = json!("x".repeat(bytes - least)));
        let (largest, larger) = (filled(LARGEST_JOB_RING), filled(LARGEST_JOB_RING + 1));
        assert_eq!((largest.len(), read_job_ring(&largest).is_ok()), (LARGEST_JOB_RING, true));
        assert_eq!(read_job_ring(&larger), Err(NotAJobRing::TooLarge));
    }
}
