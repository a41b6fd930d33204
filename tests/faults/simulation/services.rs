//! The ports of an operator in the simulation: pool queues, compute provider, GitHub and notices.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use runyard_core::model::{ClassName, InstanceId, PoolMessage, Repository};
use runyard_core::ports::github::{
    EndOfLife, JobConfig, Listed, RunState, Runner, RunnerApplication, RunnerSpec, Scope, Token, Waiting,
    WorkflowJob, WorkflowRun,
};
use runyard_core::ports::{
    Batch, Compute, ComputeError, GitHub, GitHubError, LaunchOrder, Launched, Machine, MachineState, Notices,
    PoolQueue, QueueDepth, QueueError, Received,
};
use tokio::time::sleep;

use crate::simulation::actor::Actor;
use crate::simulation::bugs::Bug;
use crate::simulation::fault_rates::Fault;
use crate::simulation::queued_jobs;
use crate::simulation::world::pinned;

/// All that is not the table, for one operator.
pub(crate) struct Services(pub(crate) Arc<Actor>);

impl Services {
    pub(crate) async fn queue<T>(
        &self,
        name: &str,
        about: &str,
        call: impl Future<Output = Result<T, QueueError>>,
    ) -> Result<T, QueueError> {
        let world = &self.0.world;
        self.0.enter().await;
        let outcome = if world.strikes(Fault::QueueFails) {
            sleep(world.chance.millis(1..5000)).await;
            Err(QueueError::Unreachable("simulated".into()))
        } else {
            call.await
        };
        self.0.leave().await;
        world.trace.call(&self.0.name, name, about, if outcome.is_ok() { "ok" } else { "failed" }, false);
        outcome
    }

    async fn provider<T>(
        &self,
        name: &str,
        about: &str,
        call: impl Future<Output = Result<T, ComputeError>>,
    ) -> Result<T, ComputeError> {
        let world = &self.0.world;
        self.0.enter().await;
        let outcome = if world.strikes(Fault::ProviderFails) {
            sleep(world.chance.millis(1..9000)).await;
            Err(if world.chance.percent(50) {
                ComputeError::Throttled
            } else {
                ComputeError::Unknown("simulated".into())
            })
        } else {
            let outcome = call.await;
            if matches!(name, "launch" | "terminate") {
                world.stir();
            }
            outcome
        };
        self.0.leave().await;
        let outcome = match outcome {
            Ok(_) if name != "list" && world.strikes(Fault::ProviderFails) => {
                Err(ComputeError::Unknown("simulated: the answer was lost".into()))
            }
            outcome => outcome,
        };
        let label = outcome.as_ref().map_or_else(ToString::to_string, |_| "ok".into());
        world.trace.call(&self.0.name, name, about, &label, name == "list" && label == "ok");
        outcome
    }

    async fn github<T>(
        &self,
        name: &str,
        about: &str,
        call: impl Future<Output = Result<T, GitHubError>>,
    ) -> Result<T, GitHubError> {
        let world = &self.0.world;
        self.0.enter().await;
        let outcome = if world.fault_rates.lasts(Fault::GitHubAway) || world.strikes(Fault::GitHubFails) {
            sleep(world.chance.millis(1..10_000)).await;
            Err(GitHubError::Unreachable("simulated".into()))
        } else if world.fault_rates.lasts(Fault::GitHubRefuses) {
            Err(match world.bug {
                // The repository's runs are listed as if nothing were wrong.
                Some(Bug::DeniedIsNotFound) if name == "run" => GitHubError::NotFound("simulated".into()),
                Some(Bug::DeniedIsNotFound) => return call.await,
                Some(_) | None => GitHubError::Denied("Bad credentials".into()),
            })
        } else if world.strikes(Fault::GitHubThrottles) {
            let retry_after = world.chance.seconds(1..90);
            // By GitHub, or by our own budget before it is asked.
            Err(match retry_after.as_secs() % 2 {
                0 => GitHubError::Throttled { retry_after },
                _ => GitHubError::Deferred { retry_after },
            })
        } else if world.strikes(Fault::GitHubRefuses) {
            Err(match world.chance.number(0..3) {
                0 => GitHubError::Denied("simulated".into()),
                1 => GitHubError::NotFound("simulated".into()),
                _ => GitHubError::Invalid("simulated".into()),
            })
        } else {
            call.await
        };
        self.0.leave().await;
        let outcome = match outcome {
            Ok(_) if world.strikes(Fault::GitHubLosesAnswer) => {
                Err(GitHubError::Unreachable("simulated: the answer was lost".into()))
            }
            outcome => outcome,
        };
        let label = outcome.as_ref().map_or_else(ToString::to_string, |_| "ok".into());
        world.trace.call(&self.0.name, name, about, &label, name == "run" && label == "ok");
        outcome
    }
}

#[async_trait]
impl PoolQueue for Services {
    async fn ensure(&self, class: &ClassName) -> Result<(), QueueError> {
        self.queue("ensure", class.as_str(), self.0.world.queue.ensure(class)).await
    }

