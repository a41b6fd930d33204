use serde_json::json;

use crate::decide::{Effect, Plan};
use crate::model::history::EndedClaim;
use crate::model::{Agent, ClaimProof, CleaningItem, Finding, Instance, Reason, Signal};
use crate::statement::{Outcome, Shown, Statement};
use crate::testing::*;

/// A whole report of an agent about the claim of its machine.
fn proof(agent: &Agent) -> ClaimProof {
    let claim = agent.signal_claim_id.as_ref().unwrap().parse().unwrap();
    let cleaning = CleaningItem::ALL.iter().map(|item| (*item, Finding::Passed)).collect();
    ClaimProof { cleaning, ..ClaimProof::of(&claim) }
}

/// A machine that is being cleaned, whose agent signals this and reports `change` of a whole proof.
fn cleaned(signal: Signal, change: impl FnOnce(&mut ClaimProof)) -> Built {
    machine("i-1").cleaning(&ask("1")).says(signal).agent(|agent| {
        let mut proof = proof(agent);
        change(&mut proof);
        agent.proof = Some(proof);
    })
}

fn scene(built: Built) -> Scene {
    let mut scene = Scene::with(json!({}));
    scene.policy.statements = true;
    scene.put(&holding("1", 1, &["i-1"], json!({"desired": "released"})));
    scene.add(built);
    scene
}

/// The record of `i-1` after the write that a plan makes.
fn written(plan: &Plan) -> Instance {
    let written = plan.actions.iter().find_map(|action| match &action.effect {
        Effect::Instance(step, _) => Some(step.after.clone()),
        _ => None,
    });
    written.unwrap_or_else(|| panic!("{plan:?}"))
}

/// The statement that the record gives once the machine is in the pool, or gone.
fn stated(mut instance: Instance) -> Option<Statement> {
    if let crate::model::Life::Terminated { gone_at, .. } = &mut instance.life {
        *gone_at = Some(at(60));
    }
    let claims = EndedClaim::over(&instance);
    assert!(claims.len() < 2);
    claims.first().map(Statement::of)
}

fn predicate(built: Built) -> crate::statement::Predicate {
    stated(written(&scene(built).of_machine("i-1"))).unwrap().predicate
}

#[test]
fn a_claim_whose_every_item_was_proved_is_said_to_be_clean() {
    let said = predicate(cleaned(Signal::RemoveRegOk, |_| {}));
    assert!(said.clean && said.failed.is_empty(), "{said:?}");
    assert_eq!((said.claim.outcome, said.trust_domain.after.as_str()), (Outcome::Pooled, "owner:acme"));
    assert!(said.cleaning.values().all(|shown| *shown == Shown::Passed));
}

#[test]
fn a_claim_is_not_said_to_be_clean_while_an_item_is_missing_or_failed() {
    for item in CleaningItem::ALL {
        let missing = predicate(cleaned(Signal::RemoveRegOk, |proof| {
            let _ = proof.cleaning.remove(item);
        }));
        assert!(!missing.clean && missing.unknown.contains(&format!("cleaning.{item}")), "{missing:?}");
        assert_eq!(missing.cleaning.get(item.as_str()), Some(&Shown::Unknown));
        let failed = predicate(cleaned(Signal::RemoveRegOk, |proof| {
            proof.cleaning.insert(*item, Finding::Failed);
        }));
        assert!(!failed.clean && failed.failed.contains(&format!("cleaning.{item}")), "{failed:?}");
    }
}

#[test]
fn a_machine_that_signals_a_failure_is_never_said_to_be_clean() {
    let said = predicate(cleaned(Signal::RemoveRegFailed, |_| {}).agent(|agent| {
        agent.signal_detail = Some("x".repeat(900));
    }));
    assert!(!said.clean && said.failed == ["signal"], "{said:?}");
    assert_eq!((said.claim.outcome, said.claim.ended), (Outcome::Ended, Some(Reason::CleanupFailed)));
    assert_eq!(said.detail.map(|detail| detail.len()), Some(200));
}

#[test]
fn a_report_about_another_claim_or_none_proves_nothing() {
    let silent = cleaned(Signal::RemoveRegOk, |_| {}).agent(|agent| agent.proof = None);
    let other = cleaned(Signal::RemoveRegOk, |proof| proof.claim_id = "i-1.3".into());
    for built in [silent, other] {
        let said = predicate(built);
        assert!(!said.clean && said.failed.is_empty(), "{said:?}");
        assert!(said.cleaning.values().all(|shown| *shown == Shown::Unknown), "{said:?}");
    }
}

#[test]
fn a_package_that_the_claim_did_not_name_is_a_failure() {
    let named = |built: Built, sha256: &str| {
        let runner = json!({"version": "2.336.0", "url": "https://github.com/a", "sha256": sha256});
        built.with(|i| i.runner = Some(serde_json::from_value(runner).unwrap()))
    };
    let unpacked = || cleaned(Signal::RemoveRegOk, |proof| proof.package = Some("0a".repeat(32)));
    assert!(predicate(named(unpacked(), &"0a".repeat(32))).clean);
    let other = predicate(named(unpacked(), &"0b".repeat(32)));
    assert!(!other.clean && other.failed == ["runner.sha256"], "{other:?}");
}

#[test]
fn the_trust_domain_before_a_claim_is_that_of_the_pool() {
    let mut scene = Scene::with(json!({"reuseWithin": "owner"}));
    scene.policy.statements = true;
    scene.add(machine("i-1").pooled());
    scene.put(&request("1", 1, json!({"acceptedAt": at(-50)})));
    let claims = |scene: &mut Scene| {
        scene.served().into_iter().find_map(|action| match action.effect {
            Effect::Claim { machines, .. } => Some(machines[0].after.clone()),
            _ => None,
        })
    };
    let claimed = claims(&mut scene).expect("a pooled machine is claimed");
    assert_eq!(claimed.spans[0].trust_domain.as_deref(), Some(""));
    scene.policy.statements = false;
    assert_eq!(claims(&mut scene).unwrap().spans[0].trust_domain, None, "nothing is kept without statements");
}

#[test]
fn records_keep_nothing_where_no_statement_is_signed() {
    let mut scene = scene(cleaned(Signal::RemoveRegOk, |_| {}));
    scene.policy.statements = false;
    let pooled = written(&scene.of_machine("i-1"));
    assert!(pooled.pooled_at().is_some() && pooled.spans.iter().all(|span| span.claim.is_none()));
    assert_eq!(stated(pooled), None);
}

#[test]
fn a_claim_that_ends_with_its_machine_has_a_statement_without_a_clean_up() {
    let said = predicate(machine("i-1").running(&ask("1")).says(Signal::RegOk).until(-1));
    assert!(!said.clean && said.failed.is_empty() && said.signal.is_none(), "{said:?}");
    assert_eq!((said.claim.outcome, said.claim.ended), (Outcome::Ended, Some(Reason::Threshold)));
    assert!(said.unknown.contains(&"signal".to_owned()));
}

#[test]
fn a_statement_is_kept_in_few_bytes_and_dropped_with_its_stretch() {
    let pooled = written(&scene(cleaned(Signal::RemoveRegOk, |_| {})).of_machine("i-1"));
    let bytes = serde_json::to_string(&pooled.spans).unwrap().len();
    assert!(bytes < 1200, "{bytes} bytes");
    let mut later = pooled;
    later.forget(at(60));
    assert!(later.spans.is_empty());
}
