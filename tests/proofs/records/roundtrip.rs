//! Whatever a record of ours says, it says the same after it was stored and read again.

use jiff::Timestamp;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::{BoxedStrategy, Just, ProptestConfig, Strategy, any, prop_oneof};
use proptest::sample::select;
use proptest::{prop_assert_eq, proptest};
use runyard_core::model::history::{Activity, PastSpan};
use runyard_core::model::{
    Adoption, Agent, Ahead, AheadReport, AheadStatus, Asked, Bins, Claim, ClaimEnd, ClaimId, ClaimProof,
    ClaimRunner, ClassName, CleaningItem, Condition, ConditionType, Containers, Demand, Desired, Event,
    EventType, Finding, HeldBack, Hold, IdleMachines, Instance, InstanceArn, InstanceFacts, InstanceId,
    InstanceTypes, Intent, Interruption, InterruptionAction, JobReport, Jobs, Keep, KeepScope, Kept,
    KeptDirectories, LabelMode, LabelSuffix, Launch, LaunchId, LaunchPhase, LaunchTemplate, Lease, Level,
    Life, Money, Pace, Phase, PinnedImage, Pool, PoolOverride, PoolSpec, PoolStatus, Promotion, Queue, Quota,
    Reading, ReadySource, Reason, Record, RecordId, RegisteredAhead, Registration, RegistrationMode,
    ReleasedBy, Replacement, Repository, Request, RequestKey, RequestName, RetireReport, ReuseWithin, RunId,
    RunnerPackage, RunnerTrial, RunnerTrouble, Schedule, SetCounts, SetPlace, SetRecord, SetScope, SetState,
    ShareBy, Sharing, Signal, SizedDesired, Sizing, State, Status, Threshold, TroubleKind, Uid, Usage,
    UsageClass, Volume, WriteFrom, read,
};

/// The record read from what is stored of it.
fn stored<T: Record>(record: &T) -> Result<T, String> {
    match read::<T>(&record.to_item()) {
        Reading::Record(record) => Ok(record),
        Reading::Newer { schema } => Err(format!("schema {schema}")),
        Reading::Unreadable(unreadable) => Err(unreadable.to_string()),
    }
}

/// 1 500 of each, unless `PROPTEST_CASES` names another number.
fn cases() -> ProptestConfig {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let unset = config.cases == 256;
    let cases = if unset { 1500 } else { config.cases };
    ProptestConfig { cases, ..config }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn instances(instance in instance()) { prop_assert_eq!(stored(&instance), Ok(instance)); }
    #[test]
    fn agents(agent in agent()) { prop_assert_eq!(stored(&agent), Ok(agent)); }
    #[test]
    fn requests(request in request()) { prop_assert_eq!(stored(&request), Ok(request)); }
    #[test]
    fn pools(pool in pool()) { prop_assert_eq!(stored(&pool), Ok(pool)); }
    #[test]
    fn launches(launch in launch()) { prop_assert_eq!(stored(&launch), Ok(launch)); }
    #[test]
    fn leases(lease in lease()) { prop_assert_eq!(stored(&lease), Ok(lease)); }

    #[test]
    fn scale_sets(set in set()) { prop_assert_eq!(stored(&set), Ok(set)); }
    #[test]
    fn events(event in event()) { prop_assert_eq!(stored(&event), Ok(event)); }
}

fn time() -> impl Strategy<Value = Timestamp> {
    (-100_000_000_000_i64..250_000_000_000_000)
        .prop_map(|ms| Timestamp::from_millisecond(ms).expect("in range"))
}

fn count() -> impl Strategy<Value = u64> {
    0_u64..(1 << 31)
}

fn small() -> impl Strategy<Value = u32> {
    0_u32..(1 << 31)
}

/// Text that is there.
fn some_text() -> impl Strategy<Value = String> {
    "\\PC{1,20}"
}

fn text() -> impl Strategy<Value = String> {
    ".{0,20}"
}

