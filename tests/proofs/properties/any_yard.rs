//! Generates yards of readable records that need not be consistent with each other.

use std::time::Duration;

use jiff::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use runyard_core::decide::Role;
use runyard_core::model::{
    Agent, Ahead, AheadReport, AttributeValue, Claim, ClaimId, ClassName, Hold, Instance, InstanceArn,
    InstanceFacts, InstanceId, Interruption, InterruptionAction, Jobs, Launch, LaunchId, LaunchPhase, Life,
    Phase, Pool, Reading, Reason, RecordId, Registration, Request, RunId, Signal, Threshold, UsageClass,
    read,
};
use runyard_core::ports::{ComputeError, Machine, MachineState};
use runyard_core::yard::Observation;
use serde_json::json;

use crate::properties::world::{World, item, start};

const MACHINES: usize = 6;
const REQUESTS: usize = 4;

#[derive(Clone, Debug)]
struct AnyMachine {
    place: u8,
    class: usize,
    request: usize,
    claim: u64,
    version: u64,
    threshold: Timestamp,
    created: Timestamp,
    uses: u32,
    spot: bool,
    domain: &'static str,
    expired: bool,
    failures: u32,
    boxed: Option<Timestamp>,
    signal: Option<(Signal, u8)>,
    beat: Option<u64>,
    key: Option<&'static str>,
    notice: Option<(InterruptionAction, Timestamp)>,
    stands: Option<Option<MachineState>>,
    listed: bool,
}

#[derive(Clone, Debug)]
struct AnyRequest {
    class: usize,
    attempt: u32,
    name: &'static str,
    phase: Option<Phase>,
    count: u32,
    min: u32,
    released: bool,
    failed: bool,
    accepted: Timestamp,
    deadline: Timestamp,
    ready: Timestamp,
    runtime: Option<u64>,
    timeout: u64,
    held: Vec<(usize, u64)>,
    usage: Option<&'static str>,
    types: Option<&'static str>,
    settled: Option<u32>,
}

/// A launch: its class, count, request, phase, and what it brought.
type Launching = (usize, u32, Option<usize>, u8, Option<u8>);

#[derive(Clone, Debug)]
pub(crate) struct AnyYard {
    now: Timestamp,
    lease: bool,
    github: bool,
    down: bool,
    inventory: bool,
    idle: u64,
    pools: Vec<serde_json::Value>,
    machines: Vec<AnyMachine>,
    requests: Vec<AnyRequest>,
    launches: Vec<Launching>,
    spoilt: Vec<(u8, usize, bool)>,
    sweep: bool,
}

fn time() -> impl Strategy<Value = Timestamp> {
    let near =
        (-4000_i64..4000).prop_map(|s| start().saturating_add(jiff::SignedDuration::from_secs(s)).unwrap());
    let far = select(vec![
        Timestamp::UNIX_EPOCH,
        runyard_core::model::millis(Timestamp::MIN),
        runyard_core::model::millis(Timestamp::MAX),
        "9999-12-30T00:00:00Z".parse().unwrap(),
        start(),
    ]);
    prop_oneof![8 => near, 1 => far]
}

fn number() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0_u32..12, 1 => select(vec![40, 41, 500, u32::MAX])]
}

fn one<T: Clone + std::fmt::Debug + 'static>(of: &[T]) -> impl Strategy<Value = T> + use<T> {
    select(of.to_vec())
}

