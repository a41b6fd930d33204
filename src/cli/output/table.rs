//! Formats records as tables: plain columns, one line per record. Ids, times and names are never broken: a line may
//! exceed the width, and only a message is cut to the terminal's width. In a pipe nothing is cut.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::columns::lined_up;
use super::screen::Screen;
use crate::common::duration;
use crate::output::format::{Format, plain};
use runyard_core::decide::effective;
use runyard_core::explain::remark;
use runyard_core::model::{
    Agent, AttributeValue, ClaimId, ConditionType, Counts, Instance, InstanceId, Item, JobReport, Launch,
    Life, Phase, Pool, Queue, Reading, Record, RecordId, Request, State, Unreadable, read,
};

/// The table of one kind of record: the headings, the headings that only `-o wide` shows, and the cells of a record.
pub(crate) struct Columns<T> {
    heads: &'static [&'static str],
    wide: &'static [&'static str],
    cells: fn(&T, &RowContext<'_>) -> Vec<String>,
}

/// What a row may need besides its own record.
pub(crate) struct RowContext<'a> {
    /// The current time.
    pub(crate) now: Timestamp,
    /// Other records of the table, for cells that combine several records.
    pub(crate) others: &'a [Item],
    /// The machines of each class by state, if the table was read: a pool's own counts are up to 10 s old.
    pub(crate) machines: Option<&'a BTreeMap<String, Counts>>,
}

/// The columns of machines.
pub(crate) const INSTANCES: Columns<Instance> = Columns {
    heads: &[
        "INSTANCE",
        "CLASS",
        "STATE",
        "RUN",
        "IN STATE",
        "DEADLINE",
        "TYPE",
        "ZONE",
        "USAGE",
        "USES",
        "CLAIM",
        "LAUNCH",
        "SIGNAL",
        "HEARTBEAT",
        "KEPT",
        "JOB",
    ],
    wide: &["TYPE", "ZONE", "USAGE", "USES", "CLAIM", "LAUNCH", "SIGNAL", "HEARTBEAT", "KEPT", "JOB"],
    cells: |instance, context| {
        let facts = &instance.facts;
        let agent = context.agent(&facts.instance_arn.to_string());
        vec![
            facts.instance_id.to_string(),
            facts.resource_class.to_string(),
            state(instance),
            instance.run().map(ToString::to_string).unwrap_or_default(),
            age(instance.state_since, context.now),
            instance.threshold.map(|t| distance(t.at, context.now)).unwrap_or_default(),
            facts.instance_type.clone(),
            facts.availability_zone.clone(),
            facts.usage_class.to_string(),
            instance.uses.to_string(),
            instance.claim.as_ref().map(|claim| claim.id.to_string()).unwrap_or_default(),
            facts.launch_id.as_ref().map(ToString::to_string).unwrap_or_default(),
            agent.as_ref().and_then(|a| a.signal).map(|s| s.to_string()).unwrap_or_default(),
            agent.as_ref().and_then(|a| a.heartbeat_at).map(|at| age(at, context.now)).unwrap_or_default(),
            agent.as_ref().map(kept).unwrap_or_default(),
            agent
                .zip(instance.claim.as_ref())
                .and_then(|(agent, claim)| agent.job_of(&claim.id).map(job))
                .unwrap_or_default(),
        ]
    },
};

/// The columns of requests.
pub(crate) const REQUESTS: Columns<Request> = Columns {
    heads: &[
        "REPOSITORY",
        "RUN",
        "NAME",
        "ATTEMPT",
        "CLASS",
        "PHASE",
        "READY",
        "AGE",
        "MIN",
        "USAGE",
        "DEADLINE",
        "INSTANCES",
        "JOB",
        "MESSAGE",
    ],
    wide: &["MIN", "USAGE", "DEADLINE", "INSTANCES", "JOB"],
    cells: |request, context| {
        let (id, intent, status) = (&request.id, &request.intent, &request.status);
        let born = status.accepted_at.or(intent.created_at);
        vec![
            id.repository.to_string(),
            id.run_id.to_string(),
            id.name.to_string(),
            id.attempt.to_string(),
            intent.resource_class.clone(),
            phase(request),
            format!("{}/{}", status.instances.len(), intent.count),
            born.map(|at| age(at, context.now)).unwrap_or_default(),
            intent.min_count.to_string(),
            intent.usage_class.map(|u| u.to_string()).unwrap_or_default(),
            status.deadline.map(|at| distance(at, context.now)).unwrap_or_default(),
            status.instances.iter().map(|id| id.as_str()).collect::<Vec<_>>().join(" "),
            context.jobs(request),
            status.message.clone(),
        ]
    },
};

