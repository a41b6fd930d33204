//! The results of the jobs: lines of the file that every job's shell appends to.

use std::str::FromStr;

use runyard_core::model::FieldError;

/// The subject of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The job began.
    Ran,
    /// It created a file that must be gone before another run uses the machine.
    Left,
    /// It started a process that must be gone likewise.
    Started,
    /// It found a file or process of another run.
    Saw,
}

impl FromStr for Word {
    type Err = FieldError;
    fn from_str(word: &str) -> Result<Self, FieldError> {
        match word {
            "ran" => Ok(Self::Ran),
            "left" => Ok(Self::Left),
            "started" => Ok(Self::Started),
            "saw" => Ok(Self::Saw),
            other => Err(FieldError::new("word", other, "not one that a job writes", "run the demo again")),
        }
    }
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) word: Word,
    pub(super) job: String,
    pub(super) run_id: String,
    pub(super) runner: String,
    pub(super) what: String,
}

/// Parses the file.
///
/// # Errors
/// Names a line that no job of the demonstration wrote.
pub(super) fn parse(text: &str) -> Result<Vec<Line>, FieldError> {
    text.lines().map(line).collect()
}

fn line(text: &str) -> Result<Line, FieldError> {
    let mut fields = text.split('\t').map(str::to_owned);
    let mut next =
        || fields.next().ok_or_else(|| FieldError::new("line", text, "lacks a field", "run the demo again"));
    Ok(Line { word: next()?.parse()?, job: next()?, run_id: next()?, runner: next()?, what: next()? })
}