fn machine() -> impl Strategy<Value = AnyMachine> {
    let states = [
        MachineState::Pending,
        MachineState::Running,
        MachineState::Stopped,
        MachineState::ShuttingDown,
        MachineState::Terminated,
    ];
    let actions = [InterruptionAction::Terminate, InterruptionAction::Stop, InterruptionAction::Rebalance];
    let record = (0_u8..8, 0..2_usize, 0..REQUESTS, 0_u64..7, 1_u64..7, time(), time(), number());
    let more = (any::<bool>(), one(&["", "owner:acme", "owner:other"]), prop::bool::weighted(0.1), 0_u32..3);
    let agent = (
        proptest::option::of(time()),
        proptest::option::of((one(Signal::ALL), 0_u8..4)),
        proptest::option::weighted(0.9, 0_u64..9),
        proptest::option::of(one(&["key", "other"])),
        proptest::option::weighted(0.15, (one(&actions), time())),
    );
    let provider = (proptest::option::weighted(0.3, proptest::option::of(one(&states))), any::<bool>());
    (record, more, agent, provider).prop_map(|(record, more, agent, provider)| AnyMachine {
        place: record.0,
        class: record.1,
        request: record.2,
        claim: record.3,
        version: record.4,
        threshold: record.5,
        created: record.6,
        uses: record.7,
        spot: more.0,
        domain: more.1,
        expired: more.2,
        failures: more.3,
        boxed: agent.0,
        signal: agent.1,
        beat: agent.2,
        key: agent.3,
        notice: agent.4,
        stands: provider.0,
        listed: provider.1,
    })
}

fn request() -> impl Strategy<Value = AnyRequest> {
    let intent = (0..3_usize, 1_u32..3, one(&["default", "other"]), number(), number(), any::<bool>());
    let status = (
        proptest::option::of(one(Phase::ALL)),
        time(),
        time(),
        time(),
        vec((0..MACHINES, 0_u64..7), 0..4),
        proptest::option::of(number()),
    );
    let more = (
        prop::bool::weighted(0.1),
        proptest::option::of(prop_oneof![0_u64..90, Just(u64::MAX)]),
        prop_oneof![4 => 1_u64..900, 1 => Just(u64::MAX)],
        proptest::option::of(one(&["spot", "on-demand"])),
        proptest::option::of(one(&["m7*", "c*"])),
    );
    (intent, status, more).prop_map(|(intent, status, more)| AnyRequest {
        class: intent.0,
        attempt: intent.1,
        name: intent.2,
        count: intent.3,
        min: intent.4,
        released: intent.5 && more.2 % 3 == 0,
        phase: status.0,
        accepted: status.1,
        deadline: status.2,
        ready: status.3,
        held: status.4,
        settled: status.5,
        failed: more.0,
        runtime: more.1,
        timeout: more.2,
        usage: more.3,
        types: more.4,
    })
}

fn pool() -> impl Strategy<Value = serde_json::Value> {
    let numbers = (number(), number(), proptest::option::of(0_u32..4));
    let times = (prop_oneof![0_u64..4000, Just(u64::MAX)], prop_oneof![0_u64..9000, Just(u64::MAX)]);
    let words = (
        prop::bool::weighted(0.1),
        one(&["repository", "owner", "any", "none"]),
        (one(&["run", "job"]), one(&["run", "run", "secret"])),
        proptest::option::of(prop_oneof![0_u64..90, Just(u64::MAX)]),
    );
    let ahead = prop_oneof![Just(json!("auto")), Just(json!(true)), Just(json!(false))];
    (numbers, times, words, ahead).prop_map(|(numbers, times, words, ahead)| {
        json!({
            "desired": numbers.0, "max": numbers.1, "maxUses": numbers.2, "idleSeconds": times.0,
            "maxAgeSeconds": times.1, "paused": words.0, "registeredAhead": ahead, "reuseWithin": words.1, "registrationMode": words.2.0, "labelMode": words.2.1,
            "jobs": {"root": words.2.1 == "secret"},
            "maxRuntimeMinutes": words.3,
        })
    })
}

pub(crate) fn any_yard() -> impl Strategy<Value = AnyYard> {
    let launch =
        (0..2_usize, number(), proptest::option::of(0..REQUESTS), 0_u8..3, proptest::option::of(0_u8..4));
    let scene = (
        prop_oneof![9 => Just(start()), 1 => time()],
        prop::bool::weighted(0.8),
        any::<bool>(),
        any::<bool>(),
        prop::bool::weighted(0.8),
        0_u64..120,
    );
    let parts = (
        vec(pool(), 0..3),
        vec(machine(), 0..=MACHINES),
        vec(request(), 0..=REQUESTS),
        vec(launch, 0..3),
        vec((0_u8..5, 0..MACHINES, any::<bool>()), 0..2),
        any::<bool>(),
    );
    (scene, parts).prop_map(|(scene, parts)| AnyYard {
        now: scene.0,
        lease: scene.1,
        github: scene.2,
        down: scene.3,
        inventory: scene.4,
        idle: scene.5,
        pools: parts.0,
        machines: parts.1,
        requests: parts.2,
        launches: parts.3,
        spoilt: parts.4,
        sweep: parts.5,
    })
}

