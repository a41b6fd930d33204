//! The yard as observed: the last image of every record, what this process learned beside the records, and the
//! indexes that keep the work of one change independent of how many records there are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use indexmap::IndexMap;
use jiff::Timestamp;

use crate::model::{
    Agent, ClassName, Counts, Instance, InstanceArn, InstanceFacts, InstanceId, Interruption,
    InterruptionAction, Launch, LaunchId, LaunchPhase, Life, Pool, PoolSpec, Reason, RecordId, Repository,
    Request, RequestKey, Slot, drift,
};
use crate::ports::{ComputeError, Launched, Machine, MachineState};

use super::beats::Beats;
use super::demand::{Free, Line, MachineGroup};
use super::observe::Former;
use super::offerings::{Offering, Rest, SpotLosses};
use super::under_way::UnderWay;
use super::unread::UnreadMachine;
use super::visits::visited;

/// What is judged at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    /// One machine.
    Instance(InstanceArn),
    /// One request.
    Request(RequestKey),
    /// One class: who gets which machine, and what is launched.
    Class(ClassName),
    /// One launch.
    Launch(LaunchId),
}

impl Unit {
    /// The request that a record names, if it names one.
    pub(super) fn of_request(id: &RecordId) -> Option<Self> {
        id.request().cloned().map(Self::Request)
    }
}

/// When an agent was last seen to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Its `heartbeatSeq` then.
    pub seq: u64,
    /// On the clock of successful reads.
    pub at: Duration,
}

/// A machine: its two records and what this process learned of it.
#[derive(Clone, Debug)]
pub struct Tracked {
    /// The instance record.
    pub instance: Instance,
    /// The agent record.
    pub agent: Option<Agent>,
    /// The key its agent showed at first, while the instance record has none.
    pub(super) first_key: Option<String>,
    /// When the agent was last seen to speak.
    pub beat: Option<Beat>,
    /// The `heartbeatSeq` that a strong read confirmed after the agent fell silent.
    pub silent: Option<u64>,
    /// When its maker was last asked to end it, and how often it was.
    pub ended: Option<(Duration, u32)>,
    /// Where its maker says it stands; `Some(None)`: its maker does not know it.
    pub stands: Option<Option<MachineState>>,
    /// When its maker was last asked where it stands, and how often it was since it was asked to end it.
    pub asked: Option<(Duration, u32)>,
    /// Whether the last list of machines did not show it, although it should.
    pub missing: bool,
    /// When it was last announced in the pool it is in.
    pub announced: Option<Duration>,
    /// Whether its runner was looked for at GitHub after its end.
    pub swept: bool,
    /// What EC2 said of it from outside; its agent may say so too.
    pub notice: Option<Interruption>,
    /// Whether EC2 said that it stops or ends, and was not asked about it since.
    pub changed: bool,
    /// Whether somebody else brought its deadline in the pool nearer.
    pub(super) shortened: bool,
    /// When its deadline was seen to be set by a clock ahead of ours, on the monotonic clock; none when it was set by one
    /// that is not, or stood there before.
    pub(super) set_ahead: Option<Duration>,
    /// When its two records were last seen to be there, on the monotonic clock.
    pub(super) there: (Duration, Duration),
}

impl Tracked {
    pub(super) fn new(instance: Instance) -> Self {
        Self {
            instance,
            agent: None,
            first_key: None,
            beat: None,
            silent: None,
            ended: None,
            stands: None,
            asked: None,
            missing: false,
            announced: None,
            swept: false,
            notice: None,
            changed: false,
            shortened: false,
            set_ahead: None,
            there: (Duration::ZERO, Duration::ZERO),
        }
    }

    /// Whether EC2 takes it back, however that is known: the end beats the risk, the earlier beats the later.
    pub fn interruption(&self) -> Option<&Interruption> {
        let told = self.agent.as_ref().and_then(|agent| agent.interruption.as_ref());
        told.into_iter().chain(self.notice.as_ref()).min_by_key(|notice| Self::weight(notice))
    }

    /// Of two notices of one machine the one that counts.
    pub(super) fn graver(one: Interruption, other: Interruption) -> Interruption {
        if Self::weight(&other) < Self::weight(&one) { other } else { one }
    }

    /// When its agent last spoke, as far as that says something of the machine: it is live, has spoken, and its record
    /// can be read.
    pub(super) fn spoke_at(&self) -> Option<Duration> {
        let speaks = self.instance.state().live() && self.agent.is_some();
        self.beat.filter(|beat| speaks && beat.seq > 0).map(|beat| beat.at)
    }

