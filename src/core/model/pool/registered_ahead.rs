//! Are the runners of a class's pooled machines registered ahead of claims, and if not, which conditions are missing?
//! The spec, the operator's GitHub and GitHub's own responses may each prevent it; every caller gets the same reasons.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::model::record::state::{RegistrationMode, ReuseWithin};

/// The time of a warm claim without registration ahead, with GitHub's own runner: `config.sh` 0.70 s, and 0.52 s until
/// it listens (medians of runner 2.336.0 on a machine with nothing else to do).
const SAVED: &str = "about 1.2 s of each warm claim with GitHub's runner";

/// Whether a class wants the runners of its pooled machines registered before a claim. The table holds true and false;
/// the absent attribute is [`RegisteredAhead::Auto`], so that programs that know only the two can read every class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RegisteredAhead {
    /// Wherever it can be.
    #[default]
    Auto,
    /// It must be possible: a spec that does not allow it is refused.
    Always,
    /// Not at all.
    Never,
}

impl RegisteredAhead {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Auto, Self::Always, Self::Never];

    /// Returns whether the attribute is absent.
    #[must_use]
    pub const fn is_auto(&self) -> bool {
        match self {
            Self::Auto => true,
            Self::Always | Self::Never => false,
        }
    }
}

impl Serialize for RegisteredAhead {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => to.serialize_str("auto"),
            Self::Always => to.serialize_bool(true),
            Self::Never => to.serialize_bool(false),
        }
    }
}

impl<'de> Deserialize<'de> for RegisteredAhead {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "true, false or auto")]
        enum Said {
            Flag(bool),
            Word(Word),
        }
        #[derive(Deserialize)]
        enum Word {
            #[serde(rename = "auto")]
            Auto,
        }
        Ok(match Said::deserialize(from)? {
            Said::Flag(true) => Self::Always,
            Said::Flag(false) => Self::Never,
            Said::Word(Word::Auto) => Self::Auto,
        })
    }
}

/// Why no runner of a class is registered ahead of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AheadOff {
    /// Its spec turns it off.
    Said,
    /// Its runners are single-use: GitHub makes each for its labels.
    Mode,
    /// Its machines are used again by more than one owner, or not at all.
    Reuse(ReuseWithin),
    /// Its machines serve an owner, and no runner group restricts which repositories may use them.
    Group,
    /// Kept directories are attached when the runner starts.
    Keep,
    /// The permissions of jobs are granted when the runner starts.
    Jobs,
    /// The operator registers runners at no GitHub.
    NoGitHub,
    /// The operator registers runners at repositories, and the class needs them at an organisation.
    Scope,
    /// GitHub no longer accepts runners of the version that its machines get; with the reason.
    Version(String),
    /// GitHub refused a call that only runners registered ahead need; with its error message.
    Refused(String),
}

