//! Takes in the loop's inputs: changes and lists of the table, notices, and results of its actions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::controller::lease;
use crate::controller::records::events;
use crate::controller::sources::follow::Seen;
use crate::decide::Context;
use crate::model::{
    ClassName, Instance, InstanceArn, InterruptionAction, Item, Lease, PoolSpec, Reading, RecordId, State,
    read,
};
use crate::ports::{Compute, ComputeError, Delivery};
use crate::status::{self, Snapshot};
use crate::yard::{Observation, Unit, Written};

use super::Loop;

/// The longest period for which one successful read counts, however large `stale` is.
const LOOK_VOUCHES: Duration = Duration::from_secs(5);

/// Returns the period for which one successful read counts. A heartbeat was up to `heartbeat` old when the table became
/// unavailable: with this period added it is not stale when the table is available again, and a quarter of `stale`
/// remains for reading it.
pub(super) fn vouches(heartbeat: Duration, stale: Duration) -> Duration {
    let quarter = stale / 4;
    (quarter * 3).saturating_sub(heartbeat).max(quarter).min(LOOK_VOUCHES)
}

impl Loop {
    pub(super) fn observe(&mut self, seen: Observation) {
        let now = self.now();
        match (&mut self.listing.in_flight, &seen) {
            (Some((_, keys)), Observation::Record(key, Some(_))) => drop(keys.insert(key.clone())),
            (Some((_, keys)), Observation::Written(record)) => drop(keys.insert(record.key())),
            _ => {}
        }
        let concerned = self.concerned(&seen);
        let before = concerned.as_ref().and_then(|arn| self.interruption(arn));
        let machine = recorded(&seen);
        let class =
            class_seen(&seen).filter(|class| self.yard.class(class).is_none_or(|class| class.pool.is_none()));
        let known = self.known_until(&seen);
        let away = self.yard.github_down.len();
        let dirty = self.yard.observe(seen, &now);
        if self.yard.github_down.len() < away {
            let units = self.postponed.backoffs.github_is_back(now.mono);
            self.mark(units.into_iter().collect());
        }
        dirty.iter().for_each(|unit| self.offer_lines(unit));
        self.offer_news(known);
        self.mark(dirty);
        if let Some(pool) = class.and_then(|class| self.yard.pool(&class)) {
            self.tasks.spawn_long(report_refusal(self.ports.compute.clone(), pool.spec.clone()));
        }
        if let Some(tracked) = machine.and_then(|arn| self.yard.instance(&arn)) {
            self.measures.history.record(&tracked.instance);
        }
        let after = concerned.as_ref().and_then(|arn| self.interruption(arn));
        if let Some(action) = after.filter(|_| after != before) {
            self.ports.metrics.interruption(action);
        }
    }

    /// Returns the snapshot for the status page.
    pub(super) fn look(&self) -> Snapshot {
        let (now, role) = (self.now(), self.role);
        let cx = Context { yard: &self.yard, policy: &self.policy, now, role };
        status::snapshot(&status::SnapshotInput {
            cx,
            history: &self.measures.history,
            table: self.measures.table.as_str(),
        })
    }

    /// Returns the machine that an observation may report as interrupted.
    fn concerned(&self, seen: &Observation) -> Option<InstanceArn> {
        match seen {
            Observation::Notice(notice) => {
                self.yard.by_id(&notice.instance).map(|tracked| tracked.instance.facts.instance_arn.clone())
            }
            Observation::Record(key, Some(_)) | Observation::Shown(_, key, _) => key.agent().cloned(),
            _ => None,
        }
    }

    fn interruption(&self, arn: &InstanceArn) -> Option<InterruptionAction> {
        self.yard.instance(arn).and_then(|tracked| tracked.interruption()).map(|notice| notice.action)
    }

    /// Takes in notices. Before the first full list their machines are unknown, so they are left for redelivery.
    pub(super) fn receive_notices(&mut self, deliveries: Vec<Delivery>) {
        if self.yard.listed.is_none() {
            return;
        }
        for delivery in deliveries {
            for notice in &delivery.notices {
                self.observe(Observation::Notice(notice.clone()));
            }
            self.reported.unacknowledged.push(delivery);
        }
        self.settle();
        self.acknowledge();
    }

