//! What a class refuses, before an intent is written.

use super::ProvisionArgs;
use crate::common::failure::{CliFailure, CliResult};
use crate::session::context::CliContext;
use crate::session::{context, names};
use runyard_core::model::{Item, Kind, Pool, Request, RequestKey, kind_of};

/// A class that is not there, or types that it does not open to requests, are the operator's to refuse; but its refusal
/// spends the request's name. Who may look is told before anything is written. Of a class that is not there only where
/// the yard has others; one that has none yet is only warned of.
pub(super) async fn refuse(context: &mut CliContext, args: &ProvisionArgs, id: &RequestKey) -> CliResult {
    // A workflow has no right to look, and its wait tells it.
    if context.environment.get("GITHUB_ACTIONS").is_some() {
        return Ok(());
    }
    let Ok(pool) = context.store.get(&Pool::key_of(&args.class)).await else { return Ok(()) };
    let refused_types = pool.as_ref().and_then(|pool| refused_types(pool, args));
    if pool.is_some() && refused_types.is_none() {
        return Ok(());
    }
    // What was asked before stays what it is, whatever became of its class.
    let key = Request::key_of(&RequestKey { repository: id.repository.folded(), ..id.clone() });
    let Ok(None) = context.store.get(&key).await else { return Ok(()) };
    if let Some(refused) = refused_types {
        return Err(refused);
    }
    let refused = names::no_such_pool(context, "--class", &args.class).await;
    let pool = |item: &Item| kind_of(item) == Some(Kind::Pool);
    if context.all_that(pool).await.is_ok_and(|pools| !pools.is_empty()) {
        return Err(refused);
    }
    for problem in refused.problems.iter().filter(|_| !args.wait) {
        context.screen.remark(format!("warning: class {}: {}; {}", args.class, problem.message, problem.fix));
    }
    Ok(())
}

/// Why the types that the options name are not those of the class's requests.
fn refused_types(pool: &Item, args: &ProvisionArgs) -> Option<CliFailure> {
    let types = args.allowed_instance_types.as_ref()?;
    let pool: Pool = context::readable(pool).ok()?;
    let glob = pool.spec.beyond_requestable(types)?;
    let (class, within) = (&args.class, pool.spec.requestable().0.join(" "));
    let message = format!("class {class} lets no request choose it, only within {within}");
    let fix =
        "name types within these, leave --allowed-instance-types out, or ask the yard's owner (requestTypes)";
    Some(CliFailure::error("--allowed-instance-types", glob, message, fix))
}