/// The columns of pools.
pub(crate) const POOLS: Columns<Pool> = Columns {
    heads: &[
        "CLASS",
        "DESIRED",
        "MIN",
        "MAX",
        "IDLE",
        "LIVE",
        "PAUSED",
        "CPU",
        "MEMORY",
        "USAGE",
        "REUSE",
        "REGISTRATION",
        "LABELS",
        "QUEUE",
        "OVERRIDE",
        "MESSAGE",
    ],
    wide: &["CPU", "MEMORY", "USAGE", "REUSE", "REGISTRATION", "LABELS", "QUEUE", "OVERRIDE"],
    cells: |pool, context| {
        let (spec, none) = (&pool.spec, Counts::new());
        let counts = match context.machines {
            Some(machines) => machines.get(spec.resource_class.as_str()).unwrap_or(&none),
            None => &pool.status.counts,
        };
        let scale = pool.scale.as_ref().filter(|o| o.until.is_none_or(|until| until > context.now));
        let live: u32 = counts.iter().filter(|(state, _)| state.live()).map(|(_, count)| count).sum();
        vec![
            spec.resource_class.to_string(),
            effective(pool, context.now).desired.to_string(),
            spec.min.to_string(),
            spec.max.to_string(),
            counts.get(&State::Idle).copied().unwrap_or_default().to_string(),
            live.to_string(),
            if spec.paused { "yes".into() } else { "no".into() },
            spec.cpu.to_string(),
            format!("{} MiB", spec.mmem),
            spec.usage_class.to_string(),
            spec.reuse_within.to_string(),
            spec.registration_mode.to_string(),
            spec.label_mode.to_string(),
            spec.queue.as_ref().map(Queue::told).unwrap_or_default(),
            scale.map(|o| format!("{} by {}", o.desired, o.by)).unwrap_or_default(),
            remark(&pool.status.message).to_owned(),
        ]
    },
};

/// The columns of launches.
pub(crate) const LAUNCHES: Columns<Launch> = Columns {
    heads: &["LAUNCH", "CLASS", "COUNT", "PHASE", "AGE", "FOR", "ATTEMPT", "USAGE", "INSTANCES", "MESSAGE"],
    wide: &["ATTEMPT", "USAGE", "INSTANCES"],
    cells: |launch, context| {
        let request = launch.request.as_ref().and_then(RecordId::request);
        vec![
            launch.launch_id.to_string(),
            launch.resource_class.to_string(),
            launch.count.to_string(),
            launch.phase.to_string(),
            age(launch.created_at, context.now),
            request.map_or_else(|| "warm".into(), |id| format!("{}/{}/{}", id.run_id, id.name, id.attempt)),
            launch.attempt.to_string(),
            launch.usage_class.to_string(),
            launch.instances.iter().map(|id| id.as_str()).collect::<Vec<_>>().join(" "),
            launch.message.clone(),
        ]
    },
};

/// Formats what a machine keeps, for example `cargo:acme/web`.
fn kept(agent: &Agent) -> String {
    let name = |key: &str| key.split('#').next().unwrap_or_default().to_owned();
    let each = agent.kept.iter().map(|(key, kept)| format!("{}:{}", name(key), kept.repository));
    each.collect::<Vec<_>>().join(" ")
}

/// Formats the job that a slot's runner has or had, for example `acme/web 41/1 build`.
fn job(job: &JobReport) -> String {
    format!("{} {}/{} {}", job.repository, job.run_id, job.attempt, job.name)
}

