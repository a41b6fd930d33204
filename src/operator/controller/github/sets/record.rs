//! The writes of a listener: the record of its set, and the slots of its jobs in the same transaction. Each checks the
//! lease's token, so that an operator that was replaced makes no slot.

use jiff::SignedDuration;

use crate::controller::lease;
use crate::decide::SetStep;
use crate::model::{
    ClassName, ConditionType, Event, EventType, Guard, Pool, Reading, Request, RequestKey, SetRecord,
    SetState, Uid, Versioned, Write, read,
};
use crate::ports::StoreError;

use super::listener::Listener;

/// How long a set may not be listened to before its record says so.
const TROUBLE_AFTER: SignedDuration = SignedDuration::from_secs(120);

impl Listener {
    /// Reads the record of the set, or writes the first one.
    pub(super) async fn read(&self, labels: &[String]) -> Result<SetRecord, StoreError> {
        let (class, place) = &self.key;
        let key = SetRecord::key_of(class.clone(), place.clone());
        let born = || {
            let mut born = SetRecord::born(class.clone(), place.clone(), labels.to_vec(), self.uid());
            born.advance(self.shared.clock.now());
            born
        };
        match self.shared.store.get(&key).await? {
            None => {
                let born = born();
                self.transact(vec![born.creating()]).await?;
                Ok(born)
            }
            Some(item) => match read::<SetRecord>(&item) {
                Reading::Record(record) => Ok(record),
                Reading::Newer { schema } => Err(StoreError::Invalid(format!(
                    "{key} has schema {schema}, which a newer operator wrote"
                ))),
                Reading::Unreadable(why) => Err(StoreError::Invalid(why.to_string())),
            },
        }
    }

    fn uid(&self) -> Uid {
        Uid::parse(&self.shared.entropy.hex()).expect("hexadecimal digits make a uid")
    }

    /// Writes the record, if it differs from what the table has.
    pub(super) async fn write(&mut self, next: SetRecord) -> Result<(), StoreError> {
        self.write_with(next, Vec::new()).await
    }

    async fn write_with(&mut self, mut next: SetRecord, slots: Vec<Write>) -> Result<(), StoreError> {
        if next == self.record && slots.is_empty() {
            return Ok(());
        }
        next.advance(self.shared.clock.now());
        let mut writes = vec![next.replacing(&self.record)];
        writes.extend(slots);
        self.transact(writes).await?;
        self.record = next;
        Ok(())
    }

    async fn transact(&self, mut writes: Vec<Write>) -> Result<(), StoreError> {
        writes.push(Write::check(lease::fence(), Guard::Lease(self.token)));
        self.shared.store.transact(&writes).await
    }

    /// Writes what follows from an answer: the record and the slots that are made, and then the slots that are not wanted
    /// any more. The message can be deleted after that.
    pub(super) async fn take(&mut self, step: SetStep) -> Result<(), StoreError> {
        let SetStep { next, make, unwanted } = step;
        let (class, _) = self.key.clone();
        let now = self.shared.clock.now();
        let slots =
            make.iter().map(|key| Request::slot_of_set(key, &class, self.uid(), now).creating()).collect();
        let (number, written) = (next.next_slot, self.write_with(next, slots).await);
        if let Err(StoreError::Refused { refusals }) = &written
            && refusals
                .iter()
                .any(|refusal| refusal.current.is_some() && make.iter().any(|key| refusal.key == *key))
        {
            // Somebody wrote a record under the key of a slot: none of these numbers is used.
            let skipped = SetRecord { next_slot: number, ..self.record.clone() };
            self.write(skipped).await?;
        }
        written?;
        if let (Some(first), Some(last)) = (make.first(), make.last()) {
            let message = format!(
                "{} of scale set {}: {} to {}",
                slots_of(make.len()),
                self.record.set_name,
                first.name,
                last.name
            );
            self.report(EventType::Normal, "SlotsMade", message);
        }
        for key in &unwanted {
            self.unwant(key).await?;
        }
        Ok(())
    }

    /// Writes that no machine is wanted for a slot: its agent is asked whether its runner has a job, and without one it is
    /// given back.
    pub(super) async fn unwant(&self, key: &RequestKey) -> Result<(), StoreError> {
        let Some(item) = self.shared.store.get(&key.into()).await? else { return Ok(()) };
        let Reading::Record(request) = read::<Request>(&item) else { return Ok(()) };
        if request.intent.wanted == Some(0) || !request.phase().wants_machines() {
            return Ok(());
        }
        let (mut next, now) = (request.clone(), self.shared.clock.now());
        next.want(0, now);
        next.advance(now);
        match self.shared.store.write(&next.replacing(&request)).await {
            // Another writer changed it meanwhile; a later answer finds it again.
            Ok(_) | Err(StoreError::Refused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Notes how far the set is; a change is an event on its class.
    pub(super) async fn state(&mut self, state: SetState) -> Result<(), StoreError> {
        let mut next = self.record.clone();
        // An open session is no message yet: trouble is over with the first answer.
        let reads = match state {
            SetState::Listening | SetState::Draining => true,
            SetState::Ensuring | SetState::Waiting | SetState::Gone => false,
        };
        let over = reads && self.trouble_since.is_none() && next.conditions.iter().any(|one| !one.status);
        if next.state == state && !over {
            return Ok(());
        }
        next.state = state;
        let message = match state {
            SetState::Ensuring => "is looked up at GitHub",
            SetState::Waiting => "waits: another listener has its session",
            SetState::Listening => "listens",
            SetState::Draining => "ends: its class does not serve it any more",
            SetState::Gone => "was deleted at GitHub",
        };
        if over {
            next.conditions.retain(|one| one.status);
        }
        self.write(next).await?;
        let told = format!("scale set {} at {} {message}", self.record.set_name, self.key.1);
        self.report(EventType::Normal, &format!("Set{state}"), told);
        Ok(())
    }

    /// Notes why nothing is listened to, once that has lasted for two minutes.
    pub(super) async fn trouble(&mut self, why: &str) -> Result<(), StoreError> {
        let now = self.shared.clock.now();
        let since = *self.trouble_since.get_or_insert(now);
        let known = self.record.conditions.iter().any(|one| one.message == why);
        if now.duration_since(since) < TROUBLE_AFTER || known || self.record.version == 0 {
            return Ok(());
        }
        let mut next = self.record.clone();
        next.conditions.retain(|one| one.condition_type != ConditionType::Listening);
        let (kind, reason) = (ConditionType::Listening, "Trouble");
        let before = &self.record.conditions;
        next.conditions.push(crate::model::Condition::since(
            before,
            kind,
            false,
            reason,
            why.to_owned(),
            now,
        ));
        self.write(next).await?;
        let told = format!("scale set {} at {}: {why}", self.record.set_name, self.key.1);
        self.report(EventType::Warning, "SetTrouble", told);
        Ok(())
    }

    fn report(&self, event_type: EventType, reason: &str, message: String) {
        let subject = Pool::key_of(&self.key.0);
        let mut event = Event::new(&subject, self.shared.entropy.hex(), self.shared.clock.now(), "operator");
        (event.event_type, event.reason, event.message) = (event_type, reason.to_owned(), message);
        self.shared.events.send(&event);
    }

    pub(super) fn class(&self) -> &ClassName {
        &self.key.0
    }
}

fn slots_of(count: usize) -> String {
    if count == 1 { "1 slot".to_owned() } else { format!("{count} slots") }
}
