//! Terminates machines. EC2 refuses a whole batch for one bad id, so a refused batch is halved until the bad id is
//! alone.

use aws_sdk_ec2::Client;

use super::errors::{CallError, Meaning};
use crate::model::InstanceId;
use crate::ports::ComputeError;

/// Maximum number of machines in one call: well below EC2's limit, and few enough that one bad id is soon found.
const BATCH: usize = 100;

/// Terminates machines; one that is gone already is not an error. The first error is returned after all others were
/// tried.
pub(super) async fn terminate(client: &Client, ids: &[InstanceId]) -> Result<(), ComputeError> {
    let mut todo: Vec<&[InstanceId]> = ids.chunks(BATCH).rev().collect();
    let mut first = None;
    while let Some(batch) = todo.pop() {
        let Err(error) = call(client, batch).await else { continue };
        let (left, right) = batch.split_at(batch.len() / 2);
        match error.meaning {
            Meaning::NoSuchInstance | Meaning::Protected if !left.is_empty() => todo.extend([right, left]),
            Meaning::NoSuchInstance => {}
            Meaning::NoCapacity
            | Meaning::Throttled
            | Meaning::Refused
            | Meaning::TokenSpent
            | Meaning::Protected
            | Meaning::NoSuchTemplate
            | Meaning::TemplateExists
            | Meaning::Unknown => {
                first.get_or_insert(error);
            }
        }
    }
    first.map_or(Ok(()), |error| Err(error.into()))
}

async fn call(client: &Client, ids: &[InstanceId]) -> Result<(), CallError> {
    let ids = ids.iter().map(InstanceId::to_string).collect();
    let sent = client.terminate_instances().set_instance_ids(Some(ids)).send().await;
    sent.map(|_| ()).map_err(|error| CallError::of(&error))
}
