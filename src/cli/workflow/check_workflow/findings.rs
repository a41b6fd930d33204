//! The parts of a job that do not work on a class, or work only if the machine image supports them.

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// Does not work on the class.
    Fails,
    /// Works if the machine image has the prerequisite.
    Image,
    /// Deserves attention.
    Note,
}

impl Level {
    /// Returns the name of the level.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Fails => "fails",
            Self::Image => "image",
            Self::Note => "note",
        }
    }
}

/// A property of a job that a person should consider before the job moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// The severity.
    pub(super) level: Level,
    /// The rule's name, for programs.
    pub(super) rule: &'static str,
    /// Its line, from 1.
    pub(super) line: usize,
    /// The description.
    pub(super) what: String,
    /// The fix.
    pub(super) fix: String,
}

impl Finding {
    /// Creates a finding in this line.
    pub(super) const fn new(
        level: Level,
        rule: &'static str,
        line: usize,
        what: String,
        fix: String,
    ) -> Self {
        Self { level, rule, line, what, fix }
    }
}
