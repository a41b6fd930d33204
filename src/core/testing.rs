//! Scenes for the tests of the rules: a yard filled through `observe`, as production fills it, at a fixed moment.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::model::{
    Agent, AttributeValue, Claim, ClaimId, ClassName, Instance, InstanceArn, InstanceFacts, InstanceId, Item,
    Launch, LaunchId, LaunchPhase, Life, Pool, Reading, Reason, Rebalance, Record, RecordId, Repository,
    Request, RequestKey, RequestName, RunId, Signal, Threshold, Timing, UsageClass, Versioned, read,
};
use crate::ports::{Machine, MachineState};

use crate::decide::{Change, Context, Effect, Note, Plan, Planned, Policy, Role, Step, decide};
use crate::yard::{Now, Observation, Unit, Yard};

/// Returns deadlines of a minute each, for tests that do not depend on them.
pub(crate) fn a_minute_each() -> Policy {
    let minute = secs(60);
    Policy {
        timing: Timing {
            created: minute,
            claimed: minute,
            cleanup: minute,
            end: minute,
            grace: minute,
            heartbeat: minute,
            stale: minute,
            agent_poll: minute,
            resync: minute,
            reannounce: minute,
            lease: minute,
            orphan: minute,
            image: Duration::from_secs(3600),
        },
        requests_per_repository: 2000,
        prices: Default::default(),
        sharing: Default::default(),
        following: Default::default(),
        github: false,
        organization: false,
        watches_runs: false,
        inventory: false,
        rebalance: Rebalance::Last,
        statements: false,
        ended_stays: Policy::ENDED_STAYS,
    }
}

/// Returns the time at which scenes begin.
pub(crate) fn start() -> Timestamp {
    "2026-01-05T12:00:00Z".parse().unwrap()
}

/// Returns the time this many seconds after the beginning, or before it.
pub(crate) fn at(seconds: i64) -> Timestamp {
    start().saturating_add(SignedDuration::from_secs(seconds)).unwrap()
}

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn linux() -> ClassName {
    ClassName::parse("linux").unwrap()
}

pub(crate) fn id(name: &str) -> InstanceId {
    InstanceId::parse(name).unwrap()
}

pub(crate) fn arn(name: &str) -> InstanceArn {
    InstanceArn::local(&id(name))
}

/// Returns the key of the request `default` of a run of `acme/web`.
pub(crate) fn ask(run: &str) -> RequestKey {
    RequestKey {
        repository: Repository::parse("acme/web").unwrap(),
        run_id: RunId::parse(run).unwrap(),
        name: RequestName::default_name(),
        attempt: 1,
    }
}

/// Builds an item; null values are left out.
pub(crate) fn item(value: serde_json::Value) -> Item {
    let item: serde_dynamo::Item = serde_dynamo::to_item(value).unwrap();
    item.into_inner().into_iter().filter(|(_, value)| !matches!(value, AttributeValue::Null(_))).collect()
}

pub(crate) fn record<T: Record>(item: &Item) -> T {
    match read::<T>(item) {
        Reading::Record(record) => record,
        Reading::Unreadable(why) => panic!("{why}"),
        Reading::Newer { schema } => panic!("schema {schema}"),
    }
}

