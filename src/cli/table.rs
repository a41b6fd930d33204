//! How do records look side by side? Plain columns, cut to the terminal's width where a person looks, whole in a pipe.

use comfy_table::{ContentArrangement, Table, presets};
use jiff::Timestamp;

use super::duration;
use super::screen::{Format, Screen, plain};
use crate::model::{
    Agent, AttributeValue, Instance, Item, Key, Launch, Life, Pool, Reading, Record, Request, State,
    Unreadable, read,
};

/// What a kind of record shows: the heads of its columns, how many of them only `-o wide` has, and a record's cells.
pub(crate) struct Columns<T> {
    heads: &'static [&'static str],
    wide: usize,
    cells: fn(&T, &Surroundings<'_>) -> Vec<String>,
}

/// What a row may need besides its own record.
pub(crate) struct Surroundings<'a> {
    /// The time.
    pub(crate) now: Timestamp,
    /// Other records of the table, for what is told across records.
    pub(crate) others: &'a [Item],
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
    ],
    wide: 8,
    cells: |instance, around| {
        let facts = &instance.facts;
        let agent = around.agent(&facts.instance_arn.to_string());
        vec![
            facts.instance_id.to_string(),
            facts.resource_class.to_string(),
            state(instance),
            instance.run().map(ToString::to_string).unwrap_or_default(),
            age(instance.state_since, around.now),
            instance.threshold.map(|t| distance(t.at, around.now)).unwrap_or_default(),
            facts.instance_type.clone(),
            facts.availability_zone.clone(),
            facts.usage_class.to_string(),
            instance.uses.to_string(),
            instance.claim.as_ref().map(|claim| claim.id.to_string()).unwrap_or_default(),
            facts.launch_id.as_ref().map(ToString::to_string).unwrap_or_default(),
            agent.as_ref().and_then(|a| a.signal).map(|s| s.to_string()).unwrap_or_default(),
            agent.and_then(|a| a.heartbeat_at).map(|at| age(at, around.now)).unwrap_or_default(),
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
        "MESSAGE",
        "MIN",
        "USAGE",
        "DEADLINE",
        "INSTANCES",
    ],
    wide: 4,
    cells: |request, around| {
        let (id, intent, status) = (&request.id, &request.intent, &request.status);
        let born = status.accepted_at.or(intent.created_at);
        vec![
            id.repository.to_string(),
            id.run_id.to_string(),
            id.name.to_string(),
            id.attempt.to_string(),
            intent.resource_class.clone(),
            request.phase().to_string(),
            format!("{}/{}", status.instances.len(), intent.count),
            born.map(|at| age(at, around.now)).unwrap_or_default(),
            status.message.clone(),
            intent.min_count.to_string(),
            intent.usage_class.map(|u| u.to_string()).unwrap_or_default(),
            status.deadline.map(|at| distance(at, around.now)).unwrap_or_default(),
            status.instances.iter().map(|id| id.as_str()).collect::<Vec<_>>().join(" "),
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
        "MESSAGE",
        "CPU",
        "MEMORY",
        "USAGE",
        "REUSE",
        "REGISTRATION",
        "OVERRIDE",
    ],
    wide: 6,
    cells: |pool, around| {
        let (spec, counts) = (&pool.spec, &pool.status.counts);
        let scale = pool.scale.as_ref().filter(|o| o.until.is_none_or(|until| until > around.now));
        let live: u32 = counts.iter().filter(|(state, _)| state.live()).map(|(_, count)| count).sum();
        vec![
            spec.resource_class.to_string(),
            scale.map_or(spec.desired, |scale| scale.desired).to_string(),
            spec.min.to_string(),
            spec.max.to_string(),
            counts.get(&State::Idle).copied().unwrap_or_default().to_string(),
            live.to_string(),
            if spec.paused { "yes".into() } else { "no".into() },
            pool.status.message.clone(),
            spec.cpu.to_string(),
            format!("{} MiB", spec.mmem),
            spec.usage_class.to_string(),
            spec.reuse_within.to_string(),
            spec.registration_mode.to_string(),
            scale.map(|o| format!("{} by {}", o.desired, o.by)).unwrap_or_default(),
        ]
    },
};

/// The columns of launches.
pub(crate) const LAUNCHES: Columns<Launch> = Columns {
    heads: &["LAUNCH", "CLASS", "COUNT", "PHASE", "AGE", "FOR", "MESSAGE", "ATTEMPT", "USAGE", "INSTANCES"],
    wide: 3,
    cells: |launch, around| {
        let request = launch.request.as_ref().and_then(|key| Request::id_of(key).ok());
        vec![
            launch.launch_id.to_string(),
            launch.resource_class.to_string(),
            launch.count.to_string(),
            launch.phase.to_string(),
            age(launch.created_at, around.now),
            request.map_or_else(|| "warm".into(), |id| format!("{}/{}/{}", id.run_id, id.name, id.attempt)),
            launch.message.clone(),
            launch.attempt.to_string(),
            launch.usage_class.to_string(),
            launch.instances.iter().map(|id| id.as_str()).collect::<Vec<_>>().join(" "),
        ]
    },
};

impl Surroundings<'_> {
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
    /// The table of these items; what cannot be read has its key and its problem instead of its cells.
    pub(crate) fn table(&self, screen: &Screen, items: &[&Item], around: &Surroundings<'_>) -> String {
        let shown =
            if screen.format == Format::Wide { self.heads.len() } else { self.heads.len() - self.wide };
        let mut rows = Vec::new();
        let mut odd = Vec::new();
        for item in items {
            match read::<T>(item) {
                Reading::Record(record) => {
                    let mut cells = (self.cells)(&record, around);
                    cells.truncate(shown);
                    rows.push(cells);
                }
                Reading::Newer { schema } => {
                    odd.push((key_of(item), format!("written by a newer runyard (schema {schema})")))
                }
                Reading::Unreadable(Unreadable { key, problem }) => odd.push((key.to_string(), problem)),
            }
        }
        let mut text = String::new();
        if !rows.is_empty() {
            text = columns(screen, &self.heads[..shown], rows);
        }
        for (key, problem) in odd {
            text.push_str(&format!("unreadable: {}: {}\n", plain(&key), plain(&problem)));
        }
        text
    }
}

