//! Checks a request against its class before the intent is written.

use super::ProvisionArgs;
use crate::common::failure::{CliFailure, CliResult};
use crate::session::context::CliContext;
use crate::session::{context, names};
use runyard_core::model::{Item, Kind, Pool, Request, RequestKey, kind_of};

/// Refuses a class that does not exist, or types that it does not open to requests. The operator would refuse them too,
/// but its refusal uses up the request's name; so a user who may read the pools gets the error before anything is
/// written. A missing class is an error only if the yard has other classes, else a warning.
pub(super) async fn refuse(context: &mut CliContext, args: &ProvisionArgs, id: &RequestKey) -> CliResult {
    // A workflow may not read pools; its wait reports the refusal.
    if context.environment.get("GITHUB_ACTIONS").is_some() {
        return Ok(());
    }
    let Ok(pool) = context.store.get(&Pool::key_of(&args.class)).await else { return Ok(()) };
    let refused_types = pool.as_ref().and_then(|pool| refused_types(pool, args));
    if pool.is_some() && refused_types.is_none() {
        return Ok(());
    }
    // A request that exists already is unaffected by the state of its class.
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

/// Returns the refusal of types that the class does not open to requests.
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