/// Builds a request as the operator stores it: accepted 100 s ago, to fail in 500 s.
pub(crate) fn request(run: &str, count: u32, more: serde_json::Value) -> Request {
    let key = Request::key_of(&ask(run));
    let mut fields = serde_json::json!({
        "pk": key.pk(), "sk": key.sk(), "kind": "request", "version": 3, "runId": run, "attempt": 1,
        "repository": "acme/web", "name": "default", "resourceClass": "linux", "count": count,
        "desired": "provisioned", "generation": 1, "phase": "Pending", "acceptedAt": at(-100),
        "deadline": at(500), "observedGeneration": 1,
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        fields[name] = value.clone();
    }
    if let Some(name) = fields["name"].as_str().map(str::to_owned) {
        fields["sk"] = format!("request#{name}#{}", fields["attempt"]).into();
    }
    fields["pk"] = format!("request#{}#{run}", fields["repository"].as_str().unwrap()).into();
    record(&item(fields))
}

/// Builds a request that holds these machines, claimed in the write that made version 5 of each.
pub(crate) fn holding(run: &str, count: u32, machines: &[&str], more: serde_json::Value) -> Request {
    let mut request = request(run, count, serde_json::json!({"phase": "Fulfilling"}));
    request.status.instances = machines.iter().map(|name| id(name)).collect();
    request.status.served = request.status.instances.clone();
    request.status.claims =
        request.status.instances.iter().map(|id| (id.clone(), ClaimId::of(id, 5))).collect();
    let mut fields = serde_json::to_value(request.to_row()).unwrap();
    fields["pk"] = request.key().pk().into();
    fields["sk"] = request.key().sk().into();
    fields["kind"] = "request".into();
    for (name, value) in more.as_object().into_iter().flatten() {
        fields[name] = value.clone();
    }
    record(&item(fields))
}

/// A machine with its agent: created 200 s ago, with a heartbeat of just now.
#[derive(Clone)]
pub(crate) struct Built {
    pub(crate) instance: Instance,
    pub(crate) agent: Option<Agent>,
}

/// Builds a machine of class `linux`; warm and booting unless changed.
pub(crate) fn machine(name: &str) -> Built {
    let facts = InstanceFacts {
        instance_id: id(name),
        instance_arn: arn(name),
        resource_class: linux(),
        instance_type: "m7i.large".into(),
        usage_class: UsageClass::OnDemand,
        cpu: 2,
        mmem: 4096,
        availability_zone: "local-a".into(),
        launch_id: Some(LaunchId::parse("l-1").unwrap()),
        launch_digest: None,
        created_at: at(-200),
    };
    let instance = Instance {
        threshold: Some(Threshold { at: at(300), set_at: at(-100) }),
        state_since: at(-100),
        version: 5,
        updated_at: at(-100),
        ..Instance::born(facts, Life::Created { run: None })
    };
    let agent = Agent { heartbeat_seq: 7, ..Agent::born(&instance.facts.instance_arn, at(-200)) };
    Built { instance, agent: Some(agent) }
}

impl Built {
    fn of(mut self, life: Life, request: Option<&RequestKey>) -> Self {
        let id = ClaimId::of(&self.instance.facts.instance_id, 5);
        self.instance.life = life;
        self.instance.claim = request.map(|request| Claim { id, request: request.into() });
        if request.is_some() {
            self.instance.trust_domain = "owner:acme".into();
        }
        self
    }

    fn run(request: &RequestKey) -> RunId {
        request.run_id.clone()
    }

    /// Launches it for a request, booting.
    pub(crate) fn bound(self, request: &RequestKey) -> Self {
        self.of(Life::Created { run: Some(Self::run(request)) }, Some(request))
    }

    pub(crate) fn claimed(self, request: &RequestKey) -> Self {
        self.of(Life::Claimed { run: Self::run(request) }, Some(request))
    }

    pub(crate) fn running(mut self, request: &RequestKey) -> Self {
        self.instance.uses = 1;
        self.of(Life::Running { run: Self::run(request) }, Some(request))
    }

    pub(crate) fn cleaning(mut self, request: &RequestKey) -> Self {
        self.instance.uses = 1;
        self.of(Life::Idle { pooled_at: None }, Some(request))
    }

    /// Puts it in the pool, never used, with half an hour from its entry 100 s ago.
    pub(crate) fn pooled(mut self) -> Self {
        self.instance.threshold = Some(Threshold { at: at(1700), set_at: at(-100) });
        self.of(Life::Idle { pooled_at: Some(at(-100)) }, None)
    }

    pub(crate) fn ended(mut self, reason: Reason) -> Self {
        self.instance.life = Life::Terminated { reason, gone_at: None };
        self.instance.threshold = None;
        self
    }

    pub(crate) fn until(mut self, seconds: i64) -> Self {
        self.instance.threshold = self.instance.threshold.map(|t| Threshold { at: at(seconds), ..t });
        self
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Instance)) -> Self {
        change(&mut self.instance);
        self
    }

    pub(crate) fn agent(mut self, change: impl FnOnce(&mut Agent)) -> Self {
        change(self.agent.as_mut().unwrap());
        self
    }

    /// Lets its agent report this signal for the claim of the record.
    pub(crate) fn says(self, signal: Signal) -> Self {
        let claim = self.instance.claim.as_ref().map_or(String::new(), |claim| claim.id.to_string());
        self.says_for(signal, &claim)
    }

    pub(crate) fn says_for(self, signal: Signal, claim: &str) -> Self {
        let claim = claim.to_owned();
        self.agent(|agent| {
            agent.signal = Some(signal);
            agent.signal_claim_id = Some(claim);
        })
    }

    /// Returns the machine as its provider lists it.
    pub(crate) fn listed(&self, state: MachineState) -> Machine {
        let facts = &self.instance.facts;
        Machine {
            id: facts.instance_id.clone(),
            arn: facts.instance_arn.clone(),
            class: Some(facts.resource_class.clone()),
            launch: facts.launch_id.clone(),
            attempt: 1,
            instance_type: facts.instance_type.clone(),
            usage_class: facts.usage_class,
            cpu: facts.cpu,
            mmem: facts.mmem,
            zone: facts.availability_zone.clone(),
            state,
            launched_at: facts.created_at,
        }
    }
}