    fn weight(notice: &Interruption) -> (u8, Timestamp) {
        match notice.action {
            InterruptionAction::Terminate | InterruptionAction::Stop => (0, notice.at),
            InterruptionAction::Rebalance => (1, notice.at),
        }
    }

    /// Whether its end is certain and near, and not only likely.
    pub(super) fn doomed(&self) -> bool {
        self.interruption().is_some_and(|notice| match notice.action {
            InterruptionAction::Terminate | InterruptionAction::Stop => true,
            InterruptionAction::Rebalance => false,
        })
    }
}

/// A request: its record and when this process saw it.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// The record.
    pub(super) request: Request,
    /// When it was last seen to change, on the monotonic clock.
    pub(super) touched: Duration,
    /// When it was last seen to be there.
    pub(super) there: Duration,
    /// Why GitHub does not know its run, once that is certain.
    pub(super) refused: Option<String>,
}

/// What a launch brought when it was last asked, as yet unrecorded.
#[derive(Clone, Debug)]
pub struct Ordered {
    /// The answer.
    pub answer: Result<Launched, ComputeError>,
    /// When, on the monotonic clock.
    pub at: Duration,
    /// How often it was asked.
    pub times: u32,
}

/// A launch: its record and what this process learned of it.
#[derive(Clone, Debug)]
pub struct TrackedLaunch {
    /// The record.
    pub launch: Launch,
    /// The last answer.
    pub ordered: Option<Ordered>,
    /// When it was first seen.
    pub since: Duration,
}

/// What holds a class's launches back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Brake {
    /// Failures in a row.
    pub failures: u32,
    /// Nothing is launched before this moment.
    pub until: Duration,
}

/// A class: its pool and its indexes.
#[derive(Clone, Debug, Default)]
pub struct Class {
    /// The pool record.
    pub pool: Option<Pool>,
    /// Machines that are not terminated, by state.
    pub counts: Counts,
    /// Warm machines that still boot.
    pub warm_created: u32,
    /// Machines being cleaned.
    pub cleaning: u32,
    /// Machines whose records cannot be read, and do not say that they ended.
    pub(super) veiled: u32,
    /// Pooled machines, the first to expire first.
    pub pooled: BTreeSet<(Timestamp, InstanceArn)>,
    /// Pooled machines, the oldest first.
    pub(super) ages: BTreeSet<(Timestamp, InstanceArn)>,
    /// Pooled machines whose time is over whatever their age: used up, or a person asked for their end.
    pub(super) worn: BTreeSet<InstanceArn>,
    /// The pooled machines by what requests choose by.
    pub(super) free: BTreeMap<MachineGroup, Free>,
    /// Requests that lack machines.
    pub(super) line: Line,
    /// What its launches may still add to its machines.
    pub under_way: UnderWay,
    /// What holds launches back after failures to get or boot machines.
    pub brake: Brake,
    /// Why its last launch was refused, until one is not.
    pub refusal: Option<String>,
    /// When its queue was last asked, on the monotonic clock.
    pub received: Option<Duration>,
    /// Machines that the queue says are free.
    pub hints: Vec<InstanceId>,
    /// When its pool's status was last written, on the monotonic clock.
    pub reported: Option<Duration>,
    /// When the agents of its live machines last spoke.
    pub(super) beats: Beats,
    /// Live machines that the last list of machines did not show, the oldest first.
    pub(super) missing: BTreeSet<(Timestamp, InstanceArn)>,
    /// In which way its machines are launched now.
    pub(super) digest: Option<String>,
    /// Pooled machines that were launched in another way, the oldest first.
    pub(super) drifted: BTreeSet<(Timestamp, InstanceArn)>,
    /// Machines that end for that and are not gone yet.
    pub(super) departing: BTreeSet<InstanceArn>,
    /// What there was none of lately.
    pub(super) offerings: BTreeMap<Offering, Rest>,
    /// Live spot machines.
    pub(super) spot_live: u32,
    /// What became of its spot machines lately.
    pub(super) spot: SpotLosses,
    /// Requests for which spot machines could not be had, with the launches that say so.
    pub(super) failed_spot: BTreeMap<RecordId, BTreeSet<LaunchId>>,
}

