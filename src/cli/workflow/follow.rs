//! Follows a request until its machines run, it fails, or the wait ends. A wait that ends without machines releases the
//! request, so that nobody pays for unused machines; with a fallback its workflow goes on with other runners.

use std::time::Duration;

use super::fallback;
use super::fallback::Fallback;
use super::github_output;
use super::release::write_released;
use crate::common::duration;
use crate::common::failure::{Caught, CliFailure, CliResult, Exit};
use crate::output::format::plain;
use crate::output::progress::Progress;
use crate::session::context::{CliContext, readable};
use crate::session::polling::{Interrupts, Waited, until};
use runyard_core::model::{Condition, ConditionType, Item, Phase, Record, RecordId, Request};

/// A request to follow, with its options.
pub(crate) struct Following {
    /// The request as written or found.
    pub(crate) item: Item,
    /// The time limit.
    pub(crate) limit: Duration,
    /// The signals that end the wait early.
    pub(crate) interrupts: Interrupts,
    /// Whether the request remains if the wait ends without machines.
    pub(crate) keep: bool,
    /// The runners that take the jobs if the wait ends without machines.
    pub(crate) fallback: Option<Fallback>,
}

/// Follows the request.
pub(crate) async fn follow(context: &mut CliContext, mut following: Following) -> CliResult {
    let first: Request = readable(&following.item)?;
    let mut progress = Progress::new(&context.screen);
    let waited = {
        let (key, last) = (first.key(), &mut following.item);
        let limit = following.limit;
        until(limit, &mut following.interrupts, async || {
            let item = context.item(&key).await?.ok_or_else(|| gone(&first))?;
            let request: Request = readable(&item)?;
            progress.show(&mut context.screen, &told(&request));
            last.clone_from(&item);
            Ok(settled(&request).then_some(()))
        })
        .await
    };
    progress.finish();
    let followed = match waited {
        Ok(Waited::Done(())) => finish(context, &following),
        Ok(Waited::TimedOut) => give_up(context, &following, None).await,
        Ok(Waited::Interrupted(caught)) => give_up(context, &following, Some(caught)).await,
        Err(failure) => match &following.fallback {
            Some(other) => other.without_answer(context, Some(following.item), Some(first), &failure).await,
            None => Err(failure),
        },
    };
    followed.map_err(|failure| linked(failure, github_output::page(&context.environment)))
}

/// Adds the address of the yard's status page to a failure, where it is known.
fn linked(mut failure: CliFailure, page: Option<&str>) -> CliFailure {
    if let (Some(page), Some(problem)) = (page, failure.problems.last_mut()) {
        problem.fix.push_str(&format!("; the yard's status page: {page}"));
    }
    failure
}

/// Returns whether there is nothing left to wait for.
fn settled(request: &Request) -> bool {
    if request.is_released() {
        return true;
    }
    match request.phase() {
        Phase::Ready | Phase::Releasing | Phase::Released | Phase::Failed => true,
        Phase::Pending | Phase::Fulfilling => false,
    }
}

/// Formats one line of progress.
fn told(request: &Request) -> String {
    let (status, count) = (&request.status, request.intent.count);
    let refused = |one: &&Condition| one.condition_type == ConditionType::Accepted && !one.status;
    let waits = status.conditions.iter().find(refused).filter(|_| status.phase.is_none());
    let reason = waits.map_or_else(String::new, |one| format!("{}: ", plain(&one.reason)));
    let message = format!("{reason}{}", plain(&status.message));
    let line = format!("{:<10} {}/{count}  {message}", request.phase(), status.instances.len());
    line.trim_end().to_owned()
}

fn finish(context: &mut CliContext, following: &Following) -> CliResult {
    let item = &following.item;
    let request: Request = readable(item)?;
    let ready = request.phase() == Phase::Ready && !request.is_released();
    if let Some(other) = following.fallback.as_ref().filter(|_| !ready) {
        let CliContext { screen, environment, .. } = context;
        return other.take(screen, environment, Some(item), &fallback::said(&over(&request)));
    }
    let published = github_output::publish(&context.environment, &request);
    context.screen.document(&github_output::document(item, &request));
    if ready {
        let ids: Vec<&str> = request.status.instances.iter().map(|id| id.as_str()).collect();
        context.screen.say(format!(
            "ready: runs-on {} ({})",
            github_output::shown_label(&context.environment, &request),
            ids.join(" ")
        ));
        return published;
    }
    if let Err(failure) = published {
        tracing::error!(%failure, "the outputs were not written");
    }
    Err(over(&request).exiting(Exit::RequestFailed))
}

/// Returns why a request will not become ready.
fn over(request: &Request) -> CliFailure {
    let id = &request.id;
    let failed = request.phase() == Phase::Failed;
    let mut message =
        if failed { "failed".to_owned() } else { "was released before it was ready".to_owned() };
    if !request.status.message.is_empty() {
        message = format!("{message}: {}", plain(&request.status.message));
    }
    for condition in request.status.conditions.iter().filter(|condition| tells_more(condition, request)) {
        let (reason, text) = (plain(&condition.reason), plain(&condition.message));
        message.push_str(&format!("\n  {}: {reason}: {text}", condition.condition_type));
    }
    CliFailure::error("request", id.to_string(), message, remedy(request))
}