fn class(n: usize) -> &'static str {
    ["linux", "big", "nowhere"][n]
}

fn id(n: usize) -> InstanceId {
    InstanceId::parse(&format!("i-{n}")).unwrap()
}

/// The request that has this place in the yard.
fn key(any_yard: &[AnyRequest], n: usize) -> RecordId {
    let (name, attempt) = any_yard.get(n).map_or(("default", 1), |request| (request.name, request.attempt));
    RecordId::new(format!("request#acme/web#{}", n % 3), format!("request#{name}#{attempt}"))
}

fn instance(n: usize, any_yard: &AnyMachine, requests: &[AnyRequest]) -> Instance {
    let run = || RunId::parse(&(any_yard.request % 3).to_string()).unwrap();
    let at = any_yard.created;
    let (life, claimed) = match any_yard.place {
        0 => (Life::Created { run: None }, false),
        1 => (Life::Created { run: Some(run()) }, true),
        2 => (Life::Claimed { run: run() }, true),
        3 => (Life::Running { run: run() }, true),
        4 => (Life::Idle { pooled_at: None }, any_yard.uses > 0),
        5 => (Life::Idle { pooled_at: Some(at) }, any_yard.uses > 0),
        6 => (Life::Terminated { reason: Reason::Expired, gone_at: None }, any_yard.uses > 0),
        _ => (Life::Terminated { reason: Reason::Surplus, gone_at: Some(at) }, any_yard.uses > 0),
    };
    let live = any_yard.place < 6;
    let claim = Claim { id: ClaimId::of(&id(n), any_yard.claim), request: key(requests, any_yard.request) };
    let sealed = any_yard.boxed.map(|at| Registration { sealed: "box".into(), expires_at: Some(at) });
    Instance {
        facts: InstanceFacts {
            instance_id: id(n),
            instance_arn: InstanceArn::local(&id(n)),
            resource_class: ClassName::parse(class(any_yard.class)).unwrap(),
            instance_type: "m7i.large".into(),
            usage_class: if any_yard.spot { UsageClass::Spot } else { UsageClass::OnDemand },
            cpu: 2,
            mmem: 4096,
            availability_zone: String::new(),
            launch_id: None,
            launch_digest: None,
            created_at: at,
        },
        life,
        claim: claimed.then_some(claim),
        jobs: Jobs { root: any_yard.uses % 3 == 1, ..Jobs::default() },
        runner: None,
        spans: vec![],
        threshold: live.then_some(Threshold { at: any_yard.threshold, set_at: any_yard.created }),
        state_since: at,
        uses: any_yard.uses,
        trust_domain: any_yard.domain.into(),
        public_key: any_yard.key.filter(|_| any_yard.spot).map(str::to_owned),
        registration: sealed.clone().filter(|_| live),
        registration_seq: any_yard.boxed.map_or(0, |_| 1),
        removal: sealed.filter(|_| live),
        promotion: None,
        ahead: (any_yard.uses.is_multiple_of(2))
            .then(|| Ahead { id: ahead(n), runner_id: any_yard.boxed.map(|_| 7) }),
        registration_failures: any_yard.failures,
        expired_by: any_yard.expired.then(|| "ada".into()),
        // Some of those that were touched by nobody else.
        hold: (!any_yard.expired && any_yard.uses % 4 == 3)
            .then(|| Hold { by: "ada".into(), until: any_yard.threshold }),
        retire_asked: None,
        logs_requested: None,
        console: None,
        expires_at: (any_yard.place > 6).then(|| any_yard.threshold.as_second()),
        version: any_yard.version,
        updated_at: at,
    }
}

/// The id of the runner that a machine registered ahead, if it did.
fn ahead(n: usize) -> ClaimId {
    ClaimId::of(&id(n), 1)
}

