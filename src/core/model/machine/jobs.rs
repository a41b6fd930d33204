//! The permissions of a class's jobs on their machine: becoming root, running containers, and the variables they get.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::variable::variable_refusal;
use crate::model::record::field::FieldError;
use crate::model::record::item::Item;
use crate::model::record::parse;
use crate::model::record::state::{RegistrationMode, ReuseWithin, words};

/// Most variables of a class.
const MOST_VARIABLES: usize = 50;
/// Most bytes of one variable's value, and of all names and values together: they are in each machine's record.
const LONGEST_VALUE: usize = 2048;
const LONGEST_ENVIRONMENT: usize = 8192;

words! {
    /// Which container engine jobs get.
    Containers {
        /// None.
        Nothing = "none",
        /// One of the claim's own, without rights on the machine.
        Rootless = "rootless",
        /// The machine's own; whoever may speak to it is root.
        Engine = "engine",
    }
}

/// The permissions of jobs on their machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Jobs {
    /// Whether they become root without a password.
    #[serde(skip_serializing_if = "is_not")]
    pub root: bool,
    /// Which container engine they get.
    #[serde(skip_serializing_if = "are_none")]
    pub containers: Containers,
    /// Variables of each job, in addition to the machine's own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_not(flag: &bool) -> bool {
    !*flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn are_none(containers: &Containers) -> bool {
    match containers {
        Containers::Nothing => true,
        Containers::Rootless | Containers::Engine => false,
    }
}

impl Default for Jobs {
    fn default() -> Self {
        Self { root: false, containers: Containers::Nothing, environment: BTreeMap::new() }
    }
}

impl Jobs {
    /// Parses the grant in an instance record, whatever its other attributes are.
    ///
    /// # Errors
    /// Describes a grant of a newer program that this one does not know.
    pub fn granted_in(instance: &Item) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Granted {
            #[serde(default)]
            jobs: Jobs,
        }
        parse::<Granted>(instance).map(|granted| granted.jobs)
    }

    /// Returns whether this is the value of a spec that does not set it.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether a job can become root on the machine. Such a machine serves one job: nothing that is found on it
    /// afterwards proves anything.
    pub fn single_use(&self) -> bool {
        let engine = match self.containers {
            Containers::Engine => true,
            Containers::Nothing | Containers::Rootless => false,
        };
        self.root || engine
    }

    /// Returns the part of it that a class with this boundary and these runners grants: all or, where a job could
    /// become root on a machine that serves another, neither root nor containers.
    #[must_use]
    pub fn granted(&self, within: ReuseWithin, mode: RegistrationMode) -> Self {
        if !self.single_use() || (within, mode) == (ReuseWithin::Never, RegistrationMode::Job) {
            return self.clone();
        }
        Self { environment: self.environment.clone(), ..Self::default() }
    }

    /// Checks that the class may grant it.
    ///
    /// # Errors
    /// Names the field that it may not have, and the one that forbids it.
    pub fn check(&self, within: ReuseWithin, mode: RegistrationMode) -> Result<(), FieldError> {
        if self.granted(within, mode) == *self {
            return Ok(());
        }
        let (field, value) =
            if self.root { ("jobs.root", "true") } else { ("jobs.containers", self.containers.as_str()) };
        let message = format!(
            "lets a job become root on its machine, beside reuseWithin {within} and registrationMode {mode}"
        );
        let fix =
            "set reuseWithin to none and registrationMode to job, so that the machine ends after its job";
        Err(FieldError::new(field, value, message, fix))
    }

    /// Checks the variables.
    ///
    /// # Errors
    /// Names the variable that cannot be given to jobs, and why.
    pub fn check_environment(&self) -> Result<(), FieldError> {
        let refuse = |field: &str, value: String, message: String, fix: &str| {
            Err(FieldError::new(field, value, message, fix))
        };
        if self.environment.len() > MOST_VARIABLES {
            let count = self.environment.len().to_string();
            let message = format!("are more than {MOST_VARIABLES} variables");
            return refuse("jobs.environment", count, message, "put them into the image");
        }
        for (name, value) in &self.environment {
            let field = format!("jobs.environment.{name}");
            if let Some(why) = variable_refusal(name) {
                return refuse(&field, value.clone(), why, "use another name, or leave it out");
            }
            if value.len() > LONGEST_VALUE || value.contains(['\0', '\n', '\r']) {
                let message = format!("must be one line of at most {LONGEST_VALUE} bytes");
                return refuse(&field, value.chars().take(40).collect(), message, "shorten it");
            }
        }
        let all: usize = self.environment.iter().map(|(name, value)| name.len() + value.len()).sum();
        if all > LONGEST_ENVIRONMENT {
            let message = format!("is more than {LONGEST_ENVIRONMENT} bytes in all");
            return refuse("jobs.environment", all.to_string(), message, "put variables into the image");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(root: bool, containers: Containers) -> Jobs {
        Jobs { root, containers, ..Jobs::default() }
    }

    #[test]
    fn root_is_granted_only_where_the_machine_ends_after_its_job() {
        for (root, containers) in
            [(true, Containers::Nothing), (false, Containers::Engine), (true, Containers::Rootless)]
        {
            let wanted = jobs(root, containers);
            for within in ReuseWithin::ALL {
                for mode in RegistrationMode::ALL {
                    let once = (*within, *mode) == (ReuseWithin::Never, RegistrationMode::Job);
                    assert_eq!(wanted.check(*within, *mode).is_ok(), once, "{wanted:?} {within} {mode}");
                    let granted = wanted.granted(*within, *mode);
                    assert_eq!((granted == wanted, granted.single_use()), (once, once));
                }
            }
        }
        for containers in [Containers::Nothing, Containers::Rootless] {
            let wanted = jobs(false, containers);
            assert!(wanted.check(ReuseWithin::Any, RegistrationMode::Run).is_ok() && !wanted.single_use());
        }
    }

    #[test]
    fn a_refusal_names_the_field_that_gives_root_and_what_it_stands_beside() {
        let refused = |jobs: Jobs| jobs.check(ReuseWithin::Owner, RegistrationMode::Job).unwrap_err();
        let root = refused(jobs(true, Containers::Engine));
        assert_eq!((root.field.as_str(), root.value.as_str()), ("jobs.root", "true"));
        assert!(root.message.contains("reuseWithin owner"), "{root:?}");
        let engine = refused(jobs(false, Containers::Engine));
        assert_eq!((engine.field.as_str(), engine.value.as_str()), ("jobs.containers", "engine"));
        assert!(engine.fix.contains("registrationMode to job"), "{engine:?}");
    }

    #[test]
    fn variables_that_only_the_agent_may_set_and_long_ones_are_refused_by_name() {
        let of = |name: &str, value: &str| {
            let environment = [(name.to_owned(), value.to_owned())].into();
            Jobs { environment, ..Jobs::default() }.check_environment()
        };
        assert!(of("HTTPS_PROXY", "http://proxy:3128").is_ok());
        for (name, value) in
            [("HOME", "/"), ("GITHUB_TOKEN", "x"), ("A B", "x"), ("A", "x\ny"), ("B", &"x".repeat(2049))]
        {
            assert_eq!(of(name, value).unwrap_err().field, format!("jobs.environment.{name}"));
        }
        let many = (0..51).map(|i| (format!("V{i}"), String::new())).collect();
        let long = (0..5).map(|i| (format!("V{i}"), "x".repeat(2000))).collect();
        for environment in [many, long] {
            let refused = Jobs { environment, ..Jobs::default() }.check_environment().unwrap_err();
            assert_eq!(refused.field, "jobs.environment");
        }
    }
}
