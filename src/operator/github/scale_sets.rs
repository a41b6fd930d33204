//! The adapter for GitHub's service of runner scale sets. Its address and its token come in exchange for a registration
//! token, which alone counts against a budget of the REST API; sessions have credentials of their own.
//!
//! *Guarantees*: a credential goes to the host alone that it was answered for, by HTTPS unless GitHub's API is on this
//! machine; no redirect is followed; no credential is printed. A capacity of 0 is never announced.

mod addresses;
mod messages;
mod refusals;
mod tenants;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use reqwest::{Method, StatusCode, Url};
use serde::de::DeserializeOwned;

use super::client::{ServiceCall, credential, json};
use super::errors::Answer;
use super::verbs::RestGitHub;
use crate::ports::github::{JobConfig, Runner, Scope};
use crate::ports::scale_sets::{Message, ScaleSet, ScaleSetError, ScaleSets, Session, SetSpec};
use addresses::{AGENTS, GROUPS, SETS};
use refusals::{Verb, accept};
use tenants::{Tenant, Tenants};
use wire::{GroupBody, JobConfigBody, JobConfigRequest, List, OpenRequest, RunnerBody, SessionBody, SetBody};

/// GitHub holds a poll without news for about 50 s.
const POLL_DEADLINE: Duration = Duration::from_secs(65);
/// The header with the number of jobs that a set may hold.
const CAPACITY: &str = "x-scalesetmaxcapacity";
/// The media type of the service's answers.
const MEDIA_TYPE: HeaderValue = HeaderValue::from_static("application/json; api-version=6.0-preview");

/// The adapter for the scale sets of one GitHub.
pub struct RestScaleSets {
    github: Arc<RestGitHub>,
    tenants: Tenants,
    poll_deadline: Duration,
}

/// A call below the service's address.
struct Request {
    verb: Verb,
    method: Method,
    path: String,
    query: Vec<(&'static str, String)>,
    body: Option<Vec<u8>>,
}

impl Request {
    fn new(verb: Verb, method: Method, path: impl Into<String>) -> Self {
        Self { verb, method, path: path.into(), query: Vec::new(), body: None }
    }

    fn asking(mut self, name: &'static str, value: impl ToString) -> Self {
        self.query.push((name, value.to_string()));
        self
    }

    fn with_body(mut self, body: &impl serde::Serialize) -> Self {
        self.body = Some(serde_json::to_vec(body).expect("our own request bodies have only string keys"));
        self
    }
}

impl RestScaleSets {
    /// Creates an adapter that reaches the service through this GitHub, with its credential and its deadline of a call.
    #[must_use]
    pub fn new(github: Arc<RestGitHub>) -> Self {
        Self { github, tenants: Tenants::default(), poll_deadline: POLL_DEADLINE }
    }

    /// Sets the deadline of a poll for messages, which GitHub holds open for about 50 s.
    #[must_use]
    pub fn polling_for(mut self, deadline: Duration) -> Self {
        self.poll_deadline = deadline;
        self
    }

    /// Calls the service with its own token, which is renewed once if the service refuses it.
    async fn call(&self, scope: &Scope, request: Request) -> Result<Answer, ScaleSetError> {
        let tenant = self.tenants.get(&self.github, scope).await?;
        let mut answer = self.send(&tenant, &request).await?;
        if answer.status == StatusCode::UNAUTHORIZED {
            self.tenants.forget(scope, &tenant).await;
            let renewed = self.tenants.get(&self.github, scope).await?;
            answer = self.send(&renewed, &request).await?;
        }
        accept(request.verb, answer, (self.github.client.clock)())
    }

    async fn call_for<T: DeserializeOwned>(
        &self,
        scope: &Scope,
        request: Request,
    ) -> Result<T, ScaleSetError> {
        parsed(&self.call(scope, request).await?)
    }

    /// Calls the service for a change whose answer is 204 without a body; the thing's absence is success as well.
    async fn remove(&self, scope: &Scope, request: Request) -> Result<(), ScaleSetError> {
        gone(self.call(scope, request).await)
    }

    async fn send(&self, tenant: &Tenant, request: &Request) -> Result<Answer, ScaleSetError> {
        let call = ServiceCall {
            method: request.method.clone(),
            url: addresses::below(&tenant.url, &request.path, &request.query)?,
            body: request.body.clone(),
            credential: credential("Bearer", &tenant.token)?,
            headers: accepting(),
            deadline: self.github.client.deadline,
        };
        Ok(self.github.client.call_service(call).await?)
    }

