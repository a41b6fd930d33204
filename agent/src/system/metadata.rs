//! Reads the machine's identity and EC2's interruption notices from the instance metadata service, version 2 only: each
//! request carries a token that was fetched first. A service that does not respond is not an error of the machine; the
//! caller decides how to handle it.

use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use reqwest::{Client, RequestBuilder, StatusCode, Url};
use runyard_core::model::{FieldError, InstanceArn, InstanceId, Interruption, InterruptionAction};
use serde::Deserialize;
use tokio::time::Instant;

use crate::system::backoff::Backoff;

/// IPv4 address of the service on every EC2 machine.
pub const ENDPOINT: &str = "http://169.254.169.254";
/// The variable with which AWS's own programs are configured for another address.
pub const ENDPOINT_VARIABLE: &str = "AWS_EC2_METADATA_SERVICE_ENDPOINT";

/// The lifetime of a token; the longest that the service grants (EC2 user guide, "Use IMDSv2").
const TOKEN_LIFE: Duration = Duration::from_secs(6 * 60 * 60);
/// Time limit for a request.
const PATIENCE: Duration = Duration::from_secs(5);
/// First and longest wait between two attempts at boot.
const WAITS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// How long the identity of the machine is requested at boot.
const BOOT: Duration = Duration::from_secs(300);

/// The reason why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// The service is unreachable or failing: try again.
    #[error("the metadata service does not answer: {0}")]
    Unreachable(String),
    /// The service refused the request.
    #[error("the metadata service refuses: {0}")]
    Refused(StatusCode),
    /// The service sent an invalid response.
    #[error("the metadata service: {0}")]
    Garbled(String),
}

/// The purchasing option of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifeCycle {
    /// Spot: EC2 may reclaim it on short notice.
    Spot,
    /// On-demand: it runs until we end it.
    OnDemand,
}

/// The identity of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its id.
    pub id: InstanceId,
    /// Its ARN.
    pub arn: InstanceArn,
    /// Its type.
    pub instance_type: String,
    /// Its availability zone.
    pub zone: String,
    /// Whether EC2 may reclaim it.
    pub life_cycle: LifeCycle,
    /// The image that it was booted from.
    pub image: Option<String>,
    /// The table that its tags name; `None` if tags are not visible, which is the default.
    pub table: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    account_id: String,
    region: String,
    instance_id: String,
    instance_type: String,
    availability_zone: String,
    #[serde(default)]
    image_id: Option<String>,
}

#[derive(Deserialize)]
struct SpotAction {
    action: String,
    time: Timestamp,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rebalance {
    notice_time: Timestamp,
}

/// A client of the metadata service.
#[derive(Debug)]
pub struct Metadata {
    http: Client,
    endpoint: Url,
    /// The token, and the time from which a new one is requested.
    token: Mutex<Option<(String, Instant)>>,
}

impl Metadata {
    /// Creates a client for an endpoint: scheme, host and port.
    ///
    /// # Errors
    /// The endpoint is not an address, or no client can be created.
    pub fn new(endpoint: &str) -> anyhow::Result<Self> {
        let endpoint = Url::parse(endpoint).ok().filter(|url| url.scheme() == "http" && url.has_host());
        let endpoint = endpoint.ok_or_else(|| {
            FieldError::new(ENDPOINT_VARIABLE, "", "not an address", "write http://HOST:PORT, or unset it")
        })?;
        // A proxy must never see a token, and no response may redirect us.
        let http = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(2))
            .timeout(PATIENCE)
            .build()?;
        Ok(Self { http, endpoint, token: Mutex::default() })
    }

