use super::*;

/// Returns the credential that the machine lacks, written for its unchanged record except for the key that its agent
/// reports.
fn lacks(scene: &Scene) -> Option<&'static str> {
    let actions = scene.of_machine("i-1").actions;
    let [Effect::Credential(step, credential)] = effects(&actions)[..] else {
        assert_eq!(actions, []);
        return None;
    };
    let mut read = scene.yard.instance(&arn("i-1")).unwrap().instance.clone();
    read.public_key = Some("key".into());
    assert_eq!(**step, Step::of(&read, start(), |_| ()));
    match &**credential {
        Credential::Registration(runner) => {
            assert_eq!((&runner.request, runner.labels.as_slice()), (&ask("1"), ["1".to_owned()].as_slice()));
            Some("register")
        }
        Credential::Anew { runner, dead } => {
            assert_eq!(runner.request, ask("1"));
            Some(if dead.is_some() { "anew, one dead" } else { "anew" })
        }
        Credential::Removal(repository) => {
            assert_eq!(*repository, ask("1").repository);
            Some("remove")
        }
        Credential::Ahead { .. } => Some("ahead"),
        Credential::Promotion(question) => {
            assert_eq!((&question.request, question.keep.len()), (&ask("1"), 1));
            Some("judge")
        }
    }
}

#[test]
fn a_machine_gets_a_credential_when_its_key_is_known_and_again_when_it_expires() {
    let (register, remove) = (Some("register"), Some("remove"));
    let keyed = |built: Built| built.agent(|agent| agent.public_key = Some("key".into()));
    let boxed = |seconds| Some(Registration { sealed: "box".into(), expires_at: Some(at(seconds)) });
    let request = ask("1");
    let claimed = || machine("i-1").claimed(&request);
    let cleaning = || machine("i-1").cleaning(&request).with(|i| i.registration_seq = 1);
    for (built, expected) in [
        (claimed(), None),
        (keyed(claimed()), register),
        (keyed(machine("i-1").bound(&request)), register),
        (keyed(claimed()).with(|i| i.registration = boxed(1)), None),
        (keyed(claimed()).with(|i| i.registration = boxed(0)), register),
        (keyed(cleaning()), remove),
        (keyed(cleaning()).with(|i| i.registration_seq = 0), None),
        (keyed(cleaning()).with(|i| i.removal = boxed(1)), None),
        (keyed(machine("i-1").running(&request)), None),
        (keyed(machine("i-1")), None),
    ] {
        let mut scene = yard(built.clone());
        scene.policy.github = true;
        assert_eq!(lacks(&scene), expected, "{:?}", built.instance.place());
        scene.policy.github = false;
        assert_eq!(scene.of_machine("i-1").actions, [], "without GitHub nothing is needed");
    }
}

#[test]
fn what_a_claim_wrote_into_kept_directories_is_judged_once_after_its_release() {
    let keep = serde_json::json!({"keep": [{"name": "npm", "path": "~/.npm"}]});
    let cleaning = machine("i-1").cleaning(&ask("1")).with(|i| i.registration_seq = 1);
    let cleaning = cleaning.agent(|a| (a.runner_id, a.public_key) = (Some(17), Some("key".into())));
    let told = |claim: &str| {
        let claim_id = crate::model::ClaimId::parse(claim).unwrap();
        Some(crate::model::Promotion { claim_id, names: Vec::new(), reason: String::new() })
    };
    let own = cleaning.instance.claim.as_ref().unwrap().id.to_string();
    for (built, spec, expected) in [
        (cleaning.clone(), keep.clone(), Some("judge")),
        (cleaning.clone(), serde_json::json!({}), None),
        (cleaning.clone().with(|i| i.registration_seq = 0), keep.clone(), None),
        (cleaning.clone().with(|i| i.promotion = told(&own)), keep.clone(), None),
        (cleaning.clone().with(|i| i.promotion = told("another")), keep.clone(), Some("judge")),
    ] {
        let mut scene = Scene::with(spec);
        scene.put(&holding("1", 1, &["i-1"], serde_json::json!({})));
        scene.add(built.clone());
        scene.policy.github = true;
        assert_eq!(lacks(&scene), expected, "{:?}", built.instance.promotion);
        scene.policy.github = false;
        assert_eq!(scene.of_machine("i-1").actions, [], "without GitHub nobody can say");
    }
}

#[test]
fn a_machine_whose_runners_number_is_known_needs_nothing_to_deregister() {
    let cleaning = machine("i-1").cleaning(&ask("1")).with(|i| i.registration_seq = 1);
    let told = |id| cleaning.clone().agent(|a| (a.runner_id, a.public_key) = (id, Some("key".into())));
    for (id, lacking) in [(None, Some("remove")), (Some(17), None)] {
        let mut scene = yard(told(id));
        scene.policy.github = true;
        assert_eq!(lacks(&scene), lacking);
    }
}

