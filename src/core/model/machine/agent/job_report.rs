//! The job that a slot's runner has. GitHub decides which job of a runner scale set that is, so the runner's hook reports
//! it. The words of a hook come from a job's environment, so their form and length are checked here.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

use crate::model::record::field::FieldError;
use crate::model::record::ids::{Repository, RunId};
use crate::model::record::item::AttributeValue;

/// A job that began on a slot's machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Told", rename_all = "camelCase")]
pub struct JobReport {
    /// The repository of its run.
    pub repository: Repository,
    /// Its run.
    pub run_id: RunId,
    /// The attempt of the run, from 1.
    pub attempt: u32,
    /// Its name in the workflow: printable ASCII without spaces, at most [`JobReport::NAME`] bytes.
    pub name: String,
    /// When the agent learned of it, by the agent's clock; for people.
    pub at: Timestamp,
}

impl JobReport {
    /// The most bytes of a job's name.
    pub const NAME: usize = 100;

    /// Returns the report of a job with these words of its hook.
    ///
    /// # Errors
    /// Names the part that no job at GitHub has. A name is cut, and never refused.
    pub fn of(
        repository: &str,
        run_id: &str,
        attempt: u32,
        name: &str,
        at: Timestamp,
    ) -> Result<Self, FieldError> {
        if attempt == 0 {
            let fix = "use 1, 2, … as in GITHUB_RUN_ATTEMPT";
            return Err(FieldError::new("attempt", "0", "not the number of an attempt", fix));
        }
        let (repository, run_id) = (Repository::parse_at_github(repository)?, RunId::parse(run_id)?);
        Ok(Self { repository, run_id, attempt, name: printable(name), at })
    }

    /// Returns its stored form.
    #[must_use]
    pub fn attribute(&self) -> AttributeValue {
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let pairs = [
            ("repository", text(self.repository.as_str())),
            ("runId", text(self.run_id.as_str())),
            ("attempt", AttributeValue::N(self.attempt.to_string())),
            ("name", text(&self.name)),
            ("at", text(&self.at.to_string())),
        ];
        AttributeValue::M(pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

/// Returns the printable part of a job's name, as far as it fits. GitHub's names of jobs are letters, digits, `-` and `_`.
fn printable(name: &str) -> String {
    name.chars().filter(char::is_ascii_graphic).take(JobReport::NAME).collect()
}

/// The stored words of a report.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    repository: String,
    run_id: String,
    attempt: u32,
    #[serde(default)]
    name: String,
    at: Timestamp,
}

impl TryFrom<Told> for JobReport {
    type Error = FieldError;

    fn try_from(told: Told) -> Result<Self, FieldError> {
        Self::of(&told.repository, &told.run_id, told.attempt, &told.name, told.at)
    }
}

/// Parses a report. One that names no job of GitHub's is ignored, and leaves the record readable.
pub(crate) fn known_job<'de, D: Deserializer<'de>>(from: D) -> Result<Option<JobReport>, D::Error> {
    Told::deserialize(from).map(|told| told.try_into().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Agent, InstanceArn, InstanceId, Reading, Record, read};

    fn report(name: &str) -> JobReport {
        JobReport::of("Acme/web", "42", 2, name, Timestamp::UNIX_EPOCH).unwrap()
    }

    #[test]
    fn a_job_has_a_repository_a_run_and_an_attempt_of_github() {
        let of = |repository, run, attempt| {
            JobReport::of(repository, run, attempt, "build", Timestamp::UNIX_EPOCH)
        };
        assert!(of("acme/web", "42", 1).is_ok());
        for (repository, run, attempt, field) in [
            ("", "42", 1, "repository"),
            ("acme/~", "42", 1, "repository"),
            ("acme/web\n", "42", 1, "repository"),
            ("acme/web", "", 1, "runId"),
            ("acme/web", "4 2", 1, "runId"),
            ("acme/web", "42", 0, "attempt"),
        ] {
            assert_eq!(of(repository, run, attempt).unwrap_err().field, field);
        }
    }

    #[test]
    fn a_name_is_printable_and_bounded() {
        assert_eq!(report("build_2-x").name, "build_2-x");
        assert_eq!(report("a\u{1b}[2J b\u{202e}\n\0ü").name, "a[2Jb");
        assert_eq!(report(&"x".repeat(5000)).name.len(), JobReport::NAME);
        assert_eq!(report("").name, "");
    }

    #[test]
    fn a_report_that_no_hook_makes_is_ignored_and_leaves_its_record_readable() {
        let arn = InstanceArn::local(&InstanceId::parse("i-1").unwrap());
        let born = Agent::born(&arn, Timestamp::UNIX_EPOCH);
        let stored = |attribute: AttributeValue| {
            let mut item = born.to_item();
            item.insert("job".to_owned(), attribute);
            match read::<Agent>(&item) {
                Reading::Record(agent) => agent.job,
                Reading::Newer { .. } | Reading::Unreadable(_) => panic!("{item:?}"),
            }
        };
        assert_eq!(stored(report("build").attribute()), Some(report("build")));
        let AttributeValue::M(mut lie) = report(&"x".repeat(99)).attribute() else { panic!("it is a map") };
        lie.insert("name".to_owned(), AttributeValue::S("\u{1b}".repeat(9000)));
        assert_eq!(stored(AttributeValue::M(lie.clone())), Some(report("")));
        lie.insert("repository".to_owned(), AttributeValue::S("x".repeat(9000)));
        assert_eq!(stored(AttributeValue::M(lie)), None);
    }
}