    /// Acknowledges the notices that need no more action.
    pub(super) fn acknowledge(&mut self) {
        if self.reported.unacknowledged.is_empty() {
            return;
        }
        let yard = &self.yard;
        let settled =
            |delivery: &Delivery| delivery.notices.iter().all(|notice| yard.settled_notice(&notice.instance));
        let (done, left): (Vec<Delivery>, Vec<Delivery>) =
            std::mem::take(&mut self.reported.unacknowledged).into_iter().partition(settled);
        self.reported.unacknowledged = left;
        let receipts: Vec<String> = done.into_iter().map(|delivery| delivery.receipt).collect();
        if let Some(port) = self.ports.notices.clone().filter(|_| !receipts.is_empty()) {
            self.tasks.spawn(async move {
                if let Err(error) = port.acknowledge(&receipts).await {
                    tracing::debug!(%error, "notices were not acknowledged; they will be delivered again");
                }
            });
        }
    }

    /// Records a successful read, which covers the time since the previous one.
    fn looked(&mut self) {
        let now = self.ports.clock.elapsed();
        self.reads.seen += now.saturating_sub(self.reads.last_look).min(self.reads.vouches);
        self.reads.last_look = now;
        self.health.table_answered(now);
    }

    pub(super) fn take_in(&mut self, news: Seen) {
        match news {
            Seen::ListBegins(at) => self.listing.in_flight = Some((at, BTreeSet::new())),
            Seen::Page(items, _place) => {
                self.looked();
                let now = self.ports.clock.now().as_second();
                let begun = self.listing.in_flight.as_ref().map(|(begun, _)| *begun);
                for item in items {
                    self.listing.late.extend(events::left_over(&item, now));
                    self.record(item, begun);
                }
                self.report_unreadable();
            }
            Seen::ListEnds(keys) => self.listed(keys),
            Seen::ListFails(error) => {
                self.listing.in_flight = None;
                tracing::warn!(%error, "the table could not be listed");
                // Later it is a temporary error of a policy: the index is kept, and the table is listed again.
                if self.yard.listed.is_none() && super::hopeless(&error) {
                    self.listing.refused = Some(error);
                }
            }
            Seen::Changes(changes) => {
                self.looked();
                for change in changes {
                    match change.item {
                        Some(item) => self.record(item, None),
                        None => self.observe(Observation::Record(change.key, None)),
                    }
                }
                self.report_unreadable();
            }
            Seen::Blind(error) => tracing::warn!(%error, "the table cannot be watched"),
            Seen::Read(begun, item) => {
                self.record(item, Some(begun));
                self.report_unreadable();
            }
        }
    }

    /// Takes in a record from a change, or from a read that began at the given time.
    fn record(&mut self, item: Item, read_at: Option<Duration>) {
        let Some(key) = RecordId::of(&item) else { return };
        if key.is_event() {
            return self.measures.history.event(&item);
        }
        if key == Lease::key_of(Lease::OPERATOR)
            && let Reading::Record(lease) = read::<Lease>(&item)
        {
            self.ports.metrics.lease_seen(lease.token, lease.renewals);
            let (wall, mono) = (self.ports.clock.now(), self.ports.clock.elapsed());
            if let Some(ahead) = self.reported.clock_skew.ahead(&lease, wall, mono) {
                let seconds = ahead.as_secs();
                tracing::warn!(holder = %lease.holder, seconds, "the lease was written later than now: this operator's clock is behind, or the holder's ahead; deadlines pass too early or too late until both agree");
            }
        }
        if let Some(resync) = lease::resync(&item) {
            // A different time is a different request, even by a clock that is behind the response's.
            let another = self.listing.requested_at.is_some()
                && resync.requested_at.is_some_and(|at| self.listing.requested_at != Some(at));
            let open = resync.requested_at > resync.completed_at;
            if another || open && self.listing.requested.is_none() {
                self.listing.requested = Some(self.ports.clock.elapsed());
                let _ = self.listing.triggers.resync.try_send(());
                let _ = self.listing.triggers.sweep.try_send(());
            }
            self.listing.requested_at = resync.requested_at;
        }
        if self.role.lease.is_none() {
            self.leader_claims(&key, &item);
        }
        self.observe(match read_at {
            Some(begun) => Observation::Shown(begun, key, item),
            None => Observation::Record(key, Some(item)),
        });
    }