/// Builds a launch of class `linux` that was decided 10 s ago.
pub(crate) fn launch(name: &str, count: u32, request: Option<&RequestKey>) -> Launch {
    let launch_id = LaunchId::parse(name).unwrap();
    Launch {
        client_token: Launch::token_of(&launch_id, 1),
        launch_id,
        attempt: 1,
        resource_class: linux(),
        usage_class: UsageClass::OnDemand,
        count,
        request: request.map(RecordId::from),
        launch_digest: None,
        phase: LaunchPhase::Intent,
        instances: Vec::new(),
        message: String::new(),
        created_at: at(-10),
        expires_at: None,
        uid: None,
        version: 1,
        updated_at: at(-10),
    }
}

/// A yard and a moment.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) yard: Yard,
    pub(crate) policy: Policy,
    pub(crate) now: Now,
    pub(crate) role: Role,
}

impl Scene {
    /// Creates an empty yard, completely listed; this operator holds the lease.
    pub(crate) fn empty() -> Self {
        let policy = Policy {
            timing: Timing {
                created: secs(900),
                claimed: secs(300),
                cleanup: secs(240),
                end: secs(180),
                grace: secs(300),
                heartbeat: secs(10),
                stale: secs(60),
                agent_poll: secs(1),
                resync: secs(300),
                reannounce: secs(300),
                lease: secs(15),
                orphan: secs(600),
                image: Duration::from_secs(3600),
            },
            requests_per_repository: 2000,
            prices: Default::default(),
            sharing: Default::default(),
            following: Default::default(),
            github: false,
            organization: false,
            watches_runs: false,
            inventory: true,
            rebalance: Rebalance::Last,
            statements: false,
            ended_stays: Policy::ENDED_STAYS,
        };
        let now = Now { wall: start(), mono: secs(10_000), seen: secs(10_000) };
        let mut scene = Self { yard: Yard::default(), policy, now, role: Role { lease: Some(4) } };
        scene.see(Observation::Listed(secs(9_000), BTreeSet::new()));
        scene
    }

    /// Creates a yard with class `linux`: no idle machines, at most 10 machines, unless `spec` changes it.
    pub(crate) fn with(spec: serde_json::Value) -> Self {
        let mut scene = Self::empty();
        scene.pool(1, spec);
        scene
    }

    /// Creates a yard with class `linux`, a pooled machine `i-1`, request 1 and an open launch `l-1`.
    pub(crate) fn peopled() -> Self {
        let mut scene = Self::with(serde_json::json!({}));
        scene.add(machine("i-1").pooled());
        scene.put(&request("1", 1, serde_json::json!({})));
        scene.put(&launch("l-1", 1, None));
        scene
    }

