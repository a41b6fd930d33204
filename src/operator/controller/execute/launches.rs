//! The two transactions of a launch: its intent, and its result.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::controller::lease;
use crate::decide::Step;
use crate::model::{
    Agent, ClassName, Guard, Instance, Launch, LaunchId, Record, Request, Uid, Versioned, Write,
};
use crate::ports::StoreError;
use crate::yard::{Observation, Written};

use super::{Executor, Failure, seen};

/// Ids of intents for which it is unknown whether they were written, by class.
pub(in crate::controller) type Unsettled = Arc<Mutex<BTreeMap<ClassName, LaunchId>>>;

impl Executor {
    /// Writes an intent. An intent whose write failed may be in the table nevertheless: the error may belong to a retry
    /// of the SDK whose first attempt was applied. Its id is reused until the outcome is known, so that the next intent
    /// of the class collides with it instead of being written beside it, over `max`.
    pub(super) async fn intend(&self, mut launch: Launch, token: u64) -> Result<Vec<Observation>, Failure> {
        let class = launch.resource_class.clone();
        let names = || self.unsettled.lock().expect("nobody panics while holding the names");
        let kept = names().get(&class).cloned();
        launch.launch_id = kept.unwrap_or_else(|| {
            let id = format!("l-{}", self.ports.entropy.hex());
            LaunchId::parse(&id).expect("hexadecimal digits make a launch id")
        });
        launch.client_token = Launch::token_of(&launch.launch_id, launch.attempt);
        launch.uid = Uid::parse(&self.ports.entropy.hex()).ok();
        let writes = [launch.creating(), Write::check(lease::fence(), Guard::Lease(token))];
        let written = self.transact(&writes, vec![seen(Written::Launch(launch.clone()))]).await;
        let known = match &written {
            Ok(_) => true,
            Err(Failure::Store(StoreError::Refused { refusals })) => {
                match refusals.iter().find(|refusal| refusal.key == launch.key()) {
                    Some(refusal) => refusal.current.is_some(),
                    // Only the lease's check failed: no intent with this id was written.
                    None => return written,
                }
            }
            Err(Failure::Lost(_) | Failure::Store(_) | Failure::Compute(_) | Failure::Credential(_)) => false,
        };
        if known {
            names().remove(&class);
            return written;
        }
        names().insert(class.clone(), launch.launch_id.clone());
        match self.look(launch.key()).await {
            Ok(found @ Observation::Looked(_, _, Some(_))) => {
                names().remove(&class);
                Ok(vec![found])
            }
            Ok(_) | Err(_) => written,
        }
    }

    pub(super) async fn bind(
        &self,
        launch: Step<Launch>,
        request: Option<Box<Step<Request>>>,
        machines: Vec<(Instance, Agent)>,
    ) -> Result<Vec<Observation>, Failure> {
        let mut writes = vec![launch.after.replacing(&launch.before)];
        let mut observed = Vec::new();
        for (instance, agent) in &machines {
            writes.push(instance.creating());
            writes.push(Write::create(agent.key(), agent.to_item()));
            observed.push(seen(Written::Agent(agent.clone())));
            observed.push(seen(Written::Instance(instance.clone())));
        }
        if let Some(request) = &request {
            writes.push(request.after.replacing(&request.before));
            observed.push(seen(Written::Request(request.after.clone())));
        }
        observed.push(seen(Written::Launch(launch.after)));
        self.transact(&writes, observed).await
    }
}