impl Class {
    /// Machines of the class that are not terminated.
    pub fn live(&self) -> u32 {
        self.counts.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// How many machines recorded before a moment the last list of machines did not show, when they are too many to
    /// believe it: such a list is itself in doubt, and nothing is ended because of it.
    pub(super) fn unbelieved(&self, before: Timestamp) -> Option<u32> {
        let most = believable(self.live());
        if self.missing.len() as u32 <= most {
            return None;
        }
        let gone = self.missing.iter().take_while(|(created_at, _)| *created_at <= before).count() as u32;
        (gone > most).then_some(gone)
    }

    /// Puts a pooled machine into its group, or takes it out.
    pub(super) fn free_is(&mut self, instance: &Instance, place: &(Timestamp, InstanceArn), add: bool) {
        let group = MachineGroup::of(instance);
        if add {
            self.free.entry(group).or_default().insert(place.clone());
        } else if let Some(free) = self.free.get_mut(&group) {
            free.remove(place);
            if free.is_empty() {
                self.free.remove(&group);
            }
        }
    }

    /// Whether a machine's time is over whatever its age.
    pub(super) fn worn_out(&self, instance: &Instance) -> bool {
        instance.expired_by.is_some() || self.pool.as_ref().is_some_and(|pool| pool.spec.used_up(instance))
    }

    /// Why a machine is not what its class wants now, if it was launched in another way.
    pub(super) fn drift(&self, instance: &Instance) -> Option<&'static str> {
        let spec = &self.pool.as_ref()?.spec;
        let facts = &instance.facts;
        drift(facts.launch_digest.as_deref(), self.digest.as_deref()?, spec.fits(facts), &spec.launch)
    }

    /// Machines it has or may soon have: what `max` bounds.
    pub(crate) fn taken(&self) -> u32 {
        self.live().saturating_add(self.under_way.total()).saturating_add(self.veiled)
    }

    /// The pooled machines that are older than the class allows, or whose time is over otherwise.
    pub(super) fn retiring(&self, spec: &PoolSpec, now: Timestamp) -> impl Iterator<Item = &InstanceArn> {
        let born = now.saturating_sub(Duration::from_secs(spec.max_age_seconds)).unwrap_or(Timestamp::MIN);
        let old =
            self.ages.iter().inspect(|_| visited()).take_while(move |(created_at, _)| *created_at <= born);
        old.map(|(_, arn)| arn).filter(|arn| !self.worn.contains(*arn)).chain(&self.worn)
    }

    /// Whether spot machines could not be had for a request.
    pub(super) fn scarce(&self, request: &RequestKey) -> bool {
        self.failed_spot.contains_key(&request.into())
    }
}

/// Everything observed. What is looked up by name for every change is hashed and boxed: a lookup touches as little memory
/// among a million records as among a thousand, and what is decided never depends on the order in which these are walked.
#[derive(Clone, Debug, Default)]
pub struct Yard {
    pub(super) instances: IndexMap<InstanceArn, Box<Tracked>>,
    pub(super) ids: IndexMap<InstanceId, InstanceArn>,
    pub(super) requests: IndexMap<RequestKey, Box<Asked>>,
    pub(super) classes: BTreeMap<ClassName, Class>,
    pub(super) launches: BTreeMap<LaunchId, TrackedLaunch>,
    /// Agent records whose instance record has not been seen.
    pub(super) strays: BTreeMap<InstanceArn, Agent>,
    /// Records that a strong read did not find, and when.
    pub(super) absent: BTreeMap<RecordId, Duration>,
    /// How many requests of a repository are taken on and not over, by its name in lower case.
    pub(super) open: BTreeMap<String, u32>,
    /// What stood under keys before it was removed, or another record took its place.
    pub(super) former: BTreeMap<RecordId, Former>,
    /// Requests of one run and name, by attempt.
    pub(super) attempts: BTreeMap<(String, String), BTreeSet<(u32, RequestKey)>>,
    /// Requests by their owner and the label of their runners, both without regard to case.
    pub(super) labels: BTreeMap<(String, String), BTreeSet<RequestKey>>,
    /// Machines of ours that have no record: since when they are known.
    pub(super) unrecorded: BTreeMap<InstanceArn, (Machine, Duration)>,
    /// Records that cannot be read, and why.
    pub unreadable: BTreeMap<RecordId, String>,
    /// Machines whose records cannot be read.
    pub(super) unread_machines: BTreeMap<InstanceId, UnreadMachine>,
    /// Records of a newer program.
    pub newer: BTreeMap<RecordId, u64>,
    /// What the actions under way here hold: nobody else here plans for it.
    pub busy: BTreeSet<Slot>,
    /// Records of which a claim or a request's write failed, and until when, on the monotonic clock, they are left alone.
    pub resting: BTreeMap<RecordId, Duration>,
    /// Actions that fail again and again for the same reason: by unit, kind and whom they are about the class that says
    /// so, and a sentence.
    pub stuck: BTreeMap<(Unit, &'static str, Unit), (ClassName, String)>,
    /// Whether GitHub did not answer when it was last asked.
    pub github_down: bool,
    /// When the last complete list of the table was begun, on the monotonic clock.
    pub listed: Option<Duration>,
    /// When each record that stands nowhere else here was last seen to be there, on the monotonic clock.
    pub(super) there: BTreeMap<RecordId, Duration>,
}

/// A machine that a request's record lists and that it holds no more.
#[derive(Clone, Copy, Debug)]
pub struct Lost<'a> {
    /// Which.
    pub id: &'a InstanceId,
    /// Why it ended, if it did.
    pub reason: Option<Reason>,
    /// Whether it is still being cleaned after this request.
    pub out: bool,
}