impl RowContext<'_> {
    /// Formats the jobs of a slot's machines; after those, the one that its record keeps.
    fn jobs(&self, request: &Request) -> String {
        if !request.is_slot() {
            return String::new();
        }
        let job_on = |(id, claim): (&InstanceId, &ClaimId)| {
            let of_machine = |item: &&Item| match RecordId::of(item) {
                Some(RecordId::Agent(arn)) => arn.instance_id() == id.as_str(),
                Some(_) | None => false,
            };
            match read::<Agent>(self.others.iter().find(of_machine)?) {
                Reading::Record(agent) => agent.job_of(claim).map(job),
                Reading::Newer { .. } | Reading::Unreadable(_) => None,
            }
        };
        let told: Vec<String> = request.status.claims.iter().filter_map(job_on).collect();
        let kept = request.status.job.as_ref().filter(|_| told.is_empty()).map(job);
        told.into_iter().chain(kept).collect::<Vec<_>>().join(", ")
    }

    fn agent(&self, arn: &str) -> Option<Agent> {
        let pk = format!("agent#{arn}");
        let item = self
            .others
            .iter()
            .find(|item| matches!(item.get("pk"), Some(AttributeValue::S(s)) if *s == pk))?;
        match read(item) {
            Reading::Record(agent) => Some(agent),
            Reading::Newer { .. } | Reading::Unreadable(_) => None,
        }
    }
}

impl<T: Record> Columns<T> {
    /// Formats the table of these items; an unreadable item shows its key and its problem instead of its cells.
    pub(crate) fn table(&self, screen: &Screen, items: &[&Item], context: &RowContext<'_>) -> String {
        let wide = screen.format == Format::Wide;
        let shown: Vec<bool> = self.heads.iter().map(|head| wide || !self.wide.contains(head)).collect();
        let mut rows = Vec::new();
        let mut odd = Vec::new();
        for item in items {
            match read::<T>(item) {
                Reading::Record(record) => {
                    let cells = (self.cells)(&record, context).into_iter().zip(&shown);
                    rows.push(cells.filter(|(_, shown)| **shown).map(|(cell, _)| cell).collect());
                }
                Reading::Newer { schema } => {
                    odd.push((key_of(item), format!("written by a newer runyard (schema {schema})")))
                }
                Reading::Unreadable(Unreadable { key, problem }) => odd.push((key.to_string(), problem)),
            }
        }
        let mut text = String::new();
        if !rows.is_empty() {
            let heads: Vec<&str> =
                self.heads.iter().zip(&shown).filter(|(_, shown)| **shown).map(|(head, _)| *head).collect();
            text = columns(screen, &heads, rows);
        }
        for (key, problem) in odd {
            text.push_str(&format!("unreadable: {}: {}\n", plain(&key), plain(&problem)));
        }
        text
    }
}

fn key_of(item: &Item) -> String {
    RecordId::of(item).map(|key| key.to_string()).unwrap_or_default()
}

/// Formats rows under headings.
pub(crate) fn columns(screen: &Screen, heads: &[&str], rows: Vec<Vec<String>>) -> String {
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    let first = screen.headed.then(|| heads.clone());
    lined_up(screen.width, &heads, first.into_iter().chain(rows).collect())
}

/// Formats rows under headings for output that is indented by two columns.
pub(crate) fn indented(screen: &Screen, heads: &[&str], rows: Vec<Vec<String>>) -> String {
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    let rows = std::iter::once(heads.clone()).chain(rows).collect();
    lined_up(screen.width.map(|width| width.saturating_sub(2)), &heads, rows)
}

/// Formats further rows without headings, for a table that continues.
pub(crate) fn more_columns(screen: &Screen, heads: &[&str], rows: Vec<Vec<String>>) -> String {
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    lined_up(screen.width, &heads, rows)
}

/// Formats the phase of a request, and marks a request that has fewer machines than it should have.
fn phase(request: &Request) -> String {
    let mut conditions = request.status.conditions.iter();
    let degraded = conditions.any(|one| one.condition_type == ConditionType::Degraded && one.status);
    match request.phase() {
        Phase::Ready if degraded => "Ready, degraded".into(),
        phase => phase.to_string(),
    }
}

/// Formats the state of a machine; an idle one shows whether it is pooled or held.
pub(crate) fn state(instance: &Instance) -> String {
    match &instance.life {
        Life::Idle { pooled_at: Some(_) } => "idle, pooled".into(),
        Life::Idle { pooled_at: None } if instance.hold.is_some() => "idle, held".into(),
        Life::Idle { pooled_at: None } => "idle, cleaning".into(),
        Life::Terminated { reason, gone_at: Some(_) } => format!("terminated, {reason}, gone"),
        Life::Terminated { reason, gone_at: None } => format!("terminated, {reason}"),
        Life::Created { .. } | Life::Claimed { .. } | Life::Running { .. } => instance.state().to_string(),
    }
}