/// What a request's author writes is cut where it is longer than any class or person is called.
fn short() -> impl Strategy<Value = String> {
    "[ -~]{0,40}"
}

fn word<T: Clone + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    select(all)
}

fn class() -> impl Strategy<Value = ClassName> {
    "[a-z0-9][a-z0-9-]{0,30}x".prop_map(|name| ClassName::parse(&name).expect("a class"))
}

fn run() -> impl Strategy<Value = RunId> {
    "[A-Za-z0-9_.-]{1,64}".prop_map(|id| RunId::parse(&id).expect("a run"))
}

fn instance_id() -> impl Strategy<Value = InstanceId> {
    "i-[0-9a-f]{17}".prop_map(|id| InstanceId::parse(&id).expect("an id"))
}

fn uid() -> impl Strategy<Value = Uid> {
    "[!-~]{1,128}".prop_map(|uid| Uid::parse(&uid).expect("a uid"))
}

fn repository() -> impl Strategy<Value = Repository> {
    "[A-Za-z][A-Za-z0-9-]{0,9}/[A-Za-z][A-Za-z0-9_.-]{0,9}"
        .prop_map(|repository| Repository::parse(&repository).expect("a repository"))
}

fn launch_id() -> impl Strategy<Value = LaunchId> {
    "[A-Za-z0-9-]{1,56}".prop_map(|id| LaunchId::parse(&id).expect("an id"))
}

fn request_key() -> impl Strategy<Value = RequestKey> {
    (repository(), run(), "[a-z0-9][a-z0-9-]{0,39}", 0_u32..(1 << 31)).prop_map(
        |(repository, run_id, name, attempt)| RequestKey {
            repository,
            run_id,
            name: RequestName::parse(&name).expect("a name"),
            attempt,
        },
    )
}

fn key() -> impl Strategy<Value = RecordId> {
    request_key().prop_map(|id| Request::key_of(&id))
}

fn types() -> impl Strategy<Value = InstanceTypes> {
    vec("[a-z0-9.*]{1,8}", 0..3).prop_map(InstanceTypes)
}

fn condition() -> impl Strategy<Value = Condition> {
    (word(ConditionType::ALL), any::<bool>(), text(), text(), time()).prop_map(
        |(condition_type, status, reason, message, at)| Condition {
            condition_type,
            status,
            reason,
            message,
            at,
        },
    )
}

fn sealed() -> impl Strategy<Value = Option<Registration>> {
    of((text(), of(time())).prop_map(|(sealed, expires_at)| Registration { sealed, expires_at }))
}

fn life() -> BoxedStrategy<Life> {
    prop_oneof![
        of(run()).prop_map(|run| Life::Created { run }),
        run().prop_map(|run| Life::Claimed { run }),
        run().prop_map(|run| Life::Running { run }),
        of(time()).prop_map(|pooled_at| Life::Idle { pooled_at }),
        (word(Reason::ALL), of(time())).prop_map(|(reason, gone_at)| Life::Terminated { reason, gone_at }),
    ]
    .boxed()
}

fn facts() -> impl Strategy<Value = InstanceFacts> {
    let what = (instance_id(), class(), text(), word(UsageClass::ALL));
    (what, (small(), small(), text(), of((launch_id(), of(text()))), time())).prop_map(|(what, size)| {
        let (instance_id, resource_class, instance_type, usage_class) = what;
        let (cpu, mmem, availability_zone, launch, created_at) = size;
        let (launch_id, launch_digest) = launch.unzip();
        InstanceFacts {
            instance_arn: InstanceArn::local(&instance_id),
            instance_id,
            resource_class,
            instance_type,
            usage_class,
            cpu,
            mmem,
            availability_zone,
            launch_id,
            launch_digest: launch_digest.flatten(),
            created_at,
        }
    })
}