    /// Returns the identity of this machine. Waits for the service to start, for a limited time.
    ///
    /// # Errors
    /// The error of the last attempt.
    pub async fn identity(&self) -> Result<Identity, MetadataError> {
        let mut backoff = Backoff::new(WAITS.0, WAITS.1);
        let until = Instant::now() + BOOT;
        loop {
            match self.identify().await {
                Ok(identity) => return Ok(identity),
                Err(error) if Instant::now() >= until => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, "the machine's identity is not known yet");
                    tokio::time::sleep(backoff.wait()).await;
                }
            }
        }
    }

    async fn identify(&self) -> Result<Identity, MetadataError> {
        let document: Document = json(&self.required("dynamic/instance-identity/document").await?)?;
        let partition = self.required("meta-data/services/partition").await?;
        let Document { account_id, region, instance_id, instance_type, availability_zone, image_id } =
            document;
        let arn = format!("arn:{}:ec2:{region}:{account_id}:instance/{instance_id}", partition.trim());
        let life_cycle = match self.ask("meta-data/instance-life-cycle").await?.as_deref().map(str::trim) {
            Some("spot") => LifeCycle::Spot,
            Some(_) | None => LifeCycle::OnDemand,
        };
        Ok(Identity {
            id: InstanceId::parse(&instance_id).map_err(|e| MetadataError::Garbled(e.to_string()))?,
            arn: InstanceArn::parse(&arn).map_err(|e| MetadataError::Garbled(e.to_string()))?,
            instance_type,
            zone: availability_zone,
            life_cycle,
            image: image_id,
            table: self.ask("meta-data/tags/instance/runyard:table").await?,
        })
    }

    /// Returns EC2's announcement: an end takes precedence over a recommendation.
    ///
    /// # Errors
    /// The service did not respond.
    pub async fn notice(&self) -> Result<Option<Interruption>, MetadataError> {
        if let Some(text) = self.ask("meta-data/spot/instance-action").await? {
            let SpotAction { action, time } = json(&text)?;
            // A machine that hibernates is equivalent to a stopped one here.
            let action = match action.as_str() {
                "terminate" => InterruptionAction::Terminate,
                _ => InterruptionAction::Stop,
            };
            return Ok(Some(Interruption { action, at: time }));
        }
        let advice = self.ask("meta-data/events/recommendations/rebalance").await?;
        let Some(text) = advice else { return Ok(None) };
        let Rebalance { notice_time } = json(&text)?;
        Ok(Some(Interruption { action: InterruptionAction::Rebalance, at: notice_time }))
    }

    async fn required(&self, path: &str) -> Result<String, MetadataError> {
        self.ask(path).await?.ok_or(MetadataError::Refused(StatusCode::NOT_FOUND))
    }

    /// Returns the content of a path; `None` if there is none.
    async fn ask(&self, path: &str) -> Result<Option<String>, MetadataError> {
        let mut fresh = false;
        loop {
            let token = self.token(fresh).await?;
            let request = self.http.get(self.url(path)).header("X-aws-ec2-metadata-token", token);
            match send(request).await {
                Ok(text) => return Ok(Some(text)),
                Err(MetadataError::Refused(StatusCode::NOT_FOUND)) => return Ok(None),
                // The token expired early.
                Err(MetadataError::Refused(StatusCode::UNAUTHORIZED)) if !fresh => fresh = true,
                Err(error) => return Err(error),
            }
        }
    }

    async fn token(&self, fresh: bool) -> Result<String, MetadataError> {
        let kept = self.token.lock().expect("no holder panics").clone();
        if let Some((token, until)) = kept.filter(|(_, until)| !fresh && Instant::now() < *until) {
            let _ = until;
            return Ok(token);
        }
        let life = TOKEN_LIFE.as_secs().to_string();
        let asked = self.http.put(self.url("api/token")).header("X-aws-ec2-metadata-token-ttl-seconds", life);
        let token = send(asked).await?;
        // Well before it expires.
        let until = Instant::now() + TOKEN_LIFE / 2;
        *self.token.lock().expect("no holder panics") = Some((token.clone(), until));
        Ok(token)
    }

    fn url(&self, path: &str) -> Url {
        let mut url = self.endpoint.clone();
        url.set_path(&format!("latest/{path}"));
        url
    }
}

async fn send(request: RequestBuilder) -> Result<String, MetadataError> {
    // Without the address: the error may be stored in a record.
    let unreachable = |error: reqwest::Error| MetadataError::Unreachable(error.without_url().to_string());
    let answer = request.send().await.map_err(unreachable)?;
    match answer.status() {
        status if status.is_success() => answer.text().await.map_err(unreachable),
        status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
            Err(MetadataError::Unreachable(status.to_string()))
        }
        status => Err(MetadataError::Refused(status)),
    }
}

fn json<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, MetadataError> {
    serde_json::from_str(text).map_err(|e| MetadataError::Garbled(e.to_string()))
}

#[cfg(test)]
pub(crate) mod metadata_fake;
#[cfg(test)]
mod tests;