/// Formats the time since `at`.
pub(crate) fn age(at: Timestamp, now: Timestamp) -> String {
    duration::show(now.duration_since(at).try_into().unwrap_or_default())
}

/// Formats the time until `at`, or since `at` if it is over.
pub(crate) fn distance(at: Timestamp, now: Timestamp) -> String {
    if at >= now { format!("in {}", age(now, at)) } else { format!("{} ago", age(at, now)) }
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr as _;

    use super::*;
    use crate::output::columns::LEAST;

    const HEADS: &[&str] = &["INSTANCE", "CLASS", "AT", "MESSAGE"];

    fn shown(width: Option<usize>) -> String {
        let row = |id: &str, message: &str| {
            [id, "linux-x64", "2026-01-01T00:00:00Z", message].map(str::to_owned).to_vec()
        };
        let rows = vec![
            row("i-06979afac7f1aaae7", "3 of 6 machines claimed, because class linux-x64 is at its max of 8"),
            row("i-1", "ready"),
        ];
        let screen = Screen::of_width(width);
        columns(&screen, HEADS, rows)
    }

    #[test]
    fn only_the_message_is_cut_to_the_width_of_a_terminal() {
        let at = |width| shown(Some(width));
        let head = "INSTANCE             CLASS      AT                    MESSAGE\n";
        let short = "i-1                  linux-x64  2026-01-01T00:00:00Z  ready\n";
        let long = "i-06979afac7f1aaae7  linux-x64  2026-01-01T00:00:00Z  ";
        assert_eq!(at(60), format!("{head}{long}3 of 6 machines cla…\n{short}"), "it runs over rather");
        assert_eq!(at(80), format!("{head}{long}3 of 6 machines claimed,…\n{short}"));
        assert_eq!(
            at(120),
            format!(
                "{head}{long}3 of 6 machines claimed, because class linux-x64 is at its max of…\n{short}"
            )
        );
        let whole = "3 of 6 machines claimed, because class linux-x64 is at its max of 8";
        assert_eq!(shown(None), format!("{head}{long}{whole}\n{short}"), "in a pipe");
    }

    #[test]
    fn no_id_is_broken_at_any_width_and_no_line_is_longer_than_it_must_be() {
        for width in [1, 20, 60, 80, 120, 200] {
            let text = shown(Some(width));
            assert_eq!(text.lines().count(), 3, "{text}");
            assert!(text.contains("i-06979afac7f1aaae7  linux-x64"), "{text}");
            let longest = text.lines().map(|line| line.width()).max();
            assert!(longest <= Some(width.max(54 + LEAST)), "{width}: {text}");
        }
    }

    #[test]
    fn the_job_of_a_slot_is_in_the_wide_table_and_another_requests_is_not() {
        use runyard_core::model::{InstanceArn, SetPlace, SetRecord, Uid};
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        let (uid, class) = (Uid::parse("u-1").unwrap(), "small".parse().unwrap());
        let place = SetPlace::organization("acme").unwrap();
        let mut set = SetRecord::born(class, place, vec!["small".into()], uid.clone());
        set.scale_set_id = Some(7);
        let (id, claim) =
            (InstanceId::parse("i-1").unwrap(), ClaimId::of(&InstanceId::parse("i-1").unwrap(), 5));
        let mut slot = Request::slot_of_set(&set.slot(1).unwrap(), &"small".parse().unwrap(), uid, now);
        slot.status.claims.insert(id.clone(), claim.clone());
        let mut agent = Agent::born(&InstanceArn::local(&id), now);
        agent.job = Some(JobReport::of("acme/web", "41", 2, "build", now).unwrap());
        agent.signal_claim_id = Some(claim.to_string());
        let others = [agent.to_item()];
        let context = RowContext { now, others: &others, machines: None };
        let cell = |request: &Request| {
            let at = REQUESTS.heads.iter().position(|head| *head == "JOB").unwrap();
            (REQUESTS.cells)(request, &context).remove(at)
        };
        assert_eq!(cell(&slot), "acme/web 41/2 build");
        slot.status.job = Some(JobReport::of("acme/api", "40", 1, "test", now).unwrap());
        assert_eq!(cell(&slot), "acme/web 41/2 build", "its agent knows better");
        slot.status.claims.clear();
        assert_eq!(cell(&slot), "acme/api 40/1 test");
        slot.intent.asked = runyard_core::model::Asked::Verb;
        assert_eq!(cell(&slot), "");
    }
}
