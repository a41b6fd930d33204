//! Writes the intent of a request, or finds that it is written already.

use super::ProvisionArgs;
use crate::common::failure::CliFailure;
use crate::session::context;
use crate::session::context::CliContext;
use runyard_core::model::{
    Asked, Item, LabelSuffix, NewIntent, Phase, Request, RequestKey, UNWATCHED_RUNTIME_MINUTES, Uid,
    UsageClass, WATCHED_RUNTIME_MINUTES, Write,
};
use runyard_core::ports::StoreError;

/// Why no request was written or found.
pub(crate) enum NotSubmitted {
    /// Another request has its key: the workflow must be corrected.
    Mistake(CliFailure),
    /// The table failed, or the request is over.
    Unserved(CliFailure),
}

impl From<CliFailure> for NotSubmitted {
    fn from(failure: CliFailure) -> Self {
        Self::Unserved(failure)
    }
}

impl From<NotSubmitted> for CliFailure {
    fn from(why: NotSubmitted) -> Self {
        match why {
            NotSubmitted::Mistake(failure) | NotSubmitted::Unserved(failure) => failure,
        }
    }
}

/// Writes the intent, or finds the same one already written; returns the record.
pub(crate) async fn submit(
    context: &CliContext,
    args: &ProvisionArgs,
    id: &RequestKey,
) -> Result<Item, NotSubmitted> {
    let ours = intent(context, args, id);
    // A record that an older version stored under the repository as spelled is the same request.
    let former = Request::key_of(id);
    let id = &RequestKey { repository: id.repository.folded(), ..id.clone() };
    let key = Request::key_of(id);
    if former != key {
        match context.store.get(&former).await {
            Ok(Some(theirs)) => return same_request(&theirs, &ours).map(|()| theirs),
            // The role may be limited to today's keys.
            Ok(None) | Err(StoreError::Denied(_)) => {}
            Err(error) => return Err(context.failed(&error).into()),
        }
    }
    let create = Write::create(key.clone(), ours.clone());
    let written = crate::session::polling::again(async || match context.store.write(&create).await {
        Err(StoreError::Refused { .. }) => Ok(None),
        Ok(item) => Ok(Some(item)),
        Err(error) => Err(error),
    });
    // No event: a workflow's credential may only write intents, and the operator writes the events.
    if let Some(item) = written.await.map_err(|error| context.failed(&error))? {
        return Ok(item);
    }
    let Some(theirs) = context.item(&key).await? else {
        let (message, fix) = ("was deleted at this moment", "run the command again");
        return Err(CliFailure::error("request", id.to_string(), message, fix).into());
    };
    same_request(&theirs, &ours)?;
    Ok(theirs)
}

/// Returns the new record.
pub(super) fn intent(context: &CliContext, args: &ProvisionArgs, id: &RequestKey) -> Item {
    let uid = Uid::parse(&context.entropy.hex()).expect("hexadecimal digits make a uid");
    let drawn = || LabelSuffix::draw(|buffer| context.entropy.fill(buffer));
    let given = NewIntent {
        resource_class: args.class.clone(),
        count: args.count,
        min_count: args.min_count,
        usage_class: args.usage_class,
        on_demand_fallback: args.on_demand_fallback,
        allowed_instance_types: args.allowed_instance_types.clone(),
        max_runtime_minutes: args.max_runtime.map(|length| length.as_secs() / 60),
        timeout_seconds: args.timeout.map(|length| length.as_secs()),
        asked: Asked::Verb,
        trial: args.trial,
        label_suffix: args.secret_label.then(drawn),
        priority: args.priority.clone(),
    };
    given.item(id, uid, context.clock.now())
}

/// Checks whether the existing record is the same request and still open.
fn same_request(theirs: &Item, ours: &Item) -> Result<(), NotSubmitted> {
    let (there, asked): (Request, Request) = (context::readable(theirs)?, context::readable(ours)?);
    let id = &there.id;
    if there.is_released() || there.phase().is_final() {
        let phase = match there.phase() {
            Phase::Released => "already released",
            Phase::Failed => "already failed",
            Phase::Pending | Phase::Fulfilling | Phase::Ready | Phase::Releasing => "being released",
        };
        let fix = "use another name or a new attempt";
        return Err(CliFailure::error("request", id.to_string(), format!("is {phase}"), fix).into());
    }
    // A request for a secret label must not get one that can be guessed.
    if asked.intent.label_suffix.is_some() && there.intent.label_suffix.is_none() {
        let fix = "release it and ask again under another --name, or leave --secret-label out";
        let message = "exists without a secret label: jobs of others could ask for its machines";
        return Err(NotSubmitted::Mistake(CliFailure::error("request", id.to_string(), message, fix)));
    }
    // The operator created the request first, for jobs that were re-run.
    if there.status.derived_from.is_some() && there.intent.resource_class == asked.intent.resource_class {
        return Ok(());
    }
    let (there, asked) = (described(&there, &asked), described(&asked, &there));
    let differing: Vec<String> = there
        .iter()
        .zip(&asked)
        .filter(|(there, asked)| there != asked)
        .map(|((name, there), (_, asked))| format!("{name} is {there}, asked for {asked}"))
        .collect();
    if differing.is_empty() {
        return Ok(());
    }
    let all = |intent: &[(&str, String)]| {
        intent.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    };
    Err(NotSubmitted::Mistake(CliFailure::error(
        "request",
        id.to_string(),
        format!(
            "exists with a different intent: {}\n  there: {}\n  asked: {}",
            differing.join("; "),
            all(&there),
            all(&asked)
        ),
        "ask for the same, or use another name or a new attempt",
    )))
}

/// Formats a maximum runtime for the comparison with another. If one is omitted, either of the contract's defaults is
/// equal to it: whether one of them applies, or the class's own, depends on records and files that workflows may not
/// read.
fn runtime(minutes: Option<u64>, other: Option<u64>) -> String {
    let defaults = [UNWATCHED_RUNTIME_MINUTES, WATCHED_RUNTIME_MINUTES];
    let said = minutes.filter(|minutes| other.is_some() || !defaults.contains(minutes));
    said.map_or_else(|| "the default".to_owned(), |minutes| minutes.to_string())
}

/// Describes an intent with its defaults, for comparison and display.
fn described(request: &Request, other: &Request) -> Vec<(&'static str, String)> {
    let intent = &request.intent;
    let types = intent.allowed_instance_types.as_ref().map(|types| types.0.join(" "));
    vec![
        ("resourceClass", intent.resource_class.clone()),
        ("count", intent.count.to_string()),
        ("minCount", intent.min_count.to_string()),
        ("usageClass", intent.usage_class.map_or("any", UsageClass::as_str).to_owned()),
        ("onDemandFallback", intent.on_demand_fallback.to_string()),
        ("allowedInstanceTypes", types.unwrap_or_else(|| "the pool's".into())),
        ("maxRuntimeMinutes", runtime(intent.max_runtime_minutes, other.intent.max_runtime_minutes)),
        ("timeoutSeconds", intent.timeout_seconds.to_string()),
        ("priority", intent.priority.clone().unwrap_or_else(|| "the usual one".into())),
    ]
}