    pub(crate) fn pool(&mut self, version: u64, spec: serde_json::Value) -> BTreeSet<Unit> {
        let mut fields = serde_json::json!({
            "pk": "pool#linux", "sk": "pool", "kind": "pool", "version": version, "resourceClass": "linux",
            "cpu": 2, "mmem": 4096, "max": 10,
        });
        for (name, value) in spec.as_object().into_iter().flatten() {
            fields[name] = value.clone();
        }
        self.put(&record::<Pool>(&item(fields)))
    }

    pub(crate) fn see(&mut self, seen: Observation) -> BTreeSet<Unit> {
        let now = self.now;
        self.yard.observe(seen, &now)
    }

    /// Observes a strong read that began after everything that was observed until now.
    pub(crate) fn look(&mut self, key: RecordId, item: Option<Item>) -> BTreeSet<Unit> {
        let begun = self.now.mono + Duration::from_nanos(1);
        self.see(Observation::Looked(begun, key, item))
    }

    pub(crate) fn put<T: Record>(&mut self, record: &T) -> BTreeSet<Unit> {
        self.see(Observation::Record(record.key(), Some(record.to_item())))
    }

    pub(crate) fn add(&mut self, built: Built) -> BTreeSet<Unit> {
        let mut dirty = self.put(&built.instance);
        if let Some(agent) = &built.agent {
            dirty.extend(self.put(agent));
        }
        dirty
    }

    /// Observes the agent record of a machine, changed and with the next heartbeat.
    pub(crate) fn speaks(&mut self, name: &str, change: impl FnOnce(&mut Agent)) -> BTreeSet<Unit> {
        let mut agent = self.yard.instance(&arn(name)).unwrap().agent.clone().unwrap();
        agent.heartbeat_seq += 1;
        change(&mut agent);
        self.put(&agent)
    }

    /// Advances the time of the scene.
    pub(crate) fn wait(&mut self, seconds: u64) {
        self.now.wall = self.now.wall.saturating_add(SignedDuration::from_secs(seconds as i64)).unwrap();
        self.now.mono += secs(seconds);
        self.now.seen += secs(seconds);
    }

    /// Stores a record of a newer program, or an unreadable one, under a key.
    pub(crate) fn spoil(&mut self, key: &RecordId, schema: Option<u64>) {
        let mut item = item(serde_json::json!({"pk": key.pk(), "sk": key.sk(), "kind": "nonsense"}));
        item.extend(schema.map(|n| ("schema".to_owned(), AttributeValue::N(n.to_string()))));
        self.see(Observation::Record(key.clone(), Some(item)));
    }

    pub(crate) fn judge(&self, unit: &Unit) -> Plan {
        let cx = Context { yard: &self.yard, policy: &self.policy, now: self.now, role: self.role };
        decide(&cx, unit)
    }

    pub(crate) fn of_machine(&self, name: &str) -> Plan {
        self.judge(&Unit::Instance(arn(name)))
    }

    pub(crate) fn of_request(&self, run: &str) -> Plan {
        self.judge(&Unit::Request(ask(run)))
    }

    pub(crate) fn of_class(&self) -> Plan {
        self.judge(&Unit::Class(linux()))
    }

    /// Returns the class's actions for machines and requests, with an empty queue.
    pub(crate) fn served(&mut self) -> Vec<Planned> {
        self.see(Observation::Hints(linux(), Vec::new()));
        let mut actions = self.of_class().actions;
        actions.retain(|action| !matches!(action.effect, Effect::Pool(_)));
        actions
    }

    /// Returns the class's claims: which request gets which machines.
    pub(crate) fn claims(&mut self) -> Vec<(String, Vec<String>)> {
        let claim = |action: Planned| match action.effect {
            Effect::Claim { request, machines, .. } => {
                let ids = machines.iter().map(|step| step.before.facts.instance_id.to_string());
                Some((request.before.id.run_id.to_string(), ids.collect()))
            }
            _ => None,
        };
        self.served().into_iter().filter_map(claim).collect()
    }