fn instance() -> impl Strategy<Value = Instance> {
    let place = (facts(), life(), any::<bool>(), key(), time(), time(), time());
    let rest = (small(), text(), of(text()), sealed(), count(), sealed(), small());
    let hold = (text(), time()).prop_map(|(by, until)| Hold { by, until });
    let asked = (of(hold), of((time(), text())), of(package()), vec(past_span(), 0..3), of(time()));
    let said = (of(text()), of(text()), (of(promotion()), of(ahead())), jobs(), asked);
    (place, rest, of(any::<i64>()), said, count(), time()).prop_map(
        |(
            place,
            rest,
            expires_at,
            (expired_by, console, (promotion, ahead), jobs, asked),
            version,
            updated_at,
        )| {
            let (facts, life, claimed, request, at, set_at, state_since) = place;
            let (uses, trust_domain, public_key, registration, registration_seq, removal, failures) = rest;
            // What holds a run has a claim and what is live a deadline; the rest may have one.
            let (holds, live) = match &life {
                Life::Created { run } => (run.is_some(), true),
                Life::Claimed { .. } | Life::Running { .. } => (true, true),
                Life::Idle { .. } => (false, true),
                Life::Terminated { .. } => (false, false),
            };
            let claim = Claim { id: ClaimId::of(&facts.instance_id, version), request };
            Instance {
                facts,
                life,
                claim: (holds || claimed).then_some(claim),
                jobs,
                runner: asked.2,
                spans: asked.3,
                threshold: live.then_some(Threshold { at, set_at }),
                state_since,
                uses,
                trust_domain,
                public_key,
                registration,
                registration_seq,
                removal,
                promotion,
                ahead,
                registration_failures: failures,
                expired_by,
                hold: asked.0,
                retire_asked: asked.4,
                logs_requested: asked.1,
                console,
                expires_at,
                version,
                updated_at,
            }
        },
    )
}

fn package() -> impl Strategy<Value = RunnerPackage> {
    (text(), text(), text()).prop_map(|(version, url, sha256)| RunnerPackage { version, url, sha256 })
}

fn adoption() -> impl Strategy<Value = Adoption> {
    let claim = (instance_id(), count()).prop_map(|(id, version)| ClaimId::of(&id, version));
    let trial = (package(), vec(claim, 0..3), time());
    let trial = trial.prop_map(|(package, claims, since)| RunnerTrial { package, claims, since });
    let held_back = (package(), time(), text());
    let held_back = held_back.prop_map(|(package, at, message)| HeldBack { package, at, message });
    let parts = (of(package()), of(trial), of(held_back));
    parts.prop_map(|(adopted, trial, held_back)| Adoption { adopted, trial, held_back })
}

fn promotion() -> impl Strategy<Value = Promotion> {
    (instance_id(), count(), vec(text(), 0..3), text()).prop_map(|(id, version, names, reason)| Promotion {
        claim_id: ClaimId::of(&id, version),
        names,
        reason,
    })
}

fn past_span() -> impl Strategy<Value = PastSpan> {
    let activity = select(Activity::ALL);
    (activity, time(), of(key()), of(text()), of(claim_end())).prop_map(
        |(activity, from, request, trust_domain, claim)| PastSpan {
            trust_domain,
            claim: claim.map(Box::new),
            ..PastSpan::new(activity, from, request)
        },
    )
}

fn proof() -> impl Strategy<Value = ClaimProof> {
    let cleaning = proptest::collection::btree_map(word(CleaningItem::ALL), word(Finding::ALL), 0..12);
    let told = (of("ami-[0-9a-f]{17}"), of("[0-9a-f]{64}"), vec("[a-zA-Z]{1,20}", 0..4));
    (text(), told, of(vec(job(), 0..ClaimProof::JOBS)), any::<u32>(), cleaning).prop_map(
        |(claim_id, (image, package, isolation), jobs, jobs_left_out, cleaning)| ClaimProof {
            claim_id,
            image,
            package,
            isolation,
            jobs,
            jobs_left_out,
            cleaning,
        },
    )
}