fn agent(n: usize, any_yard: &AnyMachine, seq: u64) -> Agent {
    let arn = InstanceArn::local(&id(n));
    let claim = |kind: u8| match kind {
        0 => String::new(),
        1 => "i-9.9".to_owned(),
        _ => ClaimId::of(&id(n), any_yard.claim).to_string(),
    };
    Agent {
        heartbeat_seq: seq,
        signal: any_yard.signal.map(|(signal, _)| signal),
        signal_claim_id: any_yard.signal.map(|(_, kind)| claim(kind)),
        public_key: any_yard.key.map(str::to_owned),
        interruption: any_yard.notice.map(|(action, at)| Interruption { action, at }),
        registration_done: any_yard.boxed.map(|_| 1),
        ahead: any_yard.boxed.map(|_| AheadReport {
            id: ahead(n).to_string(),
            runner_id: Some(7),
            listening: any_yard.spot,
        }),
        ..Agent::born(&arn, any_yard.created)
    }
}

impl AnyRequest {
    fn record(&self, key: &RecordId, n: usize) -> Request {
        let held: Vec<String> = self.held.iter().map(|(n, _)| id(*n).to_string()).collect();
        let claims: serde_json::Map<String, serde_json::Value> = self
            .held
            .iter()
            .map(|(n, version)| (id(*n).to_string(), ClaimId::of(&id(*n), *version).to_string().into()))
            .collect();
        let mut fields = json!({
            "pk": key.pk(), "sk": key.sk(), "kind": "request", "version": 2, "runId": (n % 3).to_string(),
            "attempt": self.attempt, "repository": "acme/web", "name": self.name,
            "resourceClass": class(self.class), "count": self.count, "minCount": self.min, "generation": 1,
            "desired": if self.released { "released" } else { "provisioned" }, "usageClass": self.usage,
            "maxRuntimeMinutes": self.runtime, "timeoutSeconds": self.timeout,
            "allowedInstanceTypes": self.types.map(|glob| [glob]),
            "failRequestedAt": self.failed.then_some(self.accepted),
        });
        if let Some(phase) = self.phase {
            fields["phase"] = phase.as_str().into();
            fields["instances"] = json!(held);
            fields["served"] = json!(held);
            fields["claims"] = claims.into();
            fields["acceptedAt"] = json!(self.accepted);
            fields["deadline"] = json!(self.deadline);
            fields["readyAt"] = json!((phase == Phase::Ready).then_some(self.ready));
            fields["settledFor"] = json!(self.settled);
            fields["expiresAt"] = json!(phase.is_final().then(|| self.ready.as_second()));
        }
        match read(&item(fields)) {
            Reading::Record(request) => request,
            Reading::Unreadable(why) => panic!("{why}"),
            Reading::Newer { .. } => unreachable!("it has no schema"),
        }
    }
}

impl AnyYard {
    /// Whether no class may grow past what can be carried out in a moment.
    pub(crate) fn is_modest(&self) -> bool {
        self.pools.iter().all(|spec| spec["max"].as_u64().is_some_and(|max| max <= 50))
    }

    pub(crate) fn world(&self) -> World {
        let mut world = World::empty(self.now);
        world.policy.github = self.github;
        world.policy.inventory = self.inventory;
        world.role = Role { lease: self.lease.then_some(1) };
        for (n, spec) in self.pools.iter().enumerate() {
            let mut fields = spec.clone();
            for (name, value) in [
                ("pk", json!(format!("pool#{}", class(n)))),
                ("sk", json!("pool")),
                ("kind", json!("pool")),
                ("version", json!(1)),
                ("resourceClass", json!(class(n))),
            ] {
                fields[name] = value;
            }
            world.store(item(fields));
        }
        for (n, any_yard) in self.requests.iter().enumerate() {
            world.put(&any_yard.record(&key(&self.requests, n), n));
        }
        for (n, any_yard) in self.machines.iter().enumerate() {
            world.put(&instance(n, any_yard, &self.requests));
            if let Some(seq) = any_yard.beat {
                world.put(&agent(n, any_yard, seq));
            }
        }
        self.launches(&mut world);
        self.spoil(&mut world);
        world.later(1);
        world.list();
        self.providers(&mut world);
        for n in 0..self.machines.len() {
            world.see(Observation::GitHub(InstanceArn::local(&id(n)), !self.down));
        }
        // What was seen is that old.
        world.now.seen += Duration::from_secs(self.idle);
        world.now.mono += Duration::from_secs(self.idle);
        // Mostly its queue was just asked, so that a class claims.
        for name in ["linux", "big"].into_iter().filter(|_| !self.idle.is_multiple_of(4)) {
            world.see(Observation::Hints(ClassName::parse(name).unwrap(), vec![id(0), id(5), id(0)]));
        }
        world
    }

