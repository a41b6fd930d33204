//! What of a job does not work on a class, or works only where the machine image has it.

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// It does not work on the class.
    Fails,
    /// It works if the machine image has what it needs.
    Image,
    /// Worth a look.
    Note,
}

impl Level {
    /// Its name.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Fails => "fails",
            Self::Image => "image",
            Self::Note => "note",
        }
    }
}

/// Something that a person should know before the job moves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// How bad it is.
    pub(super) level: Level,
    /// The rule's name, for programs.
    pub(super) rule: &'static str,
    /// Its line, from 1.
    pub(super) line: usize,
    /// What it is.
    pub(super) what: String,
    /// What to do about it.
    pub(super) fix: String,
}

impl Finding {
    /// A finding in this line.
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