fn claim_end() -> impl Strategy<Value = ClaimEnd> {
    let runner = (text(), text()).prop_map(|(version, sha256)| ClaimRunner { version, sha256 });
    let id = (instance_id(), count()).prop_map(|(id, version)| ClaimId::of(&id, version));
    (id, text(), of(runner), of(text()), of(word(Signal::ALL)), of(text()), of(proof())).prop_map(
        |(claim_id, trust_domain, runner, agent_version, signal, detail, proof)| ClaimEnd {
            claim_id,
            trust_domain,
            runner,
            agent_version,
            signal,
            detail,
            proof,
        },
    )
}

fn ahead() -> impl Strategy<Value = Ahead> {
    (instance_id(), count(), of(count()))
        .prop_map(|(id, version, runner_id)| Ahead { id: ClaimId::of(&id, version), runner_id })
}

fn reported() -> impl Strategy<Value = AheadReport> {
    (text(), of(count()), any::<bool>()).prop_map(|(id, runner_id, listening)| AheadReport {
        id,
        runner_id,
        listening,
    })
}

fn kept() -> impl Strategy<Value = KeptDirectories> {
    let one = (text(), count(), count(), time());
    let one = one.prop_map(|(repository, generation, bytes, used_at)| Kept {
        repository,
        generation,
        bytes,
        used_at,
    });
    proptest::collection::btree_map(text(), one, 0..3)
}

fn keep() -> impl Strategy<Value = Keep> {
    let words = (word(KeepScope::ALL), word(WriteFrom::ALL));
    (text(), text(), words, any::<u32>(), any::<u32>()).prop_map(
        |(name, path, (scope, write_from), max_gib, max_age_days)| Keep {
            name,
            path,
            scope,
            write_from,
            max_gib,
            max_age_days,
        },
    )
}

fn trouble() -> impl Strategy<Value = RunnerTrouble> {
    (time(), word(TroubleKind::ALL), text()).prop_map(|(since, kind, words)| RunnerTrouble {
        since,
        kind,
        words,
    })
}

fn retire() -> impl Strategy<Value = RetireReport> {
    (time(), any::<bool>()).prop_map(|(at, busy)| RetireReport { at, busy })
}

fn job() -> impl Strategy<Value = JobReport> {
    (repository(), run(), 1..=u32::MAX, "[!-~]{0,100}", time()).prop_map(
        |(repository, run, attempt, name, at)| {
            JobReport::of(repository.as_str(), run.as_str(), attempt, &name, at).expect("a job of GitHub's")
        },
    )
}

fn agent() -> impl Strategy<Value = Agent> {
    let interruption =
        (word(InterruptionAction::ALL), time()).prop_map(|(action, at)| Interruption { action, at });
    let says = (of(word(Signal::ALL)), of(text()), of(text()), of(time()), of(text()));
    let beat = (of(time()), count(), of(text()), of(text()), of(text()), of(1_u64..1 << 53));
    (
        instance_id(),
        says,
        beat,
        of(interruption),
        (of(count()), kept(), of(reported()), (of(trouble()), of(retire()), of(job()), of(proof()))),
        of(time()),
    )
        .prop_map(
            |(id, says, beat, interruption, (registration_done, kept, ahead, told), updated_at)| {
                let (runner_trouble, retire, job, proof) = told;
                Agent {
                    runner_trouble,
                    retire,
                    job,
                    proof,
                    arn: Some(InstanceArn::local(&id)),
                    signal: says.0,
                    signal_claim_id: says.1,
                    signal_run_id: says.2,
                    signal_at: says.3,
                    signal_detail: says.4,
                    heartbeat_at: beat.0,
                    heartbeat_seq: beat.1,
                    agent_version: beat.2,
                    runner_name: beat.3,
                    public_key: beat.4,
                    runner_id: beat.5,
                    interruption,
                    registration_done,
                    kept,
                    ahead,
                    updated_at,
                }
            },
        )
}