/// What a request holds, as far as it can be proved.
#[derive(Debug, Default)]
pub struct Holding<'a> {
    /// Machines its record lists that it may still hold.
    pub held: Vec<&'a InstanceId>,
    /// How many of them run.
    pub running: u32,
    /// Machines its record lists that are proved to be its no more.
    pub lost: Vec<Lost<'a>>,
    /// Machines its record lists that are neither pooled nor ended.
    pub out: u32,
    /// Machines it may hold, or that may be cleaned after it, whose records cannot be read, with the last deadline known
    /// of each.
    pub unread: Vec<(&'a InstanceId, Option<Timestamp>)>,
}

impl Yard {
    /// A machine by its ARN.
    pub fn instance(&self, arn: &InstanceArn) -> Option<&Tracked> {
        visited();
        self.instances.get(arn).map(Box::as_ref)
    }

    /// A machine by its id.
    pub fn by_id(&self, id: &InstanceId) -> Option<&Tracked> {
        visited();
        self.ids.get(id).and_then(|arn| self.instances.get(arn)).map(Box::as_ref)
    }

    /// Every machine.
    pub fn instances(&self) -> impl Iterator<Item = &Tracked> {
        self.instances.values().map(Box::as_ref)
    }

    /// A request by its key.
    pub fn request(&self, key: &RequestKey) -> Option<&Request> {
        visited();
        self.requests.get(key).map(|asked| &asked.request)
    }

    /// The request that another record names.
    pub fn request_named(&self, id: &RecordId) -> Option<&Request> {
        self.request(id.request()?)
    }

    /// Every request.
    pub fn requests(&self) -> impl Iterator<Item = (&RequestKey, &Request)> {
        self.requests.iter().map(|(key, asked)| (key, &asked.request))
    }

    /// A class.
    pub fn class(&self, name: &ClassName) -> Option<&Class> {
        self.classes.get(name)
    }

    /// Every class that has a pool or a machine.
    pub fn classes(&self) -> impl Iterator<Item = (&ClassName, &Class)> {
        self.classes.iter()
    }

    /// A class's pool.
    pub fn pool(&self, name: &ClassName) -> Option<&Pool> {
        self.classes.get(name).and_then(|class| class.pool.as_ref())
    }

    /// How many machines of a class stand in no record, nor the launch that brought them, when they are too many to
    /// believe it: a table that is empty or was set back to an earlier day is no reason to end what runs.
    pub(super) fn unbelieved_strangers(&self, class: &ClassName) -> Option<usize> {
        let live = self.classes.get(class).map_or(0, Class::live);
        let most = believable(live) as usize;
        let strange = |machine: &Machine| {
            let known = machine.launch.as_ref().is_some_and(|id| self.launches.contains_key(id));
            machine.class.as_ref() == Some(class) && !known
        };
        let strangers =
            self.unrecorded.values().filter(|(machine, _)| strange(machine)).take(most + 1).count();
        (strangers > most).then_some(strangers)
    }

    /// A launch.
    pub fn launch(&self, id: &LaunchId) -> Option<&TrackedLaunch> {
        visited();
        self.launches.get(id)
    }

    /// How many machines are ours and have no record, as they were last listed.
    pub fn orphans(&self) -> usize {
        self.unrecorded.len()
    }

