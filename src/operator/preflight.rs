//! What was looked at before a class's first machine is launched, and what came of it.

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As it must be.
    Good(String),
    /// Machines will not come, or be of no use.
    Wrong {
        /// What is wrong.
        problem: String,
        /// The command or the setting that mends it.
        fix: String,
    },
    /// Nobody could say.
    Unchecked {
        /// Why not.
        why: String,
        /// How a person finds out.
        fix: String,
    },
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What it is, in a few words.
    pub what: String,
    /// How it stands.
    pub outcome: Outcome,
}

impl Check {
    /// Something that is as it must be.
    pub fn good(what: impl Into<String>, told: impl Into<String>) -> Self {
        Self { what: what.into(), outcome: Outcome::Good(told.into()) }
    }

    /// Something that a person must mend.
    pub fn wrong(what: impl Into<String>, problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), outcome: Outcome::Wrong { problem: problem.into(), fix: fix.into() } }
    }

    /// Something that could not be looked at.
    pub fn unchecked(what: impl Into<String>, why: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), outcome: Outcome::Unchecked { why: why.into(), fix: fix.into() } }
    }
}