    /// Returns the class's intents to launch: how many machines, and for which request.
    pub(crate) fn intents(&mut self) -> Vec<(u32, Option<RequestKey>)> {
        let intent = |action: Planned| match action.effect {
            Effect::Intend(launch, _) => {
                Some((launch.count, launch.request.and_then(|id| id.request().cloned())))
            }
            _ => None,
        };
        self.served().into_iter().filter_map(intent).collect()
    }

    /// Observes the records that a plan's writes would store.
    pub(crate) fn apply(&mut self, actions: &[Planned]) {
        for change in actions.iter().flat_map(|action| action.effect.changes()) {
            match change {
                Change::Instance(step) => self.store(step),
                Change::Request(step) => self.store(step),
                Change::Launch(step) => self.store(step),
                Change::Pool(step) => self.store(step),
                Change::Born(instance) => drop(self.put(instance)),
                Change::Agent(agent) => drop(self.put(agent)),
            }
        }
    }

    fn store<T: Versioned>(&mut self, step: &Step<T>) {
        assert_eq!(step.after.version(), step.before.version() + 1);
        self.put(&step.after);
    }
}

/// Returns the effects of a plan.
pub(crate) fn effects(actions: &[Planned]) -> Vec<&Effect> {
    actions.iter().map(|action| &action.effect).collect()
}

/// Returns the note of the first of some actions.
pub(crate) fn note(actions: &[Planned]) -> Note {
    actions.first().and_then(Planned::note).expect("something is told").clone()
}

/// Returns the one write of a machine in a plan, with its note.
pub(crate) fn write(plan: &Plan) -> (Step<Instance>, Note) {
    match effects(&plan.actions)[..] {
        [Effect::Instance(step, _)] => (step.as_ref().clone(), note(&plan.actions)),
        _ => panic!("not one write of a machine: {plan:?}"),
    }
}

/// Returns the one write of a request in a plan, with its note.
pub(crate) fn answer(plan: &Plan) -> (Step<Request>, Note) {
    match effects(&plan.actions)[..] {
        [Effect::Request(step)] => (step.as_ref().clone(), note(&plan.actions)),
        _ => panic!("not one write of a request: {plan:?}"),
    }
}

/// Returns why a plan ends a machine; none when it does not.
pub(crate) fn ends(plan: &Plan) -> Option<Reason> {
    let write = match effects(&plan.actions)[..] {
        [Effect::Instance(step, _) | Effect::Silence(step, _) | Effect::Disown(step, _)] => step,
        _ => return None,
    };
    match write.after.life {
        Life::Terminated { reason, .. } => Some(reason),
        Life::Created { .. } | Life::Claimed { .. } | Life::Running { .. } | Life::Idle { .. } => None,
    }
}

/// Returns the runs in a list of claims.
pub(crate) fn runs(claims: &[(String, Vec<String>)]) -> Vec<&str> {
    claims.iter().map(|(run, _)| run.as_str()).collect()
}

/// When GitHub stopped giving jobs to the versions of 2026, as it reported on 2026-09-29; for the last it gives no
/// date.
pub(crate) const RUNNER_ENDS: [(&str, Option<&str>); 11] = [
    ("2.329.0", Some("2026-01-23T17:10:35Z")),
    ("2.330.0", Some("2026-03-13T18:34:13Z")),
    ("2.331.0", Some("2026-04-30T21:52:20Z")),
    ("2.332.0", Some("2026-05-25T15:23:35Z")),
    ("2.333.0", Some("2026-05-29T17:27:54Z")),
    ("2.333.1", Some("2026-06-30T15:52:45Z")),
    ("2.334.0", Some("2026-08-10T17:08:55Z")),
    ("2.335.0", Some("2026-08-14T16:59:37Z")),
    ("2.335.1", Some("2026-09-24T15:30:55Z")),
    ("2.336.0", Some("2026-11-05T08:04:55Z")),
    ("2.337.0", None),
];
