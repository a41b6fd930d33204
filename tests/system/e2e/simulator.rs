//! What would the agents say? Played for every machine of a table by the contract alone: each reads its record
//! strongly, derives its word, and remembers which claim it truly serves, so that a second one on top is noticed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use runyard_core::model::{
    Agent, Guard, Instance, InstanceArn, Item, Life, Reading, RecordId, Signal, Write, read,
};
use runyard_core::ports::{Store as _, StoreError};
use runyard_store::DynamoStore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

use crate::e2e::history::{Snapshot, answered, kind, snapshot};
use crate::e2e::operators::attributes;

/// How often every agent says that it is alive, changes or none.
const BEAT: Duration = Duration::from_secs(5);
/// How long after a look that was not answered the next one comes.
const AGAIN: Duration = Duration::from_millis(20);
/// How many agents speak at the same time.
const AT_ONCE: usize = 16;

/// The agents of a table, until this is dropped.
pub(crate) struct Agents {
    task: JoinHandle<()>,
    wrongs: Arc<Mutex<Vec<String>>>,
}

/// What a machine itself knows.
#[derive(Default)]
struct Machine {
    said: Option<(Signal, String)>,
    /// The claim whose runner it runs.
    serves: Option<String>,
}

impl Agents {
    /// Plays the agents of every machine there is and will be.
    pub(crate) fn play(store: DynamoStore) -> Self {
        let wrongs = Arc::new(Mutex::default());
        let task = tokio::spawn(play(store, Arc::clone(&wrongs)));
        Self { task, wrongs }
    }

    /// What no agent should ever see, and one saw.
    pub(crate) fn wrongs(&self) -> Vec<String> {
        assert!(!self.task.is_finished(), "the agents are gone");
        self.wrongs.lock().expect("nobody panics with it").clone()
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn play(store: DynamoStore, wrongs: Arc<Mutex<Vec<String>>>) {
    let mut watch = store.watch().await.expect("the engine has a stream");
    let mut machines: BTreeMap<InstanceArn, Machine> = BTreeMap::new();
    let mut beat = Instant::now();
    let ended = attributes(&[("state", "terminated")]).remove("state");
    loop {
        let beats = Instant::now() >= beat;
        let keys: BTreeSet<RecordId> = if beats {
            let Some(Snapshot { items: all, .. }) = snapshot(&store).await else {
                sleep(AGAIN).await;
                continue;
            };
            beat = Instant::now() + BEAT;
            let live = |item: &&Item| kind(item) == "instance" && item.get("state") != ended.as_ref();
            all.iter().filter(live).filter_map(RecordId::of).collect()
        } else {
            let Ok(changes) = timeout_at(beat, watch.next()).await else { continue };
            let changes = match changes {
                // The next look tells the same.
                Err(StoreError::Unknown(_)) => Vec::new(),
                changes => changes.expect("the stream goes on"),
            };
            let changes = changes.into_iter();
            changes.map(|change| change.key).filter(|key| key.sk() == "instance").collect()
        };
        let read = stream::iter(keys).map(|key| instance(&store, key)).buffer_unordered(AT_ONCE);
        let found: Vec<Instance> = read.filter_map(std::future::ready).collect().await;
        let mut words = Vec::new();
        for instance in &found {
            let machine = machines.entry(instance.facts.instance_arn.clone()).or_default();
            let says = machine.says(instance, &wrongs);
            if instance.state().live() && (beats || says != machine.said) {
                words.push(speak(&store, instance.facts.instance_arn.clone(), says.clone()));
                machine.said = says;
            }
        }
        stream::iter(words).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
    }
}

async fn instance(store: &DynamoStore, key: RecordId) -> Option<Instance> {
    let item = answered(|| store.get(&key)).await.expect("the table is there")?;
    match read::<Instance>(&item) {
        Reading::Record(instance) => Some(instance),
        other => panic!("{other:?}"),
    }
}

async fn speak(store: &DynamoStore, arn: InstanceArn, says: Option<(Signal, String)>) {
    let mut set = attributes(&[("agentVersion", "simulated")]);
    if let Some((signal, claim)) = &says {
        set.extend(attributes(&[("signal", signal.as_str()), ("signalClaimId", claim)]));
    }
    let add = BTreeMap::from([("heartbeatSeq".to_owned(), 1)]);
    // Refused when the machine is gone meanwhile, which is the end of its agent.
    let _ = store.write(&Write::update(Agent::key_of(&arn), Guard::Exists, set, add)).await;
}

impl Machine {
    /// What its record makes it say and do.
    fn says(&mut self, instance: &Instance, wrongs: &Mutex<Vec<String>>) -> Option<(Signal, String)> {
        let wrong = |what: String| wrongs.lock().expect("nobody panics with it").push(what);
        let id = &instance.facts.instance_id;
        let claim = instance.claim.as_ref().map(|claim| claim.id.to_string()).unwrap_or_default();
        match &instance.life {
            Life::Created { run: None } => Some((Signal::Ok, String::new())),
            Life::Created { run: Some(_) } | Life::Claimed { .. } | Life::Running { .. } => {
                if let Some(serves) = self.serves.as_ref().filter(|serves| **serves != claim) {
                    wrong(format!("{id} is to serve {claim} while it serves {serves}"));
                }
                self.serves = Some(claim.clone());
                Some((Signal::RegOk, claim))
            }
            Life::Idle { pooled_at: None } => {
                if self.serves.take().is_some_and(|serves| serves != claim) {
                    wrong(format!("{id} is to clean up after {claim}, which it does not serve"));
                }
                Some((Signal::RemoveRegOk, claim))
            }
            Life::Idle { pooled_at: Some(_) } => {
                if let Some(serves) = &self.serves {
                    wrong(format!("{id} is in the pool while it serves {serves}"));
                }
                self.said.clone()
            }
            Life::Terminated { .. } => self.said.clone(),
        }
    }
}