    /// Calls with the credential of a session.
    async fn call_session(
        &self,
        session: &Session,
        verb: Verb,
        (method, url, body): (Method, Url, Option<Vec<u8>>),
        (headers, deadline): (HeaderMap, Duration),
    ) -> Result<Answer, ScaleSetError> {
        let credential = credential("Bearer", &session.token)?;
        let call = ServiceCall { method, url, body, credential, headers, deadline };
        let answer = self.github.client.call_service(call).await?;
        accept(verb, answer, (self.github.client.clock)())
    }
}

fn accepting() -> HeaderMap {
    HeaderMap::from_iter([(ACCEPT, MEDIA_TYPE)])
}

/// Parses a body that must not be empty.
fn parsed<T: DeserializeOwned>(answer: &Answer) -> Result<T, ScaleSetError> {
    if answer.body.is_empty() {
        return Err(unusable(answer, "the answer is empty"));
    }
    Ok(json(answer)?)
}

fn unusable(answer: &Answer, problem: &str) -> ScaleSetError {
    ScaleSetError::Unreachable(format!("{}: {problem}", answer.what))
}

/// Judges the answer to a removal.
fn gone(outcome: Result<Answer, ScaleSetError>) -> Result<(), ScaleSetError> {
    match outcome {
        Ok(answer) if answer.status == StatusCode::NO_CONTENT => Ok(()),
        // A proxy's page, perhaps.
        Ok(answer) => Err(unusable(&answer, &format!("status {} is not GitHub's 204", answer.status))),
        Err(ScaleSetError::NotFound(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

#[async_trait]
impl ScaleSets for RestScaleSets {
    async fn find(
        &self,
        scope: &Scope,
        group_id: u64,
        name: &str,
    ) -> Result<Option<ScaleSet>, ScaleSetError> {
        let request = Request::new(Verb::Read, Method::GET, SETS);
        let request = request.asking("runnerGroupId", group_id).asking("name", name);
        let listed: List<SetBody> = self.call_for(scope, request).await?;
        let sets = listed.value.into_iter().map(ScaleSet::from);
        Ok(sets
            .into_iter()
            .find(|set| set.spec.name.eq_ignore_ascii_case(name) && set.spec.group_id == group_id))
    }

    async fn create(&self, scope: &Scope, spec: &SetSpec) -> Result<ScaleSet, ScaleSetError> {
        let request = Request::new(Verb::ChangeSet, Method::POST, SETS).with_body(&wire::set(spec));
        Ok(self.call_for::<SetBody>(scope, request).await?.into())
    }

    async fn update(&self, scope: &Scope, id: u64, spec: &SetSpec) -> Result<ScaleSet, ScaleSetError> {
        let request = Request::new(Verb::ChangeSet, Method::PATCH, format!("{SETS}/{id}"));
        Ok(self.call_for::<SetBody>(scope, request.with_body(&wire::set(spec))).await?.into())
    }

    async fn delete(&self, scope: &Scope, id: u64) -> Result<(), ScaleSetError> {
        self.remove(scope, Request::new(Verb::DeleteSet, Method::DELETE, format!("{SETS}/{id}"))).await
    }

    async fn group(&self, scope: &Scope, name: &str) -> Result<Option<u64>, ScaleSetError> {
        let request = Request::new(Verb::Read, Method::GET, GROUPS).asking("groupName", name);
        let listed: List<GroupBody> = self.call_for(scope, request).await?;
        Ok(listed.value.into_iter().find(|group| group.name.eq_ignore_ascii_case(name)).map(|group| group.id))
    }

    async fn open(&self, scope: &Scope, set: u64, owner: &str) -> Result<Session, ScaleSetError> {
        let request = Request::new(Verb::OpenSession, Method::POST, format!("{SETS}/{set}/sessions"));
        let answer = self.call(scope, request.with_body(&OpenRequest::of(owner))).await?;
        self.session(scope, set, &answer)
    }

    async fn renew(&self, session: &Session) -> Result<Session, ScaleSetError> {
        let request = Request::new(Verb::RenewSession, Method::PATCH, of_session(session)?);
        let answer = self.call(&session.scope, request).await?;
        self.session(&session.scope, session.set, &answer)
    }

    async fn close(&self, session: &Session) -> Result<(), ScaleSetError> {
        let request = Request::new(Verb::CloseSession, Method::DELETE, of_session(session)?);
        match self.remove(&session.scope, request).await {
            Err(ScaleSetError::SessionOver(_)) => Ok(()),
            outcome => outcome,
        }
    }

    async fn message(
        &self,
        session: &Session,
        last: Option<u64>,
        capacity: u32,
    ) -> Result<Option<Message>, ScaleSetError> {
        if capacity == 0 {
            tracing::warn!(
                set = session.set,
                "a capacity of 1 is announced instead of 0: GitHub never offers again what is queued while it is 0"
            );
        }
        let url = addresses::queue(&self.github.client.origin, session, last, None)?;
        let mut headers = accepting();
        headers.insert(CAPACITY, HeaderValue::from(capacity.max(1)));
        let call = (Method::GET, url, None);
        let answer = self.call_session(session, Verb::Poll, call, (headers, self.poll_deadline)).await?;
        match answer.status {
            StatusCode::ACCEPTED => Ok(None),
            _ => messages::read(parsed(&answer)?).map(Some).map_err(|problem| unusable(&answer, problem)),
        }
    }

    async fn delete_message(&self, session: &Session, id: u64) -> Result<(), ScaleSetError> {
        let url = addresses::queue(&self.github.client.origin, session, None, Some(id))?;
        let (call, within) = ((Method::DELETE, url, None), (accepting(), self.github.client.deadline));
        gone(self.call_session(session, Verb::DeleteMessage, call, within).await)
    }

    async fn acquire(&self, session: &Session, jobs: &[u64]) -> Result<(), ScaleSetError> {
        let tenant = self.tenants.get(&self.github, &session.scope).await?;
        let path = format!("{SETS}/{}/acquirejobs", session.set);
        let url = addresses::below(&tenant.url, &path, &[])?;
        let body = serde_json::to_vec(jobs).expect("numbers are JSON");
        let within = (accepting(), self.github.client.deadline);
        let answer =
            self.call_session(session, Verb::Acquire, (Method::POST, url, Some(body)), within).await?;
        let _acquired: List<u64> = parsed(&answer)?;
        Ok(())
    }

    async fn job_config(
        &self,
        scope: &Scope,
        set: u64,
        name: &str,
        work_folder: &str,
    ) -> Result<JobConfig, ScaleSetError> {
        let request =
            Request::new(Verb::CreateRunner, Method::POST, format!("{SETS}/{set}/generatejitconfig"));
        let answer = self.call(scope, request.with_body(&JobConfigRequest { name, work_folder })).await?;
        let body: JobConfigBody = parsed(&answer)?;
        if body.encoded.is_empty() {
            return Err(unusable(&answer, "the answer holds an empty configuration"));
        }
        Ok(JobConfig { runner_id: body.runner.id, encoded: body.encoded })
    }

    async fn runner(&self, scope: &Scope, name: &str) -> Result<Option<Runner>, ScaleSetError> {
        let request = Request::new(Verb::Read, Method::GET, AGENTS).asking("agentName", name);
        let listed: List<RunnerBody> = self.call_for(scope, request).await?;
        Ok(listed.value.into_iter().find(|runner| runner.name == name).map(Runner::from))
    }

    async fn runner_by_id(&self, scope: &Scope, id: u64) -> Result<Option<Runner>, ScaleSetError> {
        let request = Request::new(Verb::Read, Method::GET, format!("{AGENTS}/{id}"));
        match self.call_for::<RunnerBody>(scope, request).await {
            Ok(body) => Ok(Some(body.into())),
            Err(ScaleSetError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn remove_runner(&self, scope: &Scope, id: u64) -> Result<(), ScaleSetError> {
        self.remove(scope, Request::new(Verb::RemoveRunner, Method::DELETE, format!("{AGENTS}/{id}"))).await
    }
}

impl RestScaleSets {
    /// Reads the answer to an opened or renewed session. One without a queue is of no use.
    fn session(&self, scope: &Scope, set: u64, answer: &Answer) -> Result<Session, ScaleSetError> {
        let body: SessionBody = parsed(answer)?;
        let session = Session {
            scope: scope.clone(),
            set,
            id: body.session_id,
            queue_url: body.message_queue_url,
            token: body.message_queue_access_token,
            statistics: body.statistics.unwrap_or_default().into(),
        };
        addresses::queue(&self.github.client.origin, &session, None, None)?;
        if session.id.is_empty() || session.token.is_empty() {
            return Err(unusable(answer, "the session has no name or no credential"));
        }
        Ok(session)
    }
}

/// Returns the path of a session.
fn of_session(session: &Session) -> Result<String, ScaleSetError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if session.id.is_empty() || !session.id.chars().all(plain) {
        return Err(ScaleSetError::SessionOver(
            "its name has characters that no name of GitHub's has".to_owned(),
        ));
    }
    Ok(format!("{SETS}/{}/sessions/{}", session.set, session.id))
}
