//! What a machine's agent reports about a claim that is over, and the end of a claim as the operator keeps it for the
//! statement about it. The report comes from a machine that ran other people's code, so its form and size are bounded
//! here, and a part that cannot be read is missing and never passed.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use super::job_report::{JobReport, known_job};
use crate::model::record::ids::ClaimId;
use crate::model::record::item::AttributeValue;
use crate::model::record::state::{Signal, words};

words! {
    /// One item of the proof that a machine is clean.
    CleaningItem {
        /// No process of the claim is alive.
        Processes = "processes",
        /// The directories of the claim, its registration and its logs are removed.
        Directories = "directories",
        /// Nothing that the job user owns is left on the machine's file systems.
        Files = "files",
        /// No file of another user that a job could write to was changed.
        OthersFiles = "othersFiles",
        /// No System V object and no message queue is left.
        Ipc = "ipc",
        /// No container is left.
        Containers = "containers",
        /// The keyrings of the job user are empty.
        Keyrings = "keyrings",
        /// The network links of the jobs and their tracked connections are gone.
        Network = "network",
        /// The control group of the jobs was made anew.
        ControlGroup = "controlGroup",
        /// The post-run script of the machine's owner succeeded.
        PostRun = "postRun",
        /// The claim's layers of kept directories were promoted or removed.
        KeptLayers = "keptLayers",
    }
}

words! {
    /// The result of an item.
    Finding {
        /// It was done and checked.
        Passed = "passed",
        /// It could not be proved.
        Failed = "failed",
        /// There was nothing to do: no post-run script, no kept directory.
        Nothing = "nothing",
    }
}

impl CleaningItem {
    /// Returns whether this result proves the item. Only what a machine may lack altogether can be `nothing`.
    pub const fn is_proved_by(self, finding: Finding) -> bool {
        match (self, finding) {
            (_, Finding::Passed) | (Self::PostRun | Self::KeptLayers, Finding::Nothing) => true,
            (
                Self::Processes
                | Self::Directories
                | Self::Files
                | Self::OthersFiles
                | Self::Ipc
                | Self::Containers
                | Self::Keyrings
                | Self::Network
                | Self::ControlGroup,
                Finding::Nothing,
            )
            | (_, Finding::Failed) => false,
        }
    }
}

/// What the agent reports about a claim, with the signal that ends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimProof {
    /// The claim; the signal may be of another one by the time it is read.
    pub claim_id: String,
    /// The image that the machine was booted from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The SHA-256 of the runner package that was unpacked for the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// The isolation that was in force when the claim's runner was registered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub isolation: Vec<String>,
    /// The jobs that the runner's hook saw; none where the hook does not report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Vec<JobReport>>,
    /// How many more jobs it saw than are listed.
    #[serde(skip_serializing_if = "is_zero")]
    pub jobs_left_out: u32,
    /// The items of the clean-up that have a result.
    pub cleaning: BTreeMap<CleaningItem, Finding>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl ClaimProof {
    /// The most jobs of a report, which keeps it below 2 KiB for names of a usual length.
    pub const JOBS: usize = 8;
    /// The most words of isolation.
    const WORDS: usize = 16;
    /// The most bytes of an image's or a word's name.
    const NAME: usize = 64;

    /// Creates the report of a claim of which nothing is known.
    pub fn of(claim: &ClaimId) -> Self {
        Self {
            claim_id: claim.as_str().to_owned(),
            image: None,
            package: None,
            isolation: Vec::new(),
            jobs: None,
            jobs_left_out: 0,
            cleaning: BTreeMap::new(),
        }
    }

    /// Returns its stored form.
    ///
    /// # Panics
    /// Never: it has only types that DynamoDB can hold.
    pub fn attribute(&self) -> AttributeValue {
        serde_dynamo::to_attribute_value(self).expect("texts, numbers, lists and maps")
    }

    /// Returns whether every item of the clean-up is there and proved.
    pub fn is_whole(&self) -> bool {
        CleaningItem::ALL
            .iter()
            .all(|item| self.cleaning.get(item).is_some_and(|finding| item.is_proved_by(*finding)))
    }
}

/// The stored words of a report.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    claim_id: String,
    #[serde(default)]
    image: Option<String>,
    #[serde(default)]
    package: Option<String>,
    #[serde(default)]
    isolation: Vec<String>,
    #[serde(default)]
    jobs: Option<Vec<TellsJob>>,
    #[serde(default)]
    jobs_left_out: u32,
    #[serde(default)]
    cleaning: BTreeMap<String, String>,
}