fn key_of(item: &Item) -> String {
    Key::of(item).map(|key| key.to_string()).unwrap_or_default()
}

/// Rows under heads.
pub(crate) fn columns(screen: &Screen, heads: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(heads.iter().copied());
    let arrangement = if screen.live { ContentArrangement::Dynamic } else { ContentArrangement::Disabled };
    table.set_content_arrangement(arrangement);
    for row in rows {
        table.add_row(row.iter().map(|cell| plain(cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// The state of a machine with what an idle one is idle for.
pub(crate) fn state(instance: &Instance) -> String {
    match &instance.life {
        Life::Idle { pooled_at: Some(_) } => "idle, pooled".into(),
        Life::Idle { pooled_at: None } => "idle, cleaning".into(),
        Life::Terminated { reason, gone_at: Some(_) } => format!("gone, {reason}"),
        Life::Terminated { reason, gone_at: None } => format!("terminated, {reason}"),
        Life::Created { .. } | Life::Claimed { .. } | Life::Running { .. } => instance.state().to_string(),
    }
}

/// How long ago.
pub(crate) fn age(at: Timestamp, now: Timestamp) -> String {
    duration::show(now.duration_since(at).try_into().unwrap_or_default())
}

/// How long until, or how long over.
pub(crate) fn distance(at: Timestamp, now: Timestamp) -> String {
    if at >= now { format!("in {}", age(now, at)) } else { format!("{} ago", age(at, now)) }
}
