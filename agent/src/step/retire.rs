//! A runner that may be retired: its run needs fewer machines for now. The runner is suspended, and the operator learns
//! whether it has a job. The operator then removes it at GitHub and takes the machine back, or leaves it, and it goes on
//! by itself after a while.

use runyard_core::model::RetireReport;

use super::View;
use super::local::{Retire, Served};
use super::orders::Orders;
use crate::task::{RunnerProcess, Task};

/// Returns the task of a listening runner: to serve, to be suspended, or to stay so.
pub(super) fn task(
    view: &View<'_>,
    served: &mut Served,
    orders: Option<&Orders>,
    runner: RunnerProcess,
) -> Task {
    let claim = served.place().clone();
    if let Some(orders) = orders {
        match (orders.retire_asked, &served.retire) {
            (None, _) => served.retire = None,
            (Some(at), Some(retire)) if retire.at == at => {}
            (Some(at), _) => served.retire = Some(Retire { at, busy: None, until: view.now }),
        }
    }
    match &served.retire {
        Some(Retire { busy: None, .. }) => Task::Freeze { claim, runner },
        Some(retire) if retire.is_suspended(view.now) => {
            served.retry_at = Some(retire.until);
            Task::Frozen { claim }
        }
        Some(_) | None => {
            served.retry_at = None;
            Task::Serve { claim, runner, awaits: served.awaits() }
        }
    }
}

/// Returns the answer for the agent's record.
pub(super) fn report(served: &Served) -> Option<RetireReport> {
    let retire = served.retire.as_ref()?;
    retire.busy.map(|busy| RetireReport { at: retire.at, busy })
}