/// A job of a report; one that is none of GitHub's counts as left out.
#[derive(Deserialize)]
#[serde(transparent)]
struct TellsJob(#[serde(deserialize_with = "known_job")] Option<JobReport>);

/// Returns whether a text has the form of an image's name or of a word.
fn named(text: &str) -> bool {
    (1..=ClaimProof::NAME).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

impl From<Told> for ClaimProof {
    fn from(told: Told) -> Self {
        let finding = |(item, finding): (String, String)| Some((item.parse().ok()?, finding.parse().ok()?));
        let listed = told.jobs.as_ref().map_or(0, Vec::len);
        let jobs = told.jobs.map(|jobs| {
            jobs.into_iter().filter_map(|TellsJob(job)| job).take(Self::JOBS).collect::<Vec<_>>()
        });
        let lost = listed - jobs.as_ref().map_or(0, Vec::len);
        let isolation: Vec<String> = told.isolation.into_iter().take(Self::WORDS).collect();
        Self {
            claim_id: told.claim_id,
            image: told.image.filter(|image| named(image)),
            package: told.package.filter(|package| digest(package)),
            // Less than all of it would say something else.
            isolation: if isolation.iter().all(|word| named(word)) { isolation } else { Vec::new() },
            jobs,
            jobs_left_out: told.jobs_left_out.saturating_add(u32::try_from(lost).unwrap_or(u32::MAX)),
            cleaning: told.cleaning.into_iter().filter_map(finding).collect(),
        }
    }
}

impl<'de> Deserialize<'de> for ClaimProof {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Told::deserialize(from).map(Self::from)
    }
}

/// The end of a claim, as the machine's record keeps it in the last span of the claim until the history has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimEnd {
    /// The claim.
    pub claim_id: ClaimId,
    /// The trust domain that the machine is of from this claim on.
    #[serde(default)]
    pub trust_domain: String,
    /// The runner package that the claim named; none for the one that the machine was launched with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<ClaimRunner>,
    /// The agent's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// The agent's signal about the end of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<Signal>,
    /// Why the clean-up failed, in the agent's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The agent's report; none from an agent that makes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<ClaimProof>,
}

impl ClaimEnd {
    /// The most bytes of its detail.
    pub const DETAIL: usize = 200;
}

/// The runner package of a claim, without its address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRunner {
    /// Its version.
    pub version: String,
    /// Its digest.
    pub sha256: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Agent, InstanceArn, InstanceId, Reading, Record, read};
    use jiff::Timestamp;

    fn claim() -> ClaimId {
        "i-1.4".parse().unwrap()
    }

    fn whole() -> ClaimProof {
        let finding = |item: &CleaningItem| (*item, Finding::Passed);
        ClaimProof {
            image: Some("ami-0123456789abcdef0".into()),
            package: Some("0a".repeat(32)),
            isolation: vec!["jobUser".into(), "network".into()],
            jobs: Some(vec![JobReport::of("acme/web", "42", 1, "build", Timestamp::UNIX_EPOCH).unwrap()]),
            cleaning: CleaningItem::ALL.iter().map(finding).collect(),
            ..ClaimProof::of(&claim())
        }
    }

    /// What is read of an agent's record with this attribute.
    fn stored(attribute: AttributeValue) -> Option<ClaimProof> {
        let arn = InstanceArn::local(&InstanceId::parse("i-1").unwrap());
        let mut item = Agent::born(&arn, Timestamp::UNIX_EPOCH).to_item();
        item.insert("proof".to_owned(), attribute);
        match read::<Agent>(&item) {
            Reading::Record(agent) => agent.proof,
            Reading::Newer { .. } | Reading::Unreadable(_) => panic!("{item:?}"),
        }
    }

    #[test]
    fn a_report_is_stored_and_read_as_it_was_and_the_usual_one_is_small() {
        let proof = whole();
        assert_eq!(stored(proof.attribute()), Some(proof.clone()));
        let size = serde_json::to_string(&proof).unwrap().len();
        assert!(size < 800, "{size} bytes");
        let at = "2026-01-02T03:04:05.678Z".parse().unwrap();
        let job = |name: &str| JobReport::of("acme/web", "1234567890", 1, name, at).unwrap();
        let jobs = vec![job("build_and_test"); ClaimProof::JOBS];
        let size = serde_json::to_string(&ClaimProof { jobs: Some(jobs), ..proof }).unwrap().len();
        assert!(size < 2048, "{size} bytes");
    }

    #[test]
    fn every_item_must_be_there_and_proved() {
        assert!(whole().is_whole() && !ClaimProof::of(&claim()).is_whole());
        for item in CleaningItem::ALL {
            let with = |finding: Option<Finding>| {
                let mut proof = whole();
                proof.cleaning.remove(item);
                proof.cleaning.extend(finding.map(|finding| (*item, finding)));
                proof.is_whole()
            };
            assert!(!with(None) && !with(Some(Finding::Failed)) && with(Some(Finding::Passed)), "{item}");
            let may_lack = matches!(item, CleaningItem::PostRun | CleaningItem::KeptLayers);
            assert_eq!(with(Some(Finding::Nothing)), may_lack, "{item}");
        }
    }

    #[test]
    fn a_lie_in_a_report_is_bounded_and_what_cannot_be_read_is_missing() {
        let mut told = whole();
        told.image = Some("ami\u{1b}[2J".into());
        told.package = Some("0A".repeat(32));
        told.isolation = vec!["network".into(), "x".repeat(9000)];
        let job = told.jobs.clone().unwrap().remove(0);
        told.jobs = Some(vec![job.clone(); 100]);
        let AttributeValue::M(mut map) = told.attribute() else { panic!("it is a map") };
        let Some(AttributeValue::M(cleaning)) = map.get_mut("cleaning") else { panic!("it is a map") };
        cleaning.insert("files".into(), AttributeValue::S("surely".into()));
        cleaning.insert("theFuture".into(), AttributeValue::S("passed".into()));
        let read = stored(AttributeValue::M(map.clone())).unwrap();
        assert_eq!((&read.image, &read.package, read.isolation.len()), (&None, &None, 0));
        assert_eq!((read.jobs.as_ref().unwrap().len(), read.jobs_left_out), (ClaimProof::JOBS, 92));
        assert!(!read.cleaning.contains_key(&CleaningItem::Files) && !read.is_whole());
        assert_eq!(read.cleaning.len(), CleaningItem::ALL.len() - 1);
        map.insert("cleaning".into(), AttributeValue::S("passed".into()));
        assert_eq!(stored(AttributeValue::M(map)), None, "the record stays readable without it");
    }
}