fn intent() -> impl Strategy<Value = Intent> {
    let wish = (short(), any::<u32>(), any::<u32>(), of(word(UsageClass::ALL)), any::<bool>(), of(types()));
    let limits = (of(any::<u64>()), any::<u64>(), word(Desired::ALL), count(), of(time()), of(time()));
    let suffix = of("[a-z0-9]{8}".prop_map(|text| text.parse::<LabelSuffix>().expect("its form")));
    let more = (suffix, any::<bool>(), of(short()), of(short()), (word(Asked::ALL), of(any::<u32>())));
    (repository(), wish, limits, more).prop_map(
        |(repository, wish, limits, (label_suffix, trial, priority, fail_requested_by, (asked, wanted)))| {
            Intent {
                repository,
                resource_class: wish.0,
                count: wish.1,
                min_count: wish.2,
                usage_class: wish.3,
                on_demand_fallback: wish.4,
                allowed_instance_types: wish.5,
                max_runtime_minutes: limits.0,
                timeout_seconds: limits.1,
                label_suffix,
                priority,
                wanted,
                desired: limits.2,
                generation: limits.3,
                created_at: limits.4,
                fail_requested_at: limits.5,
                fail_requested_by,
                asked,
                trial,
            }
        },
    )
}

fn btree_map_of<K: Ord + std::fmt::Debug, V: std::fmt::Debug>(
    pairs: impl Strategy<Value = (K, V)>,
) -> impl Strategy<Value = std::collections::BTreeMap<K, V>> {
    vec(pairs, 0..3).prop_map(|pairs| pairs.into_iter().collect())
}

/// A status begins with a phase; before, there is none of it.
fn status() -> BoxedStrategy<Status> {
    let told = (word(Phase::ALL), vec(instance_id(), 0..3), vec(instance_id(), 0..3), text());
    let times = (of(time()), of(time()), of(time()), count(), of(any::<i64>()), of(any::<u32>()));
    let derived = (of(any::<u32>()), of(time()), of(text()), any::<i32>(), of(text()), of(any::<u64>()));
    let derived = (derived, of(word(ReadySource::ALL)));
    let times = (times, any::<bool>(), of(word(ReleasedBy::ALL)), derived);
    let claims = (instance_id(), 1_u64..9).prop_map(|(id, version)| (id.clone(), ClaimId::of(&id, version)));
    let claims = btree_map_of(claims);
    let status = (told, vec(condition(), 0..3), times, (claims, of(job()))).prop_map(
        |(told, conditions, (times, accepted, by, (derived, ready_source)), (claims, job))| Status {
            phase: Some(told.0),
            instances: told.1,
            claims,
            served: told.2,
            message: told.3,
            conditions,
            accepted_at: times.0,
            accepted,
            released_by: by,
            derived_from: derived.0,
            rerun_requested_at: derived.1,
            share: derived.2,
            priority_value: derived.3,
            workflow: derived.4,
            hourly_cost_nanos: derived.5,
            ready_source,
            deadline: times.1,
            ready_at: times.2,
            lent_since: times.1,
            released_at: times.2,
            ended_at: times.1,
            job,
            settled_for: times.5,
            observed_generation: times.3,
            expires_at: times.4,
        },
    );
    prop_oneof![Just(Status::default()), status].boxed()
}

fn request() -> impl Strategy<Value = Request> {
    (request_key(), intent(), of(intent()), status(), of(uid()), count(), of(time())).prop_map(
        |(mut id, intent, written, status, uid, version, updated_at)| {
            // Keys hold it in lower case, but for those that were written before that was the rule.
            let of = &intent.repository;
            id.repository = if version % 2 == 0 { of.folded() } else { of.clone() };
            // What is written differs from what is served only in what was taken on, and only where that is kept.
            let written = written.filter(|_| status.accepted).map(|written| Intent {
                repository: intent.repository.clone(),
                wanted: intent.wanted,
                desired: intent.desired,
                generation: intent.generation,
                created_at: intent.created_at,
                fail_requested_at: intent.fail_requested_at,
                fail_requested_by: intent.fail_requested_by.clone(),
                asked: intent.asked,
                trial: intent.trial,
                ..written
            });
            let written = written.filter(|written| *written != intent).map(Box::new);
            Request { id, intent, written, status, uid, version, updated_at }
        },
    )
}

