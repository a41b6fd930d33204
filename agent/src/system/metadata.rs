//! Reads the machine's identity and EC2's interruption notices from the instance metadata service, version 2 only: each
//! request carries a token that was fetched first. A service that does not answer is not an error of the machine; the
//! caller decides what it means.

use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use reqwest::{Client, RequestBuilder, StatusCode, Url};
use runyard_core::model::{FieldError, InstanceArn, InstanceId, Interruption, InterruptionAction};
use serde::Deserialize;
use tokio::time::Instant;

use crate::system::backoff::Backoff;

/// Where the service is on every EC2 machine, by IPv4.
pub const ENDPOINT: &str = "http://169.254.169.254";
/// How AWS's own programs are told another place.
pub const ENDPOINT_VARIABLE: &str = "AWS_EC2_METADATA_SERVICE_ENDPOINT";

/// The life of a token; the longest the service gives (EC2 user guide, "Use IMDSv2").
const TOKEN_LIFE: Duration = Duration::from_secs(6 * 60 * 60);
/// Longest question.
const PATIENCE: Duration = Duration::from_secs(5);
/// First and longest wait between two tries at boot.
const WAITS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// How long boot keeps asking which machine this is.
const BOOT: Duration = Duration::from_secs(300);

/// Why a question was not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    /// Unreachable or failing: try again.
    #[error("the metadata service does not answer: {0}")]
    Unreachable(String),
    /// It refused.
    #[error("the metadata service refuses: {0}")]
    Refused(StatusCode),
    /// It sent an answer that makes no sense.
    #[error("the metadata service: {0}")]
    Garbled(String),
}

/// The purchasing option of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LifeCycle {
    /// Spot: EC2 may take it back on short notice.
    Spot,
    /// On-demand: it stays until we end it.
    OnDemand,
}

/// Which machine this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its id.
    pub id: InstanceId,
    /// Its ARN.
    pub arn: InstanceArn,
    /// Its type.
    pub instance_type: String,
    /// Where it is.
    pub zone: String,
    /// Whether it may be taken back.
    pub life_cycle: LifeCycle,
    /// The table its tags name; none where tags are not shown, which is the default.
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

/// The metadata service.
#[derive(Debug)]
pub struct Metadata {
    http: Client,
    endpoint: Url,
    /// With the moment from which it is asked for anew.
    token: Mutex<Option<(String, Instant)>>,
}

impl Metadata {
    /// The service at an endpoint: scheme, host and port.
    ///
    /// # Errors
    /// The endpoint is not an address, or there is no client to be had.
    pub fn new(endpoint: &str) -> anyhow::Result<Self> {
        let endpoint = Url::parse(endpoint).ok().filter(|url| url.scheme() == "http" && url.has_host());
        let endpoint = endpoint.ok_or_else(|| {
            FieldError::new(ENDPOINT_VARIABLE, "", "not an address", "write http://HOST:PORT, or unset it")
        })?;
        // A proxy must never see a token, and nobody may send us elsewhere.
        let http = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(2))
            .timeout(PATIENCE)
            .build()?;
        Ok(Self { http, endpoint, token: Mutex::default() })
    }

    /// The identity of this machine. Waits for the service to start, for a limited time.
    ///
    /// # Errors
    /// The last one.
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
        let Document { account_id, region, instance_id, instance_type, availability_zone } = document;
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
            table: self.ask("meta-data/tags/instance/runyard:table").await?,
        })
    }

    /// What EC2 has announced: the end before the mere advice.
    ///
    /// # Errors
    /// The service gave no answer.
    pub async fn notice(&self) -> Result<Option<Interruption>, MetadataError> {
        if let Some(text) = self.ask("meta-data/spot/instance-action").await? {
            let SpotAction { action, time } = json(&text)?;
            // A machine that hibernates is as good as stopped to us.
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

    /// What is at a path; none when there is nothing.
    async fn ask(&self, path: &str) -> Result<Option<String>, MetadataError> {
        let mut fresh = false;
        loop {
            let token = self.token(fresh).await?;
            let request = self.http.get(self.url(path)).header("X-aws-ec2-metadata-token", token);
            match send(request).await {
                Ok(text) => return Ok(Some(text)),
                Err(MetadataError::Refused(StatusCode::NOT_FOUND)) => return Ok(None),
                // The token ran out before its time.
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
        // Well before it runs out.
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
    // Without the address: it may stand in a record.
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
