//! What the clean-up of a claim has done and checked so far: each item of the proof with its result, so that the agent can
//! report more than that it is clean. An item that was never reached has none.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use runyard_core::model::{ClaimId, ClaimProof, CleaningItem, Finding};

use crate::host::Host;

/// The results of a clean-up. Clones share them, because parts of it run on other threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings(Arc<Mutex<BTreeMap<CleaningItem, Finding>>>);

impl Findings {
    fn all(&self) -> MutexGuard<'_, BTreeMap<CleaningItem, Finding>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets everything: another clean-up begins.
    pub(crate) fn begin(&self) {
        self.all().clear();
    }

    /// Keeps the result of the last check of an item.
    pub(crate) fn check<T, E>(&self, item: CleaningItem, result: Result<T, E>) -> Result<T, E> {
        let finding = if result.is_ok() { Finding::Passed } else { Finding::Failed };
        self.all().insert(item, finding);
        result
    }

    /// Keeps the failure of a step towards an item; a success of it proves nothing yet.
    pub(crate) fn step<T, E>(&self, item: CleaningItem, result: Result<T, E>) -> Result<T, E> {
        match result {
            Ok(value) => {
                // Of an earlier sweep; it is checked anew.
                self.all().remove(&item);
                Ok(value)
            }
            Err(error) => self.check(item, Err(error)),
        }
    }

    /// Keeps that there was nothing to do for an item.
    pub(crate) fn nothing(&self, item: CleaningItem) {
        self.all().insert(item, Finding::Nothing);
    }
}

impl Host {
    /// Returns the report about a claim: what is known of the machine, and what its last clean-up found.
    pub(in crate::host) fn reported(&self, claim: &ClaimId) -> ClaimProof {
        let settings = &self.settings;
        // A runner is registered only on a machine that passed the isolation check.
        let isolation = [
            (settings.account.is_some(), "jobUser"),
            (settings.isolation.is_some(), "jail"),
            (settings.isolation.is_some(), "isolationCheck"),
            (settings.group.is_some(), "controlGroup"),
        ];
        let isolation: Vec<String> =
            isolation.into_iter().filter(|(on, _)| *on).map(|(_, word)| word.to_owned()).collect();
        ClaimProof {
            image: settings.image.clone(),
            package: self.package().ok().map(|package| package.sha256),
            isolation: if isolation.is_empty() { vec!["none".to_owned()] } else { isolation },
            cleaning: self.findings.all().clone(),
            ..ClaimProof::of(claim)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_proves_nothing_and_the_last_check_of_an_item_counts() {
        let findings = Findings::default();
        let of = |item| findings.all().get(&item).copied();
        let (good, bad) = (Ok::<(), ()>(()), Err::<(), ()>(()));
        findings.step(CleaningItem::Ipc, good).unwrap();
        assert_eq!(of(CleaningItem::Ipc), None);
        findings.check(CleaningItem::Ipc, good).unwrap();
        assert_eq!(of(CleaningItem::Ipc), Some(Finding::Passed));
        findings.step(CleaningItem::Ipc, good).unwrap();
        assert_eq!(of(CleaningItem::Ipc), None, "another sweep checks it anew");
        findings.step(CleaningItem::Ipc, bad).unwrap_err();
        findings.check(CleaningItem::Files, bad).unwrap_err();
        assert_eq!(
            (of(CleaningItem::Ipc), of(CleaningItem::Files)),
            (Some(Finding::Failed), Some(Finding::Failed))
        );
        findings.nothing(CleaningItem::PostRun);
        assert_eq!(of(CleaningItem::PostRun), Some(Finding::Nothing));
        findings.begin();
        assert!(findings.all().is_empty());
    }
}