fn template() -> impl Strategy<Value = LaunchTemplate> {
    let machine = (of(text()), of(text()), of(text()), vec(text(), 0..2), vec(text(), 0..2));
    let tags = proptest::collection::btree_map(some_text(), text(), 0..2);
    let disk = (of(any::<u32>()), volume(), tags);
    (machine, disk, of(text()), of(text()), of(any::<u32>())).prop_map(
        |(machine, (volume_gib, volume, tags), script, template, max_price_over)| LaunchTemplate {
            ami: machine.0,
            architecture: machine.1,
            instance_profile: machine.2,
            subnet_ids: machine.3,
            security_group_ids: machine.4,
            volume_gib,
            volume,
            tags,
            pre_runner_script: script,
            max_price_over,
            launch_template_id: template,
        },
    )
}

fn jobs() -> impl Strategy<Value = Jobs> {
    let environment = proptest::collection::btree_map(some_text(), text(), 0..2);
    (any::<bool>(), word(Containers::ALL), environment).prop_map(|(root, containers, environment)| Jobs {
        root,
        containers,
        environment,
    })
}

fn volume() -> impl Strategy<Value = Volume> {
    let speed = (of(any::<u32>()), of(any::<u32>()), of(any::<u32>()), of(any::<u32>()));
    (speed, of(any::<bool>()), of(text())).prop_map(
        |((gib, iops, throughput, initialization_rate), encrypted, kms_key_id)| Volume {
            gib,
            iops,
            throughput,
            initialization_rate,
            encrypted,
            kms_key_id,
        },
    )
}

fn sharing() -> impl Strategy<Value = Sharing> {
    let quota = (of(any::<u32>()), of(any::<u32>()), of(any::<u32>()));
    let quota = quota.prop_map(|(max_machines, max_waiting, guaranteed)| Quota {
        max_machines,
        max_waiting,
        guaranteed,
    });
    let half_life = (60_u64..2_592_000).prop_map(|seconds| format!("{seconds}s").parse().expect("its form"));
    let weights = btree_map_of((text(), any::<u32>()));
    (word(ShareBy::ALL), weights, btree_map_of((text(), quota)), half_life, any::<u32>()).prop_map(
        |(by, weights, quotas, half_life, reserve)| Sharing { by, weights, quotas, half_life, reserve },
    )
}

fn sizing() -> impl Strategy<Value = Sizing> {
    let wait = (1_u64..3600).prop_map(|seconds| format!("{seconds}s").parse().expect("its form"));
    let cost = (1_u64..10_000).prop_map(|cents| Money::try_from(cents as f64 / 100.0).expect("an amount"));
    (wait, of(cost), any::<u32>(), of(any::<u32>()))
        .prop_map(|(wait_p95, max_cost_per_day, min, max)| Sizing { wait_p95, max_cost_per_day, min, max })
}

