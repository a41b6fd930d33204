//! Handles panics. One in the judgement of a unit is caught and affects only that unit; any other ends the program,
//! which its supervisor restarts: a task that died silently would leave an operator that only looks alive.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::decide::{Context, Plan, decide};
use crate::yard::Unit;

thread_local! {
    /// Whether panics of this thread are caught.
    static CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Makes every panic that [`judge`] does not catch end the program.
pub fn end_the_program() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        if !CAUGHT.get() {
            std::process::abort();
        }
    }));
}

/// Returns the decision about a unit.
///
/// # Errors
/// The message of its panic.
pub fn judge(cx: &Context<'_>, unit: &Unit) -> Result<Plan, String> {
    CAUGHT.set(true);
    // It changes nothing but its own plan, so nothing is left half done.
    let judged = catch_unwind(AssertUnwindSafe(|| {
        #[cfg(test)]
        injected::panic_at(unit);
        decide(cx, unit)
    }));
    CAUGHT.set(false);
    judged.map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no words".into())
    })
}

/// Panics injected by tests.
#[cfg(test)]
pub(crate) mod injected {
    use std::cell::RefCell;

    use crate::yard::Unit;

    thread_local! {
        static AT: RefCell<Vec<Unit>> = const { RefCell::new(Vec::new()) };
    }

    /// Makes the judgements of these units panic on this thread from now on.
    pub(crate) fn set(units: Vec<Unit>) {
        AT.set(units);
    }

    pub(super) fn panic_at(unit: &Unit) {
        assert!(!AT.with_borrow(|units| units.contains(unit)), "injected");
    }
}