/// Returns the fix for a failed request, by its reason.
fn remedy(request: &Request) -> String {
    let (id, class) = (&request.id, &request.intent.resource_class);
    let named = format!("{}/{}/{}", id.run_id, id.name, id.attempt);
    let ready = request.status.conditions.iter().find(|one| one.condition_type == ConditionType::Ready);
    match ready.filter(|one| !one.status).map(|one| one.reason.as_str()) {
        Some("UnknownClass") => "use one of the classes that `runyard get pools` lists".into(),
        Some("NotAllowed") => "mend what the message names, use a class that allows it, or have the pool's spec changed \
                                (`runyard set pool`)"
            .into(),
        Some("OverMax") => format!("ask for fewer, or have it raised: `runyard set pool {class} max=N`"),
        Some("DeadlinePassed") => {
            "wait longer (--timeout), accept fewer (--min-count), or ask the yard's owner to fix the cause above".into()
        }
        Some("FailedByPerson") => format!("`runyard events request {named}` says who"),
        Some(_) | None => format!("see `runyard events request {named}`"),
    }
}

/// Returns whether a condition adds something to the message.
fn tells_more(condition: &Condition, request: &Request) -> bool {
    let wrong = match condition.condition_type {
        ConditionType::Accepted | ConditionType::Ready | ConditionType::Warm => !condition.status,
        ConditionType::Degraded
        | ConditionType::Blocked
        | ConditionType::IntentIgnored
        | ConditionType::Unaccounted
        | ConditionType::Doubtful
        | ConditionType::Listening
        | ConditionType::RuntimeEnds
        | ConditionType::RunnerHeldBack
        | ConditionType::RunnerEnds
        | ConditionType::Stuck => condition.status,
    };
    let said = &request.status.message;
    wrong && !(said.contains(&condition.reason) && said.contains(&condition.message))
}

fn gone(request: &Request) -> CliFailure {
    let id = request.id.to_string();
    CliFailure::error("request", id, "its record was deleted", "use another name or a new attempt")
        .exiting(Exit::RequestFailed)
}

async fn give_up(context: &mut CliContext, following: &Following, caught: Option<Caught>) -> CliResult {
    let why = caught.map_or_else(
        || "the wait timed out".to_owned(),
        |caught| format!("the wait was interrupted by {}", caught.name()),
    );
    let request: Request = readable(&following.item)?;
    let (item, then) = if following.keep {
        (following.item.clone(), "it is kept (--keep)".to_owned())
    } else {
        match write_released(context, &request).await {
            Ok(item) => (item, "it is released".to_owned()),
            Err(failure) => (following.item.clone(), format!("it could not be released: {failure}")),
        }
    };
    let now: Request = readable(&item).unwrap_or(request);
    let id = &now.id;
    let message = format!("{why} at {}; {then}", told(&now));
    if let Some(other) = following.fallback.as_ref().filter(|_| caught.is_none()) {
        let CliContext { screen, environment, .. } = context;
        return other.take(screen, environment, Some(&item), &format!("request {id}: {message}"));
    }
    if let Err(failure) = github_output::publish(&context.environment, &now) {
        tracing::error!(%failure, "the outputs were not written");
    }
    if RecordId::of(&item).is_some() {
        context.screen.document(&github_output::document(&item, &now));
    }
    let (fix, exit) = match caught {
        None => (
            format!(
                "see `runyard explain request {}/{}/{}`; raise --timeout (now {} with the margin)",
                id.run_id,
                id.name,
                id.attempt,
                duration::show(following.limit)
            ),
            Exit::TimedOut,
        ),
        Some(caught) if following.keep => (
            "run the same command again to wait on; `runyard release` gives it back".into(),
            Exit::Signal(caught),
        ),
        Some(caught) => ("to ask again use another --name or a new --attempt".into(), Exit::Signal(caught)),
    };
    Err(CliFailure::error("request", id.to_string(), message, fix).exiting(exit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::context::{attributes, number, text};

    fn request(desired: &str, phase: &str) -> Request {
        let item = attributes([
            ("pk", text("request#a/b#1")),
            ("sk", text("request#default#1")),
            ("kind", text("request")),
            ("version", number(1u64)),
            ("runId", text("1")),
            ("attempt", number(1u64)),
            ("repository", text("a/b")),
            ("name", text("default")),
            ("resourceClass", text("c")),
            ("count", number(2u64)),
            ("desired", text(desired)),
            ("generation", number(1u64)),
            ("phase", text(phase)),
        ]);
        readable(&item).unwrap()
    }

    #[test]
    fn a_wait_says_that_the_class_of_a_request_cannot_be_read() {
        let mut waits = request("provisioned", "Pending");
        let (kind, now) = (ConditionType::Accepted, jiff::Timestamp::UNIX_EPOCH);
        waits.status.message = "the record of class c cannot be read".into();
        waits.status.set_condition(kind, false, "ClassUnreadable", String::new(), now);
        waits.status.phase = None;
        assert_eq!(told(&waits), "Pending    0/2  ClassUnreadable: the record of class c cannot be read");
        waits.status.phase = Some(Phase::Pending);
        assert!(!told(&waits).contains("ClassUnreadable"), "it was accepted since");
    }

    #[test]
    fn a_failure_names_the_status_page_where_its_address_is_known() {
        let failure = || over(&request("provisioned", "Failed"));
        let named = linked(failure(), Some("https://runyard.example.com/"));
        assert!(
            named.problems[0].fix.ends_with("; the yard's status page: https://runyard.example.com/"),
            "{named}"
        );
        assert_eq!(linked(failure(), None).to_string(), failure().to_string());
    }

    #[test]
    fn a_wait_ends_when_the_request_is_ready_over_or_no_longer_asked_for() {
        for (desired, phase, ends) in [
            ("provisioned", "Pending", false),
            ("provisioned", "Fulfilling", false),
            ("provisioned", "Ready", true),
            ("provisioned", "Failed", true),
            ("released", "Fulfilling", true),
            ("released", "Released", true),
        ] {
            assert_eq!(settled(&request(desired, phase)), ends, "{desired} {phase}");
        }
    }
}