    fn launches(&self, world: &mut World) {
        for (n, (of, count, request, phase, answer)) in self.launches.iter().enumerate() {
            let launch_id = LaunchId::parse(&format!("l-{n}")).unwrap();
            let phase = [LaunchPhase::Intent, LaunchPhase::Bound, LaunchPhase::Failed][usize::from(*phase)];
            world.put(&Launch {
                client_token: Launch::token_of(&launch_id, 1),
                launch_id: launch_id.clone(),
                attempt: 1,
                resource_class: ClassName::parse(class(*of)).unwrap(),
                usage_class: UsageClass::Spot,
                count: *count,
                request: request.map(|n| key(&self.requests, n)),
                launch_digest: None,
                phase,
                instances: Vec::new(),
                message: String::new(),
                created_at: start(),
                expires_at: (phase != LaunchPhase::Intent).then(|| start().as_second()),
                uid: None,
                version: 1,
                updated_at: start(),
            });
            let error = match answer {
                Some(0) => ComputeError::Unknown("lost".into()),
                Some(1) => ComputeError::Throttled,
                Some(_) => ComputeError::Refused("quota".into()),
                None => continue,
            };
            world.see(Observation::Ordered(launch_id, Err(error)));
        }
    }

    /// Records of a newer program, or that nobody can read.
    fn spoil(&self, world: &mut World) {
        for (kind, n, newer) in &self.spoilt {
            let key = match kind {
                0 => Instance::key_of(&InstanceArn::local(&id(*n))),
                1 => Agent::key_of(&InstanceArn::local(&id(*n))),
                2 => key(&self.requests, *n % REQUESTS),
                3 => Pool::key_of(&ClassName::parse(class(*n % 2)).unwrap()),
                _ => Launch::key_of(&LaunchId::parse(&format!("l-{}", n % 3)).unwrap()),
            };
            let text = |text: &str| AttributeValue::S(text.to_owned());
            let mut item: runyard_core::model::Item =
                [("pk", text(&key.pk())), ("sk", text(&key.sk())), ("kind", text("?"))]
                    .map(|(name, value)| (name.to_owned(), value))
                    .into();
            if *newer {
                item.insert("schema".into(), AttributeValue::N("2".into()));
            }
            world.store(item);
        }
    }

    fn providers(&self, world: &mut World) {
        for (n, any_yard) in self.machines.iter().enumerate() {
            let arn = InstanceArn::local(&id(n));
            if let Some(state) =
                any_yard.stands.flatten().or(any_yard.listed.then_some(MachineState::Running))
            {
                let machine = Machine {
                    id: id(n),
                    arn: arn.clone(),
                    class: (any_yard.failures > 0).then(|| ClassName::parse(class(any_yard.class)).unwrap()),
                    launch: LaunchId::parse("l-0").ok(),
                    attempt: 1,
                    instance_type: "m7i.large".into(),
                    usage_class: UsageClass::OnDemand,
                    cpu: 2,
                    mmem: 4096,
                    zone: String::new(),
                    state,
                    launched_at: start(),
                };
                world.machines.insert(id(n), machine);
            }
            if let Some(stands) = any_yard.stands {
                world.see(Observation::Stands(arn, stands));
            }
        }
        if self.sweep {
            let machines = world.machines.values().cloned().collect();
            world.see(Observation::Inventory(machines));
        }
    }
}
