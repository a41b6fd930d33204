//! Which queued jobs at GitHub get machines of a class without a job that asks: those with a label of their run, and
//! those of a runner scale set.

use serde::{Deserialize, Serialize};

use super::{LabelMode, PoolSpec};
use crate::model::record::bounds::MOST_MACHINES;
use crate::model::record::field::FieldError;
use crate::model::record::ids::{RequestName, RunId};
use crate::model::record::state::words;
use crate::model::record::time::Seconds;

words! {
    /// Where a class has its scale sets.
    SetScope {
        /// One for each organisation whose repositories the class admits.
        Organization = "organization",
        /// One for each repository that the class admits.
        Repository = "repository",
    }
}

/// The jobs that a class serves by their label alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    /// Whether jobs get machines whose label is `<run id>-<class>` or `<run id>-<class>-<number>`.
    #[serde(default)]
    pub run_labels: bool,
    /// Most machines of one such label, or of one scale set, 1 to 500.
    #[serde(default = "most", skip_serializing_if = "is_most")]
    pub max_slots: u32,
    /// Whether jobs of pull requests from forks get machines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forks: bool,
    /// The labels of its runner scale sets, of which the first is their name; empty where it has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Where it has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<SetScope>,
    /// How many runners of a set wait for jobs that are not there yet.
    #[serde(default, skip_serializing_if = "is_none")]
    pub standing: u32,
    /// How long a runner of a set that is not needed waits for a job, in seconds.
    #[serde(default = "unused", skip_serializing_if = "is_unused")]
    pub unused_seconds: Seconds,
}

/// How long a runner of a scale set that is not needed waits for a job, unless its class says otherwise.
const UNUSED_SECONDS: Seconds = 600;