fn spec() -> impl Strategy<Value = PoolSpec> {
    let schedule = (text(), text(), any::<u32>());
    let schedule = schedule.prop_map(|(cron, time_zone, desired)| Schedule { cron, time_zone, desired });
    let size = (class(), any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>());
    let limits =
        (any::<u64>(), of(any::<u64>()), of(any::<u32>()), any::<u64>(), any::<bool>(), any::<u64>());
    let kind = (word(UsageClass::ALL), types(), word(RegistrationMode::ALL), word(ReuseWithin::ALL), types());
    let names = (vec(text(), 0..2), text(), vec(text(), 0..2), word(LabelMode::ALL));
    let replacement = (any::<u32>(), of(text()), text());
    let replacement =
        replacement.prop_map(|(at_once, hours, time_zone)| Replacement { at_once, hours, time_zone });
    let replacement = prop_oneof![Just(Replacement::default()), replacement];
    let last = (
        template(),
        replacement,
        of(sharing()),
        of(sizing()),
        (jobs(), word(RegisteredAhead::ALL), of(queue())),
        vec(keep(), 0..2),
    );
    (size, limits, kind, names, vec(schedule, 0..3), last).prop_map(
        |(
            size,
            limits,
            kind,
            names,
            schedules,
            (launch, replacement, sharing, sizing, (jobs, registered_ahead, queue), keep),
        )| {
            PoolSpec {
                resource_class: size.0,
                cpu: size.1,
                mmem: size.2,
                desired: size.3,
                min: size.4,
                max: size.5,
                schedules,
                usage_class: kind.0,
                allowed_instance_types: kind.1,
                request_types: kind.4,
                idle_seconds: limits.0,
                max_runtime_minutes: limits.1,
                max_uses: limits.2,
                max_age_seconds: limits.3,
                max_hold_seconds: limits.5,
                paused: limits.4,
                labels: names.0,
                label_mode: names.3,
                runner_group: names.1,
                registration_mode: kind.2,
                repositories: names.2,
                reuse_within: kind.3,
                keep,
                launch,
                replacement,
                sharing,
                sizing,
                jobs,
                registered_ahead,
                queue,
            }
        },
    )
}

fn queue() -> impl Strategy<Value = Queue> {
    let labels = proptest::collection::vec(text(), 0..3);
    let sets = (labels, of(word(SetScope::ALL)), any::<u32>(), any::<u64>());
    let of = (any::<bool>(), any::<u32>(), any::<bool>(), sets);
    of.prop_map(|(run_labels, max_slots, forks, (labels, scope, standing, unused_seconds))| Queue {
        run_labels,
        max_slots,
        forks,
        labels,
        scope,
        standing,
        unused_seconds,
    })
}

fn pool() -> impl Strategy<Value = Pool> {
    let scale = (any::<u32>(), of(time()), text(), time());
    let scale = scale.prop_map(|(desired, until, by, at)| PoolOverride { desired, until, by, at });
    let counts = proptest::collection::btree_map(word(State::ALL), any::<u32>(), 1..4);
    let seen = (counts, some_text()).prop_map(|(counts, message)| (counts, message));
    let seen = prop_oneof![Just((Default::default(), String::new())), seen];
    let image = (text(), text(), time());
    let image = image.prop_map(|(parameter, ami, resolved_at)| PinnedImage { parameter, ami, resolved_at });
    let sums = btree_map_of((text(), any::<u64>()));
    let usage = (time(), sums, any::<u64>()).prop_map(|(at, sums, other)| Usage { at, sums, other });
    let bins = proptest::collection::btree_map(0..1024_u32, any::<u32>(), 1..4);
    let bins = proptest::collection::btree_map(0..168_u16, bins, 0..4).prop_map(Bins);
    let needs = proptest::collection::btree_map(0..1024_u32, any::<u32>(), 0..4);
    let level = (any::<u32>(), needs).prop_map(|(quarters, needs)| Level { quarters, needs });
    let pace = (any::<[u64; 4]>(), proptest::collection::btree_map(-10..=30_i16, level, 0..4));
    let pace = pace.prop_map(|(recent, levels)| Pace { recent, levels });
    let demand = (time(), time(), bins, pace);
    let demand = demand.prop_map(|(since, until, bins, pace)| Demand { since, until, bins, pace });
    let sized = (any::<u32>(), time(), of(time()), text(), vec(any::<u32>(), 0..3));
    let sized = sized.prop_map(|(desired, at, looked_at, reason, next)| SizedDesired {
        desired,
        at,
        looked_at,
        reason,
        next,
    });
    let ahead = (any::<bool>(), vec(text(), 0..3), text());
    let ahead = ahead.prop_map(|(on, reasons, message)| AheadStatus { on, reasons, message });
    let idle = (any::<u32>(), any::<u32>(), btree_map_of((text(), any::<u32>())));
    let idle =
        idle.prop_map(|(idle, idle_for_anybody, warm_for)| IdleMachines { idle, idle_for_anybody, warm_for });
    let seen = ((seen, of(idle)), of(image), of(usage), (of(sized), of(demand), adoption(), of(ahead)));
    (spec(), of(scale), seen, vec(condition(), 0..2), of(uid()), count(), of(time())).prop_map(
        |(
            spec,
            scale,
            ((seen, idle), image, usage, (sized_desired, demand, runner, ahead)),
            conditions,
            uid,
            version,
            updated_at,
        )| Pool {
            spec,
            scale,
            status: PoolStatus {
                counts: seen.0,
                idle,
                message: seen.1,
                conditions,
                image,
                usage,
                sized_desired,
                demand,
                runner,
                ahead,
            },
            uid,
            version,
            updated_at,
        },
    )
}

