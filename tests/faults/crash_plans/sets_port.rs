//! The port to scale sets, through a tap. A message is told again until it is deleted, so to receive one is a call like any
//! other that can be lost.

use std::sync::Arc;

use async_trait::async_trait;
use runyard_core::ports::github::{JobConfig, Runner, Scope};
use runyard_core::ports::scale_sets::{Message, ScaleSet, Session, SetSpec};
use runyard_core::ports::{ScaleSetError, ScaleSets};

use crate::crash_plans::recorder::Life;

/// The same port, through a tap.
pub(crate) struct TappedScaleSets {
    pub(crate) inner: Arc<dyn ScaleSets>,
    pub(crate) life: Life,
}

fn silent() -> ScaleSetError {
    ScaleSetError::Unreachable("the answer was lost".into())
}

#[async_trait]
impl ScaleSets for TappedScaleSets {
    async fn find(
        &self,
        scope: &Scope,
        group_id: u64,
        name: &str,
    ) -> Result<Option<ScaleSet>, ScaleSetError> {
        self.life.effect("sets find".into(), silent(), self.inner.find(scope, group_id, name)).await
    }

    async fn create(&self, scope: &Scope, spec: &SetSpec) -> Result<ScaleSet, ScaleSetError> {
        self.life.effect("sets create".into(), silent(), self.inner.create(scope, spec)).await
    }

    async fn update(&self, scope: &Scope, id: u64, spec: &SetSpec) -> Result<ScaleSet, ScaleSetError> {
        self.life.effect("sets update".into(), silent(), self.inner.update(scope, id, spec)).await
    }

    async fn delete(&self, scope: &Scope, id: u64) -> Result<(), ScaleSetError> {
        self.life.effect("sets delete".into(), silent(), self.inner.delete(scope, id)).await
    }

    async fn group(&self, scope: &Scope, name: &str) -> Result<Option<u64>, ScaleSetError> {
        self.life.effect("sets group".into(), silent(), self.inner.group(scope, name)).await
    }

    async fn open(&self, scope: &Scope, set: u64, owner: &str) -> Result<Session, ScaleSetError> {
        self.life.effect("sets open".into(), silent(), self.inner.open(scope, set, owner)).await
    }

    async fn renew(&self, session: &Session) -> Result<Session, ScaleSetError> {
        self.life.effect("sets renew".into(), silent(), self.inner.renew(session)).await
    }

    async fn close(&self, session: &Session) -> Result<(), ScaleSetError> {
        self.life.effect("sets close".into(), silent(), self.inner.close(session)).await
    }

    async fn message(
        &self,
        session: &Session,
        last: Option<u64>,
        capacity: u32,
    ) -> Result<Option<Message>, ScaleSetError> {
        if capacity == 0 {
            self.life.recorder().wrong("a capacity of 0 was announced".into());
        }
        self.life.effect("sets message".into(), silent(), self.inner.message(session, last, capacity)).await
    }

    async fn delete_message(&self, session: &Session, id: u64) -> Result<(), ScaleSetError> {
        self.life.effect("sets delete message".into(), silent(), self.inner.delete_message(session, id)).await
    }

    async fn acquire(&self, session: &Session, jobs: &[u64]) -> Result<(), ScaleSetError> {
        self.life.effect("sets acquire".into(), silent(), self.inner.acquire(session, jobs)).await
    }

    async fn job_config(
        &self,
        scope: &Scope,
        set: u64,
        name: &str,
        work_folder: &str,
    ) -> Result<JobConfig, ScaleSetError> {
        let call = self.inner.job_config(scope, set, name, work_folder);
        self.life.effect("sets job config".into(), silent(), call).await
    }

    async fn runner(&self, scope: &Scope, name: &str) -> Result<Option<Runner>, ScaleSetError> {
        self.life.effect("sets runner".into(), silent(), self.inner.runner(scope, name)).await
    }

    async fn runner_by_id(&self, scope: &Scope, id: u64) -> Result<Option<Runner>, ScaleSetError> {
        self.life.effect("sets runner by id".into(), silent(), self.inner.runner_by_id(scope, id)).await
    }

    async fn remove_runner(&self, scope: &Scope, id: u64) -> Result<(), ScaleSetError> {
        self.life.effect("sets remove".into(), silent(), self.inner.remove_runner(scope, id)).await
    }
}