#[test]
fn in_mode_job_the_next_box_follows_when_the_last_is_used_up() {
    let used = |done| {
        let built = machine("i-1").running(&ask("1")).with(|i| i.registration_seq = 2);
        let built = built.agent(|a| (a.registration_done, a.public_key) = (done, Some("key".into())));
        let mut scene = yard(built);
        scene.policy.github = true;
        scene.pool(2, serde_json::json!({"registrationMode": "job"}));
        lacks(&scene)
    };
    assert_eq!([used(None), used(Some(1)), used(Some(2))], [None, None, Some("register")]);
}

#[test]
fn a_runner_that_ended_by_itself_is_registered_anew_and_the_dead_one_removed() {
    let ended = |built: Built, mode: &str, number: Option<u64>| {
        let built = built.with(|i| i.registration_seq = 2);
        let built = built.agent(|a| {
            (a.registration_done, a.runner_id, a.public_key) = (Some(2), number, Some("key".into()));
        });
        let mut scene = yard(built);
        scene.policy.github = true;
        scene.pool(2, serde_json::json!({"registrationMode": mode}));
        lacks(&scene)
    };
    let running = || machine("i-1").running(&ask("1"));
    assert_eq!(ended(running(), "run", Some(7)), Some("anew, one dead"));
    assert_eq!(ended(running(), "run", None), Some("anew"), "GitHub forgot it");
    assert_eq!(ended(running(), "job", Some(7)), Some("anew, one dead"), "it had no job");
    assert_eq!(ended(running(), "job", None), Some("register"), "it is gone after its job");
    // It listened and ended before the record showed it.
    let boxed = || Some(Registration { sealed: "box".into(), expires_at: None });
    let claimed = machine("i-1").claimed(&ask("1")).with(|i| i.registration = boxed());
    assert_eq!(ended(claimed, "run", Some(7)), Some("anew, one dead"));
}

/// The simulation found it: a runner that died as its claim was given back was taken for the next claim's. That claim's
/// runner then had a name under which nobody looked for it at the release.
#[test]
fn what_an_agent_says_of_the_box_of_a_former_claim_uses_up_no_box() {
    let built = machine("i-1").claimed(&ask("1")).with(|i| i.registration_seq = 1);
    let built = built.agent(|a| {
        (a.registration_done, a.runner_id, a.public_key) = (Some(1), Some(7), Some("key".into()));
    });
    let mut scene = yard(built);
    scene.policy.github = true;
    assert_eq!(lacks(&scene), Some("register"));
}

#[test]
fn a_new_box_that_nobody_opened_is_minted_again_when_it_has_expired() {
    let waits = |expires: i64, waiting: bool| {
        let boxed = Registration { sealed: "box".into(), expires_at: Some(at(expires)) };
        let built = machine("i-1").running(&ask("1")).with(|i| {
            (i.registration_seq, i.registration) = (3, Some(boxed));
        });
        let built = built.agent(|a| {
            (a.registration_done, a.public_key) = (Some(2), Some("key".into()));
            a.runner_trouble = waiting.then(|| trouble(TroubleKind::Ended));
        });
        let mut scene = yard(built);
        scene.policy.github = true;
        lacks(&scene)
    };
    assert_eq!([waits(0, true), waits(9, true), waits(0, false)], [Some("anew"), None, None]);
}

fn trouble(kind: TroubleKind) -> RunnerTrouble {
    RunnerTrouble { since: start(), kind, words: "why".into() }
}

#[test]
fn a_runner_that_cannot_reach_github_gives_its_machine_the_requests_time() {
    let judged = |kind: Option<TroubleKind>, deadline: i64| {
        let built = machine("i-1").claimed(&ask("1")).until(0).agent(|a| {
            a.runner_trouble = kind.map(trouble);
        });
        let request = serde_json::json!({"deadline": at(deadline), "phase": "Fulfilling"});
        let mut scene = held(built, request);
        scene.policy.github = true;
        let plan = scene.of_machine("i-1");
        match ends(&plan) {
            Some(reason) => Err(reason),
            None => Ok(write(&plan).0.after.threshold.unwrap().at),
        }
    };
    assert_eq!(judged(Some(TroubleKind::Unreachable), 3000), Ok(at(300)));
    assert_eq!(judged(Some(TroubleKind::Unreachable), 30), Ok(at(30)), "the request's own");
    assert_eq!(judged(Some(TroubleKind::Unreachable), 0), Err(Reason::Threshold));
    for kind in [None, Some(TroubleKind::Conflict), Some(TroubleKind::Ended)] {
        assert_eq!(judged(kind, 3000), Err(Reason::Threshold), "{kind:?}");
    }
}

#[test]
fn six_hours_are_the_most_that_such_a_word_is_worth() {
    let built = machine("i-1").claimed(&ask("1")).until(0);
    let built = built.with(|i| i.state_since = at(-6 * 3600));
    let built = built.agent(|a| a.runner_trouble = Some(trouble(TroubleKind::Unreachable)));
    let request = serde_json::json!({"deadline": at(100_000), "phase": "Fulfilling"});
    let mut scene = held(built, request);
    scene.policy.github = true;
    assert_eq!(ends(&scene.of_machine("i-1")), Some(Reason::Threshold));
}