const fn unused() -> Seconds {
    UNUSED_SECONDS
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_unused(seconds: &Seconds) -> bool {
    *seconds == UNUSED_SECONDS
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_none(standing: &u32) -> bool {
    *standing == 0
}

const fn most() -> u32 {
    MOST_MACHINES
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_most(slots: &u32) -> bool {
    *slots == MOST_MACHINES
}

impl Queue {
    /// Describes the settings in one line, for people.
    #[must_use]
    pub fn told(&self) -> String {
        let labels = if self.run_labels {
            let forks = if self.forks { "forks too" } else { "no forks" };
            format!("run labels, at most {} machines a label, {forks}", self.max_slots)
        } else {
            "no run labels".to_owned()
        };
        let Some(scope) = self.scope.filter(|_| !self.labels.is_empty()) else { return labels };
        let standing =
            if self.standing == 0 { String::new() } else { format!(", {} standing", self.standing) };
        let unused = match self.unused_seconds {
            UNUSED_SECONDS => String::new(),
            seconds => format!(", unused for {seconds} s"),
        };
        let set = format!(
            "scale set {} of each {scope}, at most {} machines{standing}{unused}",
            self.labels.join(", "),
            self.max_slots
        );
        if self.run_labels { format!("{labels}; {set}") } else { set }
    }
}

/// Returns the part of a label behind `<run id>-`, if it is a label of this run.
#[must_use]
pub fn of_run<'a>(label: &'a str, run: &RunId) -> Option<&'a str> {
    label.strip_prefix(run.as_str())?.strip_prefix('-')
}

impl PoolSpec {
    /// Returns the settings under which the class serves jobs by their label; none where it does not.
    #[must_use]
    pub fn serves_labels(&self) -> Option<&Queue> {
        let guessable = self.label_mode == LabelMode::Run;
        self.queue.as_ref().filter(|queue| queue.run_labels && guessable)
    }

    /// Returns whether the class's own label is meant by the part of a label behind the run id: the class's name, or
    /// that and a number. GitHub ignores the case of labels.
    #[must_use]
    pub fn is_named_by(&self, rest: &str) -> bool {
        let class = self.resource_class.as_str();
        let (Some(named), Some(number)) = (rest.get(..class.len()), rest.get(class.len()..)) else {
            return false;
        };
        let numbered = |number: &str| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        named.eq_ignore_ascii_case(class)
            && (number.is_empty() || number.strip_prefix('-').is_some_and(numbered))
    }

    /// Checks that labels can name the class where it serves jobs by their label.
    ///
    /// # Errors
    /// Labels of the class need a secret part, which no job can know; its name is that of a label without a name; or it
    /// cannot have its scale sets.
    pub fn check_queue(&self) -> Result<(), FieldError> {
        self.check_sets()?;
        if !self.queue.as_ref().is_some_and(|queue| queue.run_labels) {
            return Ok(());
        }
        let refuse = |value: &str, message: &str, fix: &str| {
            Err(FieldError::new("queue.runLabels", value, message, fix))
        };
        if self.label_mode == LabelMode::Secret {
            let message = "cannot be combined with labelMode secret: a workflow cannot write a label that it cannot know";
            return refuse("true", message, "set labelMode to run, or leave queue out");
        }
        if self.resource_class.as_str() == RequestName::default_name().as_str() {
            let message =
                "cannot serve a class named default: the label of a request of that name is the run id alone";
            return refuse("true", message, "give the class another name, or leave queue out");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(class: &str, more: serde_json::Value) -> PoolSpec {
        let mut fields = serde_json::json!({"resourceClass": class, "queue": {"runLabels": true}});
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn a_label_names_a_class_alone_or_with_a_number() {
        let small = spec("small", serde_json::json!({}));
        for rest in ["small", "SMALL", "small-1", "small-017"] {
            assert!(small.is_named_by(rest), "{rest}");
        }
        for rest in ["smal", "small-", "small-a", "small-1-2", "small1", "small.gpu", "tiny", "", "smallé"] {
            assert!(!small.is_named_by(rest), "{rest}");
        }
        assert_eq!(of_run("41-small", &"41".parse().unwrap()), Some("small"));
        for label in ["41", "410-small", "4-small", "small", "41small"] {
            assert_eq!(of_run(label, &"41".parse().unwrap()), None, "{label}");
        }
    }

    #[test]
    fn a_class_that_no_label_can_name_is_refused() {
        let none = serde_json::json!({});
        assert_eq!(spec("small", none.clone()).check_queue(), Ok(()));
        assert!(spec("default", none).check_queue().is_err());
        assert!(spec("small", serde_json::json!({"labelMode": "secret"})).check_queue().is_err());
        let off = serde_json::json!({"labelMode": "secret", "queue": {"runLabels": false}});
        assert_eq!(spec("small", off).check_queue(), Ok(()));
    }

    #[test]
    fn a_queue_is_told_in_one_line() {
        let told =
            |more: serde_json::Value| spec("small", serde_json::json!({"queue": more})).queue.unwrap().told();
        let small = serde_json::json!({"runLabels": true, "maxSlots": 8});
        assert_eq!(told(small), "run labels, at most 8 machines a label, no forks");
        let forks = serde_json::json!({"runLabels": true, "forks": true});
        assert_eq!(told(forks), "run labels, at most 500 machines a label, forks too");
        assert_eq!(told(serde_json::json!({"maxSlots": 8})), "no run labels");
        let set = serde_json::json!({"labels": ["runyard-small"], "scope": "repository", "standing": 2, "maxSlots": 8});
        assert_eq!(told(set), "scale set runyard-small of each repository, at most 8 machines, 2 standing");
        let patient =
            serde_json::json!({"labels": ["small", "linux"], "scope": "organization", "unusedSeconds": 900});
        assert_eq!(
            told(patient),
            "scale set small, linux of each organization, at most 500 machines, unused for 900 s"
        );
    }

    #[test]
    fn what_a_queue_does_not_say_has_the_contracts_value() {
        let queue = spec("small", serde_json::json!({})).queue.unwrap();
        let expected = Queue {
            run_labels: true,
            max_slots: MOST_MACHINES,
            forks: false,
            labels: Vec::new(),
            scope: None,
            standing: 0,
            unused_seconds: 600,
        };
        assert_eq!(queue, expected);
        assert_eq!(serde_json::to_value(&queue).unwrap(), serde_json::json!({"runLabels": true}));
    }
}
