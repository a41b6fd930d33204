//! What is there, and what has been asked.

use std::collections::BTreeMap;

use super::answer::{Refused, Xml};
use super::fleets::Fleet;
use super::instances::code;
use super::params::Params;
use super::rules::Rules;
use super::templates::Templates;

/// The account everything belongs to.
pub const OWNER: &str = "111122223333";

/// A cloud.
#[derive(Debug, Default)]
pub struct World {
    pub rules: Rules,
    pub instances: BTreeMap<String, Instance>,
    pub fleets: BTreeMap<String, Fleet>,
    pub templates: Templates,
    /// Every call that was let in or refused, in order.
    pub calls: Vec<(String, Params)>,
    born: u64,
}

/// A machine.
#[derive(Clone, Debug)]
pub struct Instance {
    kind: String,
    zone: String,
    pub usage: String,
    /// What it was launched from.
    pub image: String,
    pub state: String,
    pub tags: BTreeMap<String, String>,
    /// Why it is in this state: EC2's code, and its message.
    pub reason: Option<(&'static str, &'static str)>,
    /// What it has written to its console, and whether that was posted: minutes after its begin or end, at EC2.
    pub console: Vec<u8>,
    pub posted: bool,
    /// In how many answers it could have stood.
    pub told: u32,
}

impl World {
    /// Puts a machine there and names it.
    pub fn born(&mut self, instance: Instance) -> String {
        self.born += 1;
        // As EC2's, nobody else's: the processes that stand for a machine are known by it on the whole computer.
        let id = format!("i-{:06x}face{:07x}", std::process::id(), self.born);
        let console = self.rules.consoles.clone();
        self.instances.insert(id.clone(), Instance { console, ..instance });
        id
    }

    /// A page of a list, and the token of the next one.
    pub fn page<T>(&self, all: Vec<T>, asked: &Params) -> Result<(Vec<T>, Option<Xml>), Refused> {
        let from: usize = match asked.text("NextToken") {
            None => 0,
            Some(token) => token
                .strip_prefix("page-")
                .and_then(|from| from.parse().ok())
                .ok_or_else(|| Refused::new("InvalidNextToken", "The token is not one of ours"))?,
        };
        let asked_for = asked.number("MaxResults").map_or(usize::MAX, |most| most as usize);
        let most = self.rules.page.unwrap_or(usize::MAX).min(asked_for);
        let end = from.saturating_add(most).min(all.len());
        let next = (end < all.len()).then(|| Xml::text("nextToken", format!("page-{end}")));
        Ok((all.into_iter().skip(from).take(most).collect(), next))
    }

    /// Sets tags on instances, as `CreateTags` does.
    pub fn tag(&mut self, asked: &Params) -> Result<Vec<Xml>, Refused> {
        for id in asked.texts("ResourceId") {
            let missing = || {
                Refused::new("InvalidInstanceID.NotFound", format!("The instance ID '{id}' does not exist"))
            };
            let one = self.instances.get_mut(&id).ok_or_else(missing)?;
            one.tags.extend(asked.tags());
        }
        Ok(vec![Xml::text("return", true)])
    }
}

impl Instance {
    pub fn new(kind: &str, zone: &str, usage: &str, image: &str, tags: BTreeMap<String, String>) -> Self {
        let (state, image) = ("running".to_owned(), image.to_owned());
        let (kind, zone, usage) = (kind.to_owned(), zone.to_owned(), usage.to_owned());
        Self {
            kind,
            zone,
            usage,
            image,
            state,
            tags,
            reason: None,
            console: Vec::new(),
            posted: false,
            told: 0,
        }
    }

    pub fn alive(&self) -> bool {
        matches!(self.state.as_str(), "pending" | "running")
    }

    /// Whether it stands in answers yet, by the rules' three delays.
    pub fn seen(&self, (unseen, _, _): (u32, u32, u32)) -> bool {
        self.told >= unseen
    }

    /// As answers have it by now.
    pub fn as_told(&self, (unseen, untagged, pending): (u32, u32, u32)) -> Self {
        let mut told = self.clone();
        let answers = self.told.saturating_sub(unseen);
        if answers < untagged {
            told.tags.clear();
        }
        if answers < pending && told.state == "running" {
            told.state = "pending".into();
        }
        told
    }

    pub fn xml(&self, id: &str) -> Vec<Xml> {
        let state = vec![Xml::text("code", code(&self.state)), Xml::text("name", &self.state)];
        let spot = (self.usage == "spot").then(|| Xml::text("instanceLifecycle", "spot"));
        let told = [
            Xml::text("instanceId", id),
            Xml::text("imageId", &self.image),
            Xml::node("instanceState", state),
            Xml::text("instanceType", &self.kind),
            Xml::text("launchTime", "2026-01-01T00:00:00.000Z"),
            Xml::node("placement", vec![Xml::text("availabilityZone", &self.zone)]),
            Xml::tags(&self.tags),
        ];
        let reason = self.reason.map(|(code, message)| {
            let message = format!("{code}: {message}");
            Xml::node("stateReason", vec![Xml::text("code", code), Xml::text("message", message)])
        });
        told.into_iter().chain(spot).chain(reason).collect()
    }
}