    /// Logs once per record that it cannot be read, and why.
    fn report_unreadable(&mut self) {
        let (unreadable, newer) = (&self.yard.unreadable, &self.yard.newer);
        self.reported.unreadable.retain(|key| unreadable.contains_key(key) || newer.contains_key(key));
        for (key, problem) in unreadable {
            if self.reported.unreadable.insert(key.clone()) {
                tracing::warn!(%key, problem, "a record cannot be read, it is left alone");
            }
        }
        for (key, schema) in newer {
            if self.reported.unreadable.insert(key.clone()) {
                tracing::warn!(%key, schema, "a record is of a newer program, it is left alone");
            }
        }
    }

    /// Treats a claim that a standby has not seen as the leader's work: the leader serves that class, however long its
    /// queue is. Otherwise a standby would race for every claim of a class that always has waiting requests.
    fn leader_claims(&mut self, key: &RecordId, item: &Item) {
        let Some(arn) = key.instance() else { return };
        let Reading::Record(instance) = read::<Instance>(item) else { return };
        let known = self.yard.instance(arn).map_or(0, |tracked| tracked.instance.version);
        if instance.state() == State::Claimed && instance.version > known {
            self.postponed.due.remove(&Unit::Class(instance.facts.resource_class));
        }
    }

    pub(super) fn listed(&mut self, mut keys: BTreeSet<RecordId>) {
        let Some((begun, also)) = self.listing.in_flight.take() else { return };
        keys.extend(also);
        if self.yard.listed.is_none() {
            tracing::info!("the table is listed, working");
            // Every record of the list is new.
            let units = std::mem::take(&mut self.dirty);
            self.mark(units);
        }
        self.observe(Observation::Listed(begun, keys));
        let now = self.ports.clock.elapsed();
        self.postponed.backoffs.forget(now, &mut self.yard);
        self.health.listed();
        self.ports.metrics.resynced();
        if let Some((token, since)) = self.listing.taken
            && begun >= since
        {
            self.role.lease = Some(token);
            self.listing.taken = None;
            self.offer_all();
        }
        let late = std::mem::take(&mut self.listing.late);
        let removing = self.tasks.removing.as_ref().is_some_and(|removing| !removing.is_finished());
        if self.role.lease.is_some() && !late.is_empty() && !removing {
            let removal = events::remove(self.ports.store.clone(), late);
            self.tasks.removing = Some(self.tasks.spawn_long(removal));
        }
        if let Some(requested) = self.listing.requested
            && begun >= requested
        {
            self.listing.requested = None;
            if self.role.lease.is_some() {
                let ports = self.ports.clone();
                self.tasks.spawn(async move {
                    if let Err(error) = lease::answer(ports.store.as_ref(), ports.clock.as_ref()).await {
                        tracing::warn!(%error, "a resync was done and could not be reported");
                    }
                });
            }
        }
    }
}

