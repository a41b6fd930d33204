//! The steps of `init`: the changes, made or planned, to each part of a yard, shown to people line by line and to
//! programs as one document.

use serde_json::{Value, json};

use runyard_store::Difference;

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The part is correct already.
    Good,
    /// The part belongs to somebody else and is correct.
    #[cfg_attr(not(feature = "ec2"), allow(dead_code, reason = "only EC2 has templates"))]
    Given,
    /// The part was created, or would be, with these values.
    Made(Vec<Difference>),
    /// These differences were corrected, or would be.
    Mended(Vec<Difference>),
    /// There is no such part here; the text is the reason.
    Nowhere(&'static str),
}

/// A part of a yard and the result of its step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetupStep {
    /// The kind of part: `table`, `queue`, `template`.
    pub(crate) what: &'static str,
    /// Its name.
    pub(crate) name: String,
    /// The result.
    pub(crate) state: State,
}

impl SetupStep {
    /// Creates a step.
    pub(crate) fn new(what: &'static str, name: impl Into<String>, state: State) -> Self {
        Self { what, name: name.into(), state }
    }

    fn said(&self, dry: bool) -> &'static str {
        match (&self.state, dry) {
            (State::Good, _) => "as it should be",
            (State::Given, _) => "somebody else's, and good",
            (State::Made(_), true) => "would be created",
            (State::Made(_), false) => "created",
            (State::Mended(_), true) => "would be corrected",
            (State::Mended(_), false) => "corrected",
            (State::Nowhere(why), _) => why,
        }
    }

    fn differences(&self) -> &[Difference] {
        match &self.state {
            State::Made(differences) | State::Mended(differences) => differences,
            State::Good | State::Given | State::Nowhere(_) => &[],
        }
    }

    /// Formats the step for people: the part, then each field that differs.
    pub(crate) fn lines(&self, dry: bool) -> Vec<String> {
        let first = format!("{} {}: {}", self.what, self.name, self.said(dry));
        let field = |one: &Difference| match &self.state {
            State::Made(_) => format!("  {}: {}", one.what, one.wanted),
            State::Good | State::Given | State::Mended(_) | State::Nowhere(_) => {
                format!("  {}: {} -> {}", one.what, one.found, one.wanted)
            }
        };
        std::iter::once(first).chain(self.differences().iter().map(field)).collect()
    }

    /// Formats the step as a document for programs.
    pub(crate) fn document(&self, dry: bool) -> Value {
        let field = |one: &Difference| json!({"field": one.what, "wanted": one.wanted, "found": one.found});
        let changes: Vec<Value> = self.differences().iter().map(field).collect();
        let mut document = json!({"what": self.what, "name": self.name, "state": self.said(dry)});
        if !changes.is_empty() {
            document["changes"] = json!(changes);
        }
        document
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_told_with_what_is_there_and_what_is_wanted() {
        let difference = Difference { what: "ImageId", wanted: "ami-1".into(), found: "ami-0".into() };
        let step = SetupStep::new("template", "yard-small", State::Mended(vec![difference.clone()]));
        assert_eq!(
            step.lines(true),
            ["template yard-small: would be corrected", "  ImageId: ami-0 -> ami-1"]
        );
        assert_eq!(
            step.document(false),
            json!({"what": "template", "name": "yard-small", "state": "corrected",
                "changes": [{"field": "ImageId", "wanted": "ami-1", "found": "ami-0"}]})
        );
        let made = SetupStep::new("template", "yard-small", State::Made(vec![difference]));
        assert_eq!(made.lines(false), ["template yard-small: created", "  ImageId: ami-1"]);
    }
}
