//! The doorbell of a third of the seeds. Workflows, people and machines ring when they have written; rings are lost,
//! doubled, late by more than a minute, and some name a record that is not there or that nobody wrote.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use runyard_core::model::RecordId;
use runyard_core::ports::{Doorbell, QueueError, Ring};
use tokio::time::{Instant, sleep};

use crate::simulation::chance::Chance;
use crate::simulation::services::Services;

/// Most rings of one call, as SQS has it.
const BATCH: usize = 10;

/// The rings that nobody has heard yet.
#[derive(Default)]
pub(crate) struct Rings {
    /// Numbers of its own; none in a world without a doorbell.
    chance: Option<Chance>,
    /// Each with the moment from which it can be heard.
    sent: Mutex<Vec<(Instant, RecordId)>>,
}

impl Rings {
    pub(crate) fn drawn(seed: u64) -> Self {
        Self {
            chance: seed.is_multiple_of(3).then(|| Chance::of(seed ^ 0x0072_696e_6773)),
            ..Self::default()
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.chance.is_some()
    }

    /// Somebody who rings has written this record.
    pub(crate) fn written(&self, key: &RecordId) {
        let Some(chance) = &self.chance else { return };
        let mut sent = self.sent.lock().unwrap();
        for _ in 0..*chance.one(&[0, 1, 1, 1, 2]) {
            let late = if chance.percent(20) { chance.seconds(1..90) } else { chance.millis(10..200) };
            sent.push((Instant::now() + late, key.clone()));
        }
        if chance.percent(5) {
            sent.push((Instant::now(), RecordId::new("request#acme/nothing#7", "request#default#1")));
            let other = chance.number(0..sent.len() as u64) as usize;
            let other = sent[other].1.clone();
            sent.push((Instant::now(), other));
        }
    }

    /// Takes the rings that can be heard, as many as one call gives.
    fn due(&self) -> Vec<Ring> {
        let (now, mut sent) = (Instant::now(), self.sent.lock().unwrap());
        let mut due = Vec::new();
        sent.retain(|(at, key)| {
            let heard = *at <= now && due.len() < BATCH;
            if heard {
                due.push(Ring { key: Some(key.clone()), sender: Some("simulated".to_owned()) });
            }
            !heard
        });
        due
    }
}

#[async_trait]
impl Doorbell for Services {
    async fn rung(&self) -> Result<Vec<Ring>, QueueError> {
        self.queue("doorbell", "", async {
            let until = Instant::now() + Duration::from_secs(20);
            loop {
                let due = self.0.world.rings.due();
                if !due.is_empty() || Instant::now() >= until {
                    return Ok(due);
                }
                sleep(Duration::from_millis(250)).await;
            }
        })
        .await
    }
}