    async fn announce(&self, message: &PoolMessage) -> Result<(), QueueError> {
        let world = &self.0.world;
        if world.strikes(Fault::QueueLoses) {
            return self.queue("announce", "lost", async { Ok(()) }).await;
        }
        if world.strikes(Fault::QueueDoubles) {
            let _ = world.queue.announce(message).await;
        }
        self.queue("announce", message.instance_id.as_str(), world.queue.announce(message)).await
    }

    async fn receive(&self, class: &ClassName, most: u32) -> Result<Vec<Received>, QueueError> {
        self.queue("receive", class.as_str(), self.0.world.queue.receive(class, most)).await
    }

    async fn delete(&self, class: &ClassName, receipts: &[String]) -> Result<Vec<String>, QueueError> {
        self.queue("delete", class.as_str(), self.0.world.queue.delete(class, receipts)).await
    }

    async fn bury(&self, class: &ClassName, receipt: &str, raw: &str) -> Result<(), QueueError> {
        self.queue("bury", class.as_str(), self.0.world.queue.bury(class, receipt, raw)).await
    }

    async fn depth(&self, class: &ClassName) -> Result<Option<QueueDepth>, QueueError> {
        self.queue("depth", class.as_str(), self.0.world.queue.depth(class)).await
    }
}

#[async_trait]
impl Compute for Services {
    fn keeps_inventory(&self) -> bool {
        true
    }

    async fn launch(&self, order: &LaunchOrder) -> Result<Launched, ComputeError> {
        let mut order = order.clone();
        if self.0.world.bug == Some(Bug::TokenEachTime) {
            order.launch.client_token.push_str(&self.0.world.chance.number(0..1 << 32).to_string());
        }
        let order = &order;
        let (world, chance) = (&self.0.world, &self.0.world.chance);
        let about =
            format!("{} {} of {}", order.launch.launch_id, order.launch.count, order.launch.resource_class);
        if world.strikes(Fault::LaunchThrottled) {
            return self.provider("launch", &about, async { Err(ComputeError::Throttled) }).await;
        }
        if world.strikes(Fault::LaunchRefused) {
            let error = match chance.percent(70) {
                true => ComputeError::NoCapacity("simulated".into()),
                false => ComputeError::Refused("simulated".into()),
            };
            return self.provider("launch", &about, async { Err(error) }).await;
        }
        if world.strikes(Fault::LaunchAppliesLate) {
            let (late, order, wait) = (world.clone(), order.clone(), chance.millis(100..20_000));
            tokio::spawn(async move {
                sleep(wait).await;
                let _ = late.compute.launch(&order).await;
                late.stir();
            });
            let lost = async { Err(ComputeError::Unknown("simulated: on its way".into())) };
            return self.provider("launch", &about, lost).await;
        }
        let call = async {
            if world.bug == Some(Bug::RefusalHoldsClass) && world.refused_lately() {
                return Err(ComputeError::Refused("simulated: its class is refused".into()));
            }
            if world.strikes(Fault::LaunchPartial) {
                world.compute.capacity(Some(chance.number(0..u64::from(order.launch.count)) as u32));
            }
            let outcome = world.compute.launch(order).await;
            world.compute.capacity(None);
            if matches!(outcome, Err(ComputeError::Refused(_))) {
                *world.refused.lock().unwrap() = Some(tokio::time::Instant::now());
            }
            if outcome.is_ok() && world.strikes(Fault::LaunchLosesAnswer) {
                return Err(ComputeError::Unknown("simulated: the answer was lost".into()));
            }
            outcome
        };
        self.provider("launch", &about, call).await
    }

    async fn terminate(&self, ids: &[InstanceId]) -> Result<(), ComputeError> {
        self.0.world.ends(&self.0.name, ids);
        let about = ids.iter().map(|id| id.as_str()).collect::<Vec<_>>().join(", ");
        if self.0.world.bug == Some(Bug::EndIsForgotten) {
            return Ok(());
        }
        self.provider("terminate", &about, self.0.world.compute.terminate(ids)).await
    }

    async fn describe(&self, ids: &[InstanceId]) -> Result<BTreeMap<InstanceId, MachineState>, ComputeError> {
        self.provider("describe", ids[0].as_str(), self.0.world.compute.describe(ids)).await
    }

    async fn console(&self, id: &InstanceId) -> Result<Option<String>, ComputeError> {
        self.0.world.compute.console(id).await
    }

    async fn list(&self) -> Result<Vec<Machine>, ComputeError> {
        let mut machines = self.provider("list", "", self.0.world.compute.list()).await?;
        if self.0.world.strikes(Fault::ProviderForgetsSome) {
            let all = self.0.world.chance.percent(30);
            machines.retain(|_| !all && self.0.world.chance.percent(50));
        }
        Ok(machines)
    }
}

#[async_trait]
impl GitHub for Services {
    fn runner_url(&self, scope: &Scope) -> String {
        self.0.world.github.runner_url(scope)
    }

    async fn registration_token(&self, scope: &Scope) -> Result<Token, GitHubError> {
        self.github("token", "registration", self.0.world.github.registration_token(scope)).await
    }