fn launch() -> impl Strategy<Value = Launch> {
    let what = (launch_id(), small(), class(), word(UsageClass::ALL), any::<u32>(), of(key()));
    let how =
        (word(LaunchPhase::ALL), vec(instance_id(), 0..3), text(), time(), (of(any::<i64>()), of(text())));
    (what, how, of(uid()), count(), time()).prop_map(|(what, how, uid, version, updated_at)| Launch {
        client_token: Launch::token_of(&what.0, what.1),
        launch_id: what.0,
        attempt: what.1,
        resource_class: what.2,
        usage_class: what.3,
        count: what.4,
        request: what.5,
        phase: how.0,
        instances: how.1,
        message: how.2,
        created_at: how.3,
        expires_at: how.4.0,
        launch_digest: how.4.1,
        uid,
        version,
        updated_at,
    })
}

fn lease() -> impl Strategy<Value = Lease> {
    let holder = ("[a-z#]{0,9}", text(), count(), count(), 0.0..86_400.0, of(text()));
    (holder, of(time()), of(time()), count(), of(time())).prop_map(
        |(holder, requested_at, completed_at, version, updated_at)| Lease {
            name: holder.0,
            holder: holder.1,
            token: holder.2,
            renewals: holder.3,
            term_seconds: holder.4,
            requested_at,
            completed_at,
            operator_version: holder.5,
            history_until: updated_at,
            version,
            updated_at,
        },
    )
}

fn set() -> impl Strategy<Value = SetRecord> {
    let place = prop_oneof![Just("acme"), Just("acme/web")].prop_map(|place| SetPlace::parse(place).unwrap());
    let numbers = (of(count()), count(), of(count()), any::<[u32; 6]>(), count());
    let more = (
        proptest::collection::vec(text(), 0..3),
        word(SetState::ALL),
        proptest::collection::vec(condition(), 0..3),
        of(time()),
    );
    (class(), place, numbers, more, of(uid()), count(), of(time())).prop_map(
        |(class, place, numbers, more, uid, version, updated_at)| {
            let (scale_set_id, runner_group_id, last_message_id, counts, next_slot) = numbers;
            let [assigned, running, registered, busy, idle, announced] = counts;
            let (labels, state, conditions, statistics_at) = more;
            SetRecord {
                key: Some((class, place)),
                scale_set_id,
                set_name: labels.first().cloned().unwrap_or_default(),
                labels,
                runner_group_id,
                last_message_id,
                announced,
                statistics: SetCounts { assigned, running, registered, busy, idle },
                statistics_at,
                next_slot,
                state,
                conditions,
                uid,
                version,
                updated_at,
            }
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    let what = ("[0-9a-f]{16}", word(EventType::ALL), text(), text(), text(), some_text());
    (what, of(text()), of(text()), time(), any::<i64>(), time()).prop_map(
        |(what, from, to, at, expires_at, updated_at)| Event {
            place: what.0,
            event_type: what.1,
            reason: what.2,
            message: what.3,
            actor: what.4,
            subject: what.5,
            from,
            to,
            at,
            expires_at,
            updated_at,
        },
    )
}
