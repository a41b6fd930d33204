//! Reads messages: a batch whose body is JSON as text. What cannot be read is counted, never an error: a message that
//! nobody could delete would come again for ever, and its counts are good.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::wire::StatisticsBody;
use crate::ports::scale_sets::{JobMessage, JobNews, Message};

/// The only type of messages that is known.
const JOBS: &str = "RunnerScaleSetJobMessages";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MessageBody {
    #[serde(default)]
    message_id: u64,
    #[serde(default)]
    message_type: String,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    statistics: Option<StatisticsBody>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct JobBody {
    message_type: String,
    runner_request_id: u64,
    job_id: String,
    owner_name: String,
    repository_name: String,
    workflow_run_id: u64,
    job_display_name: String,
    request_labels: Option<Vec<String>>,
    queue_time: Option<String>,
    runner_name: Option<String>,
    result: Option<String>,
}

/// Reads a message; the error is its problem.
pub(super) fn read(body: MessageBody) -> Result<Message, &'static str> {
    if body.message_id == 0 {
        return Err("the message has no number");
    }
    let parts = match body.body.as_deref() {
        _ if body.message_type != JOBS => None,
        None | Some("") => Some(Vec::new()),
        Some(text) => serde_json::from_str::<Vec<Value>>(text).ok(),
    };
    let (mut jobs, mut unknown) = (Vec::new(), u32::from(parts.is_none()));
    for part in parts.unwrap_or_default() {
        match serde_json::from_value::<JobBody>(part).ok().and_then(job) {
            Some(job) => jobs.push(job),
            None => unknown += 1,
        }
    }
    Ok(Message { id: body.message_id, statistics: body.statistics.unwrap_or_default().into(), jobs, unknown })
}

/// Returns a job of a known kind.
fn job(body: JobBody) -> Option<JobMessage> {
    let news = match body.message_type.as_str() {
        "JobAvailable" => JobNews::Available,
        "JobAssigned" => JobNews::Assigned,
        "JobStarted" => JobNews::Started,
        "JobCompleted" => JobNews::Completed,
        _ => return None,
    };
    let queued: Option<Timestamp> = body.queue_time.and_then(|at| at.parse().ok());
    Some(JobMessage {
        news,
        runner_request_id: body.runner_request_id,
        job_id: body.job_id,
        owner: body.owner_name,
        repository: body.repository_name,
        run_id: body.workflow_run_id,
        name: body.job_display_name,
        labels: body.request_labels.unwrap_or_default(),
        // A time that is not known is .NET's first, in the year 1.
        queued_at: queued.filter(|at| *at > Timestamp::UNIX_EPOCH),
        runner: body.runner_name.unwrap_or_default(),
        result: body.result.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message(kind: &str, body: &str) -> Result<Message, &'static str> {
        let statistics = json!({"totalAssignedJobs": 3, "totalIdleRunners": -1, "totalNewThings": 9});
        let whole = json!({"messageId": 7, "messageType": kind, "body": body, "statistics": statistics});
        read(serde_json::from_value(whole).unwrap())
    }

    #[test]
    fn a_batch_is_read_whole_and_what_is_unknown_is_counted() {
        let assigned = json!({
            "messageType": "JobAssigned", "runnerRequestId": 5, "repositoryName": "app", "ownerName": "octo",
            "jobId": "j", "jobDisplayName": "build", "workflowRunId": 41, "requestLabels": ["small"],
            "queueTime": "2026-03-01T12:00:00Z", "scaleSetAssignTime": "0001-01-01T00:00:00Z",
        });
        let completed = json!({
            "messageType": "JobCompleted", "runnerRequestId": 5, "queueTime": "0001-01-01T00:00:00Z",
            "runnerName": "r", "result": "succeeded", "requestLabels": null,
        });
        let odd = json!({"messageType": "JobPondered"});
        let wrong = json!({"messageType": "JobStarted", "runnerRequestId": "five"});
        let read = message(JOBS, &json!([assigned, odd, completed, wrong, 7]).to_string()).unwrap();
        assert_eq!((read.id, read.jobs.len(), read.unknown), (7, 2, 3));
        assert_eq!((read.statistics.assigned, read.statistics.idle), (3, 0));
        let (first, last) = (&read.jobs[0], &read.jobs[1]);
        assert_eq!(
            (first.news, first.run_id, first.labels.as_slice()),
            (JobNews::Assigned, 41, &["small".into()][..])
        );
        assert_eq!(first.queued_at, "2026-03-01T12:00:00Z".parse().ok());
        assert_eq!(
            (last.news, last.queued_at, last.result.as_str()),
            (JobNews::Completed, None, "succeeded")
        );
    }

    #[test]
    fn a_message_that_cannot_be_read_can_still_be_deleted() {
        for (kind, body, unknown) in
            [("Other", "[]", 1), (JOBS, "hunter2", 1), (JOBS, "", 0), (JOBS, "{}", 1)]
        {
            let read = message(kind, body).unwrap();
            assert_eq!((read.id, read.jobs.len(), read.unknown), (7, 0, unknown), "{kind} {body}");
            assert_eq!(read.statistics.assigned, 3);
        }
        assert!(read(serde_json::from_value(json!({"messageType": JOBS})).unwrap()).is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_body_makes_it_panic(body in "[ -~]{0,60}") {
            let _ = message(JOBS, &body);
        }
    }
}