    async fn removal_token(&self, scope: &Scope) -> Result<Token, GitHubError> {
        self.github("token", "removal", self.0.world.github.removal_token(scope)).await
    }

    async fn job_config(&self, scope: &Scope, spec: &RunnerSpec) -> Result<JobConfig, GitHubError> {
        self.github("job_config", &spec.name, self.0.world.github.job_config(scope, spec)).await
    }

    async fn runner_group(&self, owner: &str, name: &str) -> Result<Option<u64>, GitHubError> {
        self.github("group", name, self.0.world.github.runner_group(owner, name)).await
    }

    async fn runner(&self, scope: &Scope, name: &str) -> Result<Option<Runner>, GitHubError> {
        self.github("runner", name, self.0.world.github.runner(scope, name)).await
    }

    async fn runner_by_id(&self, scope: &Scope, id: u64) -> Result<Option<Runner>, GitHubError> {
        self.github("runner", &id.to_string(), self.0.world.github.runner_by_id(scope, id)).await
    }

    async fn runners(&self, scope: &Scope) -> Result<Vec<Runner>, GitHubError> {
        self.github("runners", "", self.0.world.github.runners(scope)).await
    }

    async fn runners_seen(&self, scope: &Scope) -> Result<Vec<Runner>, GitHubError> {
        self.github("runners", "", self.0.world.github.runners_seen(scope)).await
    }

    async fn remove_runner(&self, scope: &Scope, id: u64) -> Result<(), GitHubError> {
        let removed =
            self.github("remove", &id.to_string(), self.0.world.github.remove_runner(scope, id)).await;
        match removed {
            Err(GitHubError::Busy(_)) if self.0.world.bug == Some(Bug::PooledWhileBusy) => Ok(()),
            removed => removed,
        }
    }

    async fn set_labels(&self, scope: &Scope, id: u64, labels: &[String]) -> Result<(), GitHubError> {
        let world = &self.0.world;
        let call = async {
            world.labels(id, labels);
            world.github.set_labels(scope, id, labels).await
        };
        self.github("labels", &format!("{id} {}", labels.join(",")), call).await
    }

    async fn end_of_life(&self, scope: &Scope, version: &str) -> Result<EndOfLife, GitHubError> {
        let world = &self.0.world;
        let answer = self.github("end of life", version, world.github.end_of_life(scope, version)).await;
        if version == pinned().version {
            world.knowledge.lock().unwrap().asked(&self.0.name, answer.is_ok());
        }
        match answer {
            Ok(_) if world.bug == Some(Bug::EndNotBelieved) => Ok(EndOfLife::default()),
            answer => answer,
        }
    }

    async fn runner_applications(&self, scope: &Scope) -> Result<Vec<RunnerApplication>, GitHubError> {
        self.github("packages", "", self.0.world.github.runner_applications(scope)).await
    }

    async fn repositories(&self) -> Result<Vec<Repository>, GitHubError> {
        self.github("repositories", "", self.0.world.github.repositories()).await
    }

    async fn run(
        &self,
        owner: &str,
        name: &str,
        run_id: u64,
        waiting: Waiting,
    ) -> Result<RunState, GitHubError> {
        let world = &self.0.world;
        let told =
            self.github("run", &run_id.to_string(), world.github.run(owner, name, run_id, waiting)).await;
        told.map(|state| queued_jobs::told_over(world.bug, state))
    }

    async fn open_runs(
        &self,
        owner: &str,
        name: &str,
        listed: Listed,
    ) -> Result<Vec<WorkflowRun>, GitHubError> {
        self.github("open runs", name, self.0.world.github.open_runs(owner, name, listed)).await
    }

    async fn run_jobs(
        &self,
        owner: &str,
        name: &str,
        run_id: u64,
        attempt: u32,
    ) -> Result<Vec<WorkflowJob>, GitHubError> {
        let call = self.0.world.github.run_jobs(owner, name, run_id, attempt);
        let listed = self.github("jobs", &format!("{run_id}/{attempt}"), call).await;
        if self.0.world.bug == Some(Bug::JobsUnseen) {
            return listed.map(|_| Vec::new());
        }
        listed
    }

    async fn rerun_failed_jobs(&self, owner: &str, name: &str, run_id: u64) -> Result<(), GitHubError> {
        let call = self.0.world.github.rerun_failed_jobs(owner, name, run_id);
        self.github("rerun", &run_id.to_string(), call).await
    }
}

#[async_trait]
impl Notices for Services {
    async fn receive(&self) -> Result<Batch, QueueError> {
        // Waits inside for up to 20 s: an operator that is stopped receives nothing meanwhile.
        self.queue("notices", "", async {
            sleep(Duration::from_secs(3)).await;
            self.0.world.notices.receive().await
        })
        .await
    }

    async fn acknowledge(&self, receipts: &[String]) -> Result<(), QueueError> {
        self.queue("acknowledge", "", self.0.world.notices.acknowledge(receipts)).await
    }
}
