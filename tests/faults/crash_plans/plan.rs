//! Which plans are there? One for each way in which one call of the reference run can go wrong: the operator dies
//! before or after it, its answer is lost, or it answers with what was true a moment ago.

use std::fmt;
use std::str::FromStr;

/// What happens to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// The operator dies and the call was never made.
    Before,
    /// The call was made and the operator dies without its answer.
    After,
    /// The call was made and the operator is told that nobody knows.
    Lost,
    /// A read answers with the state before.
    Stale,
}

impl Kind {
    /// What can happen to an effect.
    pub(crate) const OF_EFFECTS: [Self; 3] = [Self::Before, Self::After, Self::Lost];

    fn word(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
            Self::Lost => "lost",
            Self::Stale => "stale",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let all = [Self::Before, Self::After, Self::Lost, Self::Stale];
        let known = all.into_iter().find(|kind| kind.word() == word);
        known.ok_or_else(|| format!("{word:?} is none of before, after, lost, stale"))
    }
}

/// What a call does to the outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It changes something.
    Effect,
    /// It reads something that was different a moment ago.
    Read,
}

/// One call of a run: what it was, and the how-many-eth of its like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) role: Role,
    pub(crate) label: String,
    pub(crate) nth: usize,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (#{})", self.label, self.nth)
    }
}

/// What goes wrong in one run: these calls, each in its way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan(pub(crate) Vec<(Call, Kind)>);

impl Plan {
    /// What is planned for a call.
    pub(crate) fn for_call(&self, label: &str, nth: usize) -> Option<Kind> {
        let mut planned = self.0.iter();
        planned.find(|(call, _)| call.label == label && call.nth == nth).map(|(_, kind)| *kind)
    }
}

/// A plan of one call, by the number of that call in the reference run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Single {
    pub(crate) number: usize,
    pub(crate) kind: Kind,
}

impl Single {
    /// Every plan of one call.
    pub(crate) fn all(trace: &[Call]) -> Vec<Self> {
        let kinds = |role: Role| match role {
            Role::Effect => Kind::OF_EFFECTS.to_vec(),
            Role::Read => vec![Kind::Stale],
        };
        let of = |(number, call): (usize, &Call)| {
            kinds(call.role).into_iter().map(move |kind| Self { number, kind })
        };
        trace.iter().enumerate().flat_map(of).collect()
    }

    /// The plan itself.
    pub(crate) fn on(self, trace: &[Call]) -> (Call, Kind) {
        (trace[self.number].clone(), self.kind)
    }
}

/// A plan as `PLAN` names it: `workload:number:kind`.
pub(crate) fn parse(text: &str) -> Result<(String, Single), String> {
    let parts: Vec<&str> = text.split(':').collect();
    let [workload, number, kind] = parts.as_slice() else {
        return Err(format!("PLAN={text:?}: say workload:number:kind, for example warm_claim:12:after"));
    };
    let number = number.parse().map_err(|_| format!("PLAN={text:?}: {number:?} is no number"))?;
    Ok(((*workload).to_owned(), Single { number, kind: kind.parse()? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_named_as_it_is_printed() {
        let single = Single { number: 12, kind: Kind::Lost };
        let text = format!("warm_claim:{}:{}", single.number, single.kind);
        assert_eq!(parse(&text), Ok(("warm_claim".to_owned(), single)));
        assert!(parse("warm_claim:12").unwrap_err().contains("workload:number:kind"));
        assert!(parse("warm_claim:12:never").unwrap_err().contains("never"));
    }
}