/// Reports as soon as a class is seen that its launches would be refused, and why; the launches themselves are refused
/// one by one. If the provider does not respond it is asked again for a quarter of an hour; after that its launches
/// report the problem.
async fn report_refusal(compute: Arc<dyn Compute>, spec: PoolSpec) {
    let mut pause = Duration::from_secs(1);
    for _ in 0..10 {
        match compute.check(&spec).await {
            Ok(()) => return,
            Err(ComputeError::Refused(why)) => {
                tracing::error!(class = %spec.resource_class, why, "no usable machine of this class can be launched");
                return;
            }
            Err(error) => {
                tracing::debug!(class = %spec.resource_class, %error, "a class cannot be checked yet")
            }
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
}

/// Returns the machine whose record was seen or written here, so that the history contains short-lived states too.
fn recorded(seen: &Observation) -> Option<InstanceArn> {
    match seen {
        Observation::Record(key, Some(_))
        | Observation::Shown(_, key, _)
        | Observation::Looked(_, key, Some(_)) => key.instance().cloned(),
        Observation::Written(record) => match &**record {
            Written::Instance(instance) => Some(instance.facts.instance_arn.clone()),
            Written::Agent(_) | Written::Request(_) | Written::Launch(_) | Written::Pool(_) => None,
        },
        _ => None,
    }
}

/// Returns the class whose record was seen.
fn class_seen(seen: &Observation) -> Option<ClassName> {
    match seen {
        Observation::Record(key, Some(_)) | Observation::Shown(_, key, _) => key.pool().cloned(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};
    use std::sync::Mutex;

    use async_trait::async_trait;
    use tokio::time::Instant;

    use super::*;
    use crate::model::InstanceId;
    use crate::ports::{LaunchOrder, Launched, Machine, MachineState};

    /// A provider with configured responses to checks of classes; no other call is made.
    struct Answers(Mutex<VecDeque<Result<(), ComputeError>>>);

    #[async_trait]
    impl Compute for Answers {
        fn keeps_inventory(&self) -> bool {
            true
        }
        async fn check(&self, _: &PoolSpec) -> Result<(), ComputeError> {
            self.0.lock().unwrap().pop_front().expect("it is not asked again")
        }
        async fn launch(&self, _: &LaunchOrder) -> Result<Launched, ComputeError> {
            unreachable!()
        }
        async fn terminate(&self, _: &[InstanceId]) -> Result<(), ComputeError> {
            unreachable!()
        }
        async fn describe(
            &self,
            _: &[InstanceId],
        ) -> Result<BTreeMap<InstanceId, MachineState>, ComputeError> {
            unreachable!()
        }
        async fn list(&self) -> Result<Vec<Machine>, ComputeError> {
            unreachable!()
        }
    }

    #[test]
    fn a_look_vouches_for_less_than_makes_a_beat_stale() {
        for (heartbeat, stale, vouched) in [
            (10_000, 60_000, 5000),
            (500, 3000, 1750),
            (500, 5000, 3250),
            (1000, 2000, 500),
            (50, 100, 25),
            (10_000, 100, 25),
        ] {
            let [beat, stale] = [heartbeat, stale].map(Duration::from_millis);
            assert_eq!(vouches(beat, stale), Duration::from_millis(vouched), "{beat:?} {stale:?}");
        }
    }

    #[test]
    fn a_machine_written_here_reaches_the_timeline_without_the_stream() {
        let item = include_str!("../../../../tests/golden/instance-claimed.json");
        let item: Item = serde_json::from_str(item).unwrap();
        let Reading::Record(instance) = read::<Instance>(&item) else { panic!("a golden record") };
        let arn = instance.facts.instance_arn.clone();
        assert_eq!(recorded(&Observation::Written(Box::new(Written::Instance(instance)))), Some(arn));
    }

    #[tokio::test(start_paused = true)]
    async fn a_launch_check_is_repeated_until_it_is_answered_and_not_for_ever() {
        let silent = || Err(ComputeError::Unknown("simulated".into()));
        let refused = || Err(ComputeError::Refused("its AMI is gone".into()));
        let spec: PoolSpec =
            serde_json::from_str(r#"{"resourceClass":"linux","cpu":2,"mmem":4096}"#).unwrap();
        for (answers, seconds) in [
            (vec![Ok(())], 0),
            (vec![refused()], 0),
            (vec![silent(), silent(), refused()], 1 + 2),
            (vec![silent(), Ok(())], 1),
            ((0..10).map(|_| silent()).collect(), (1 << 10) - 1),
        ] {
            let compute = Arc::new(Answers(Mutex::new(answers.into())));
            let begun = Instant::now();
            report_refusal(compute.clone(), spec.clone()).await;
            assert_eq!(begun.elapsed().as_secs(), seconds);
            assert!(compute.0.lock().unwrap().is_empty(), "it is asked as often as it is not answered");
        }
    }
}