    /// The class of a machine, with a record or without.
    pub fn class_of_machine(&self, arn: &InstanceArn) -> Option<&ClassName> {
        let recorded = self.instances.get(arn).map(|tracked| &tracked.instance.facts.resource_class);
        recorded.or_else(|| self.unrecorded.get(arn).and_then(|(machine, _)| machine.class.as_ref()))
    }

    /// What is stuck in a class: how many actions, and a sentence about the first.
    pub(super) fn stuck_in(&self, class: &ClassName) -> Option<(usize, &str)> {
        let stuck = self.stuck.values().filter(|(of, _)| of == class);
        // One action may be about several, and is said once.
        let told: BTreeSet<&str> = stuck.map(|(_, told)| told.as_str()).collect();
        told.first().map(|first| (told.len(), *first))
    }

    /// Whether an action under way here holds a record, or something else of which there is one.
    pub fn is_busy(&self, slot: impl Into<Slot>) -> bool {
        self.busy.contains(&slot.into())
    }

    /// Until when a record is left alone after a failed write, if it is.
    pub(super) fn rests(&self, record: impl Into<RecordId>, now: Duration) -> Option<Duration> {
        self.resting.get(&record.into()).copied().filter(|until| now < *until)
    }

    /// How many requests of a repository are taken on and not over.
    pub(super) fn open_requests(&self, repository: &Repository) -> u32 {
        self.open.get(&repository.as_str().to_ascii_lowercase()).copied().unwrap_or(0)
    }

    /// Whether nothing remains to be done at once about what EC2 said of a machine: it is not ours, has ended, or serves
    /// a run that a mere risk does not disturb.
    pub fn settled_notice(&self, id: &InstanceId) -> bool {
        let Some(tracked) = self.by_id(id) else { return true };
        let waits = tracked.changed || tracked.doomed();
        match tracked.instance.life {
            Life::Terminated { .. } => true,
            Life::Created { run: None } | Life::Idle { pooled_at: Some(_) } => {
                !waits && tracked.interruption().is_none()
            }
            Life::Created { run: Some(_) }
            | Life::Claimed { .. }
            | Life::Running { .. }
            | Life::Idle { pooled_at: None } => !waits,
        }
    }

    /// Every unit there is.
    pub fn units(&self) -> BTreeSet<Unit> {
        let instances = self.instances.keys().cloned().map(Unit::Instance);
        let unrecorded = self.unrecorded.keys().cloned().map(Unit::Instance);
        let requests = self.requests.keys().cloned().map(Unit::Request);
        let classes = self.classes.keys().cloned().map(Unit::Class);
        let launches = self.launches.keys().cloned().map(Unit::Launch);
        instances.chain(unrecorded).chain(requests).chain(classes).chain(launches).collect()
    }

    /// The class a request asks for, if its name can be one.
    pub fn class_of(request: &Request) -> Option<ClassName> {
        ClassName::parse(&request.intent.resource_class).ok()
    }

    /// Whether a request takes a machine of this EC2 type.
    pub(super) fn accepts_type(&self, request: &Request, instance_type: &str) -> bool {
        let of_class = || Self::class_of(request).and_then(|class| self.pool(&class));
        match &request.intent.allowed_instance_types {
            Some(types) => types.accept(instance_type),
            None => of_class().is_none_or(|pool| pool.spec.allowed_instance_types.accept(instance_type)),
        }
    }

    /// Whether a machine is of a kind that its class keeps.
    pub(super) fn class_accepts(&self, facts: &InstanceFacts) -> bool {
        self.pool(&facts.resource_class).is_none_or(|pool| pool.spec.fits(facts))
    }