impl AheadOff {
    /// Returns the contract's word.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Said => "Off",
            Self::Mode => "RegistrationMode",
            Self::Reuse(_) => "ReuseWithin",
            Self::Group => "RunnerGroup",
            Self::Keep => "Keep",
            Self::Jobs => "Jobs",
            Self::NoGitHub => "NoGitHub",
            Self::Scope => "GitHubScope",
            Self::Version(_) => "RunnerDeprecated",
            Self::Refused(_) => "GitHubRefuses",
        }
    }

    /// Returns whether the class was configured so on purpose: the setting that would have to change is worth more than
    /// the time saved.
    #[must_use]
    pub const fn is_choice(&self) -> bool {
        match self {
            Self::Said | Self::Mode | Self::Reuse(ReuseWithin::Never) => true,
            Self::Reuse(ReuseWithin::Repository | ReuseWithin::Owner | ReuseWithin::Any)
            | Self::Group
            | Self::Keep
            | Self::Jobs
            | Self::NoGitHub
            | Self::Scope
            | Self::Version(_)
            | Self::Refused(_) => false,
        }
    }

    /// The reasons that come from the spec, and not from its operator or GitHub.
    pub(crate) const OF_SPEC: &[&str] =
        &["Off", "RegistrationMode", "ReuseWithin", "RunnerGroup", "Keep", "Jobs"];

    /// Describes the conflict, in words that follow the field's name.
    #[must_use]
    pub fn why(&self) -> String {
        match self {
            Self::Said => "is false".to_owned(),
            Self::Mode => format!("does not go with registrationMode {}", RegistrationMode::Job),
            Self::Reuse(within) => format!("does not go with reuseWithin {within}"),
            Self::Group => "does not go with reuseWithin owner without a runnerGroup".to_owned(),
            Self::Keep => "does not go with keep: kept directories are lent when the runner starts".to_owned(),
            Self::Jobs => {
                "does not go with jobs: what they may do is granted when the runner starts".to_owned()
            }
            Self::NoGitHub => "needs a GitHub, and the operator has none".to_owned(),
            Self::Scope => {
                "with reuseWithin owner needs github.scope organization, and the operator registers runners at repositories"
                    .to_owned()
            }
            Self::Version(why) => format!("waits for another runner version: {why}"),
            Self::Refused(words) => format!("waits, because GitHub refuses what it needs: {words}"),
        }
    }

    /// Describes the condition that would have to hold.
    #[must_use]
    pub const fn fix(&self) -> &'static str {
        match self {
            Self::Said => "set registeredAhead to auto",
            Self::Mode => "set registrationMode to run: a single-use runner is made for its labels",
            Self::Reuse(_) => "set reuseWithin to repository, or to owner with a runnerGroup",
            Self::Group => {
                "set reuseWithin to repository, or name a runnerGroup that admits its repositories"
            }
            Self::Keep | Self::Jobs => "leave one of them out",
            Self::NoGitHub => "set github.kind to real",
            Self::Scope => "set github.scope to organization, or reuseWithin to repository",
            Self::Version(_) => {
                "give the class a runner package that GitHub supports (docs/runner-versions.md)"
            }
            Self::Refused(_) => {
                "give the operator's credential the right to manage runners where the class's are"
            }
        }
    }
}

/// The operator's status for a class: whether its runners are registered ahead, and if not, which conditions are
/// missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AheadStatus {
    /// Whether they are registered ahead.
    pub on: bool,
    /// The reasons why not, in words of [`AheadOff::as_str`], the most important first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// For people: the time that it saves or would save, and the setting to change.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl AheadStatus {
    /// Builds the status of a class that lacks these conditions.
    pub fn of(lacks: impl Iterator<Item = AheadOff>) -> Self {
        let lacks: Vec<AheadOff> = lacks.collect();
        let each = lacks.iter().map(|off| format!("registeredAhead {}: {}", off.why(), off.fix()));
        let message = match each.collect::<Vec<_>>() {
            none if none.is_empty() => format!("runners are registered ahead of claims, which saves {SAVED}"),
            each => format!(
                "runners are not registered ahead of claims, which would save {SAVED}; {}",
                each.join("; ")
            ),
        };
        let reasons = lacks.iter().map(|off| off.as_str().to_owned()).collect();
        Self { on: lacks.is_empty(), reasons, message }
    }

    /// Returns whether the status has exactly these reasons, regardless of third-party error messages in them.
    pub fn tells(&self, lacks: impl Iterator<Item = AheadOff>) -> bool {
        let mut told = self.reasons.iter();
        let mut number = 0;
        let same =
            lacks.inspect(|_| number += 1).all(|off| told.next().is_some_and(|one| one == off.as_str()));
        same && told.next().is_none() && self.on == (number == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_tells_what_it_was_made_of_and_nothing_else() {
        let one = || [AheadOff::Keep].into_iter();
        let two = || [AheadOff::Keep, AheadOff::Jobs].into_iter();
        let none = std::iter::empty;
        assert!(AheadStatus::of(none()).tells(none()) && AheadStatus::of(none()).on);
        assert!(AheadStatus::of(one()).tells(one()) && !AheadStatus::of(one()).on);
        assert!(!AheadStatus::of(one()).tells(two()) && !AheadStatus::of(two()).tells(one()));
        assert!(!AheadStatus::of(one()).tells(none()) && !AheadStatus::of(none()).tells(one()));
        let words = |words: &str| [AheadOff::Refused(words.into())].into_iter();
        assert!(AheadStatus::of(words("403")).tells(words("404")), "no write for other words");
        let odd = AheadStatus { on: false, reasons: Vec::new(), message: String::new() };
        assert!(!odd.tells(none()));
    }
}
