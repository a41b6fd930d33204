//! The error type of the configuration, which reports all problems at once.

use std::fmt;

use crate::model::FieldError;

/// The problems of a configuration, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(Vec<FieldError>);

impl ConfigErrors {
    pub(super) fn new(problems: Vec<FieldError>) -> Self {
        debug_assert!(!problems.is_empty(), "an error names what is wrong");
        Self(problems)
    }

    /// Returns the problems in the order of the file's sections.
    pub fn problems(&self) -> &[FieldError] {
        &self.0
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => write!(f, "the configuration cannot be used: {one}"),
            many => {
                write!(f, "the configuration cannot be used, it has {} problems:", many.len())?;
                many.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
        }
    }
}

impl std::error::Error for ConfigErrors {}