    /// What a request holds. A machine is proved lost only by a record at least as new as the claim: an older image
    /// says nothing, and a machine not seen yet is not lost.
    pub fn holding<'a>(&'a self, key: &RequestKey, request: &'a Request) -> Holding<'a> {
        let mut holding = Holding::default();
        for id in &request.status.instances {
            let claimed = request.status.claims.get(id);
            let version = claimed.map_or(0, crate::model::ClaimId::version);
            let Some(tracked) = self.by_id(id) else {
                match self.unread_machines.get(id) {
                    // Nothing is known of it: it counts as held, and a release accounts for it on its own.
                    Some(unread) => {
                        holding.held.push(id);
                        holding.unread.push((id, unread.deadline));
                    }
                    None if self.proved_missing(key) => {
                        holding.lost.push(Lost { id, reason: None, out: false });
                    }
                    None => {
                        holding.held.push(id);
                        holding.out += 1;
                    }
                }
                continue;
            };
            let instance = &tracked.instance;
            let claim = instance.claim.as_ref();
            let ours = claim.is_some_and(|claim| {
                claim.request.request() == Some(key) && claimed.is_none_or(|id| *id == claim.id)
            });
            if (ours && instance.run().is_some()) || instance.version < version {
                holding.held.push(id);
                holding.out += 1;
                holding.running += u32::from(ours && matches!(instance.life, Life::Running { .. }));
                continue;
            }
            let (reason, out) = match instance.life {
                Life::Terminated { reason, .. } => (Some(reason), false),
                Life::Idle { pooled_at } => (None, ours && pooled_at.is_none()),
                Life::Created { .. } | Life::Claimed { .. } | Life::Running { .. } => (None, false),
            };
            holding.out += u32::from(out);
            holding.lost.push(Lost { id, reason, out });
        }
        if !self.unread_machines.is_empty() {
            let status = &request.status;
            let off = status.served.iter().filter(|id| !status.instances.contains(id));
            let unread = off.filter_map(|id| Some((id, self.unread_machines.get(id)?)));
            let ours =
                unread.filter(|(_, unread)| unread.held_by.as_ref().and_then(RecordId::request) == Some(key));
            holding.unread.extend(ours.map(|(id, unread)| (id, unread.deadline)));
        }
        holding
    }

    /// Whether a record is there that this program must leave alone.
    pub(super) fn hands_off(&self, key: &RecordId) -> bool {
        self.newer.contains_key(key) || self.unreadable.contains_key(key)
    }

    /// How many machines that a request held and lists no more are still neither pooled nor ended.
    pub(super) fn leaving(&self, key: &RequestKey, request: &Request) -> u32 {
        let status = &request.status;
        let off = status.served.iter().filter(|id| !status.instances.contains(id));
        let out = off.filter_map(|id| self.by_id(id)).filter(|tracked| {
            let ours =
                tracked.instance.claim.as_ref().is_some_and(|claim| claim.request.request() == Some(key));
            ours && match tracked.instance.life {
                Life::Created { .. } | Life::Claimed { .. } | Life::Running { .. } => true,
                Life::Idle { pooled_at } => pooled_at.is_none(),
                Life::Terminated { .. } => false,
            }
        });
        out.count() as u32
    }

    /// Whether a machine that a request lists and that was not seen is really not there: a complete list of the table
    /// was begun after the request was last seen to change.
    fn proved_missing(&self, request: &RequestKey) -> bool {
        match (self.listed, self.requests.get(request)) {
            (Some(listed), Some(asked)) => listed > asked.touched,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }

    /// Whether a newer attempt of the same run asks under the same name.
    pub(super) fn superseded(&self, id: &RequestKey) -> Option<u32> {
        let (newest, _) = self.attempts.get(&line_of(id))?.last()?;
        (*newest > id.attempt).then_some(*newest)
    }

    /// The requests whose runners would have a request's label and that are no attempts of the same: of another run or
    /// name, or of the same under a key that spells the repository in another way.
    pub(super) fn same_label(&self, request: &Request) -> impl Iterator<Item = &Request> {
        let line = line_of(&request.id);
        let same = self.labels.get(&label_of(request)).into_iter().flatten();
        let others = same.filter_map(|key| self.request(key)).filter(|other| other.id != request.id);
        others.filter(move |other| other.id.attempt == request.id.attempt || line_of(&other.id) != line)
    }

    /// Whether a launch is over.
    pub(super) const fn is_open(launch: &Launch) -> bool {
        match launch.phase {
            LaunchPhase::Intent => true,
            LaunchPhase::Bound | LaunchPhase::Failed => false,
        }
    }
}

/// Of so many live machines of a class, how many may be gone, or be nobody's, at once before what says so is itself in
/// doubt.
pub(super) const fn believable(live: u32) -> u32 {
    let most = live.saturating_mul(3) / 10;
    if most > 3 { most } else { 3 }
}

/// What requests of one run and name have in common.
pub(super) fn line_of(id: &RequestKey) -> (String, String) {
    (format!("{}#{}", id.repository.folded(), id.run_id), id.name.to_string())
}

/// What requests have in common whose runners GitHub cannot tell apart.
pub(super) fn label_of(request: &Request) -> (String, String) {
    (request.id.repository.owner().to_ascii_lowercase(), request.label().to_ascii_lowercase())
}

#[cfg(test)]
mod tests;
