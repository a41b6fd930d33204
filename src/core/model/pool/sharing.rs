//! How a class shares its machines: by which property requests are grouped into shares, with which weights and quotas,
//! and how long use is remembered. The share of a request is looked up here and is never set by its workflow.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::selector::matches;
use crate::model::record::field::FieldError;
use crate::model::record::ids::Repository;
use crate::model::record::state::words;

words! {
    /// What a share is.
    ShareBy {
        /// A repository.
        Repository = "repository",
        /// An owner of repositories.
        Owner = "owner",
        /// A team, as the operator's file has them.
        Team = "team",
    }
}

/// The greatest weight of a share.
pub const MOST_WEIGHT: u32 = 1000;
/// The largest part of `max` that may be reserved, in percent.
pub const MOST_RESERVE: u32 = 50;
/// The most globs of weights, of quotas, of teams and of priorities.
pub const MOST_GLOBS: usize = 200;
/// How many shares a pool's status names; the sums of all others are one.
pub const SHARES_NAMED: usize = 64;

/// How a class shares its machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Sharing {
    /// The property by which requests are grouped.
    pub by: ShareBy,
    /// Globs of shares, and their weights; 1 where none matches.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<String, u32>,
    /// Globs of shares, and the bounds of each share.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub quotas: BTreeMap<String, Quota>,
    /// The time after which half of a use is forgotten.
    pub half_life: HalfLife,
    /// The part of `max`, in percent, that only shares without a machine may use.
    #[serde(skip_serializing_if = "is_zero")]
    pub reserve: u32,
}

impl Default for Sharing {
    fn default() -> Self {
        Self {
            by: ShareBy::Repository,
            weights: BTreeMap::new(),
            quotas: BTreeMap::new(),
            half_life: HalfLife::default(),
            reserve: 0,
        }
    }
}

const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The bounds of a share; none where there is no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Quota {
    /// Most machines at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_machines: Option<u32>,
    /// Most requests that wait at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_waiting: Option<u32>,
    /// Machines that it gets before any other share; others use them while it requests none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guaranteed: Option<u32>,
}

/// The time after which half of a use is forgotten: a minute to 30 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HalfLife(Duration);

impl HalfLife {
    /// The shortest and the longest.
    const BOUNDS: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(30 * 24 * 3600));

    /// Returns the duration.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl Default for HalfLife {
    fn default() -> Self {
        Self(Duration::from_secs(24 * 3600))
    }
}

impl FromStr for HalfLife {
    type Err = FieldError;

    fn from_str(text: &str) -> Result<Self, FieldError> {
        let refused = || {
            let fix = "write a number and a unit, from 1m to 720h, such as \"24h\"";
            FieldError::new("halfLife", text, "is not a half-life", fix)
        };
        let signed: SignedDuration = text.parse().map_err(|_| refused())?;
        let duration = Duration::try_from(signed).map_err(|_| refused())?;
        let (least, most) = Self::BOUNDS;
        let whole = duration.subsec_nanos() == 0;
        if whole && (least..=most).contains(&duration) { Ok(Self(duration)) } else { Err(refused()) }
    }
}

impl TryFrom<String> for HalfLife {
    type Error = FieldError;

    fn try_from(text: String) -> Result<Self, FieldError> {
        text.parse()
    }
}

impl fmt::Display for HalfLife {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        match (seconds % 3600, seconds % 60) {
            (0, _) => write!(f, "{}h", seconds / 3600),
            (_, 0) => write!(f, "{}m", seconds / 60),
            (_, _) => write!(f, "{seconds}s"),
        }
    }
}

impl From<HalfLife> for String {
    fn from(half_life: HalfLife) -> Self {
        half_life.to_string()
    }
}

/// Returns the value of the glob that matches a name most closely: the one with the most characters other than `*`, of
/// equals the first by the alphabet. Globs and names are compared without regard to case.
pub fn closest<'a, T>(globs: &'a BTreeMap<String, T>, name: &str) -> Option<(&'a str, &'a T)> {
    let name = name.to_ascii_lowercase();
    let literal = |glob: &str| glob.bytes().filter(|byte| *byte != b'*').count();
    let fitting = globs.iter().filter(|(glob, _)| matches(&glob.to_ascii_lowercase(), &name));
    let best = fitting.rev().max_by_key(|(glob, _)| literal(glob))?;
    Some((best.0.as_str(), best.1))
}

impl Sharing {
    /// Returns the share of a repository's requests, in lower case. A repository that no team names belongs to its
    /// owner's share.
    pub fn share(&self, repository: &Repository, teams: &BTreeMap<String, String>) -> String {
        let folded = repository.folded();
        match self.by {
            ShareBy::Repository => folded.to_string(),
            ShareBy::Owner => folded.owner().to_owned(),
            ShareBy::Team => {
                let team = closest(teams, folded.as_str()).map(|(_, team)| team.to_ascii_lowercase());
                team.unwrap_or_else(|| folded.owner().to_owned())
            }
        }
    }

    /// Returns the weight of a share, at least 1.
    pub fn weight(&self, share: &str) -> u32 {
        closest(&self.weights, share).map_or(1, |(_, weight)| (*weight).clamp(1, MOST_WEIGHT))
    }

    /// Returns the bounds of a share.
    pub fn quota(&self, share: &str) -> Quota {
        closest(&self.quotas, share).map(|(_, quota)| *quota).unwrap_or_default()
    }
}

/// The use of a class's shares at a given time. Half of each sum is forgotten each half-life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// The time.
    pub at: Timestamp,
    /// The decayed use of the shares that used most, in machine-milliseconds.
    #[serde(default)]
    pub sums: BTreeMap<String, u64>,
    /// The use of all others together.
    #[serde(default)]
    pub other: u64,
}

/// The repositories that may use a priority, and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Priority {
    /// Higher is served first; requests without a priority have 0.
    pub value: i32,
    /// Globs of repositories that may use it.
    #[serde(default = "everyone")]
    pub repositories: Vec<String>,
}

fn everyone() -> Vec<String> {
    vec!["*".into()]
}

/// The sharing settings of the whole yard: the `[sharing]` of the operator's file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct YardSharing {
    /// Globs of repositories, and their teams.
    pub teams: BTreeMap<String, String>,
    /// The priorities by name.
    pub priorities: BTreeMap<String, Priority>,
    /// Globs of shares, and the bounds of each share over all classes with `sharing`.
    pub quotas: BTreeMap<String, Quota>,
}

impl YardSharing {
    /// Returns the value of the priority that a repository's request names.
    ///
    /// # Errors
    /// A sentence that lists the priorities that the repository may use.
    pub fn priority(&self, name: Option<&str>, repository: &Repository) -> Result<i32, String> {
        let Some(name) = name else { return Ok(0) };
        let folded = repository.folded();
        let may = |priority: &Priority| {
            let mut globs = priority.repositories.iter();
            globs.any(|glob| matches(&glob.to_ascii_lowercase(), folded.as_str()))
        };
        match self.priorities.get(name) {
            Some(priority) if may(priority) => Ok(priority.value),
            known => {
                let open = self.priorities.iter().filter(|(_, priority)| may(priority));
                let open: Vec<&str> = open.map(|(name, _)| name.as_str()).collect();
                let open = if open.is_empty() { "none".into() } else { open.join(", ") };
                let why = if known.is_some() {
                    format!("is not open to {repository}")
                } else {
                    "is unknown".into()
                };
                Err(format!(
                    "priority {name} {why}; {repository} may use {open} (`[sharing]` of the operator's file)"
                ))
            }
        }
    }

    /// Returns the bounds of a share over all classes.
    pub fn quota(&self, share: &str) -> Quota {
        closest(&self.quotas, share).map(|(_, quota)| *quota).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(name: &str) -> Repository {
        Repository::parse(name).unwrap()
    }

    fn map<T: Clone>(pairs: &[(&str, T)]) -> BTreeMap<String, T> {
        pairs.iter().map(|(glob, value)| ((*glob).to_owned(), value.clone())).collect()
    }

    #[test]
    fn the_glob_with_the_most_letters_of_its_own_wins_whatever_its_case() {
        let weights = map(&[("*", 1), ("acme/*", 2), ("Acme/Web", 3), ("acme/w*", 4)]);
        for (name, weight) in [("other/x", 1), ("acme/api", 2), ("acme/web", 3), ("ACME/www", 4)] {
            assert_eq!(closest(&weights, name).map(|(_, weight)| *weight), Some(weight), "{name}");
        }
        assert_eq!(closest(&map(&[("a*", 1), ("*a", 2)]), "aa"), Some(("*a", &2)), "of equals the first");
        assert_eq!(closest(&map::<u32>(&[]), "a"), None);
    }

    #[test]
    fn a_share_is_a_repository_an_owner_or_a_team_and_never_an_unknown_one() {
        let teams = map(&[("acme/*", "Platform".to_owned()), ("acme/web*", "web".to_owned())]);
        let share =
            |by: ShareBy, name: &str| Sharing { by, ..Sharing::default() }.share(&repository(name), &teams);
        assert_eq!(share(ShareBy::Repository, "Acme/Web"), "acme/web");
        assert_eq!(share(ShareBy::Owner, "Acme/Web"), "acme");
        assert_eq!(share(ShareBy::Team, "Acme/Web-2"), "web");
        assert_eq!(share(ShareBy::Team, "acme/api"), "platform");
        assert_eq!(share(ShareBy::Team, "Fork/api"), "fork", "a team of nobody is its owner");
    }

    #[test]
    fn weights_that_no_apply_let_in_are_read_as_the_nearest_that_can_be() {
        let sharing = Sharing { weights: map(&[("a", 0), ("b", u32::MAX)]), ..Sharing::default() };
        assert_eq!((sharing.weight("a"), sharing.weight("b"), sharing.weight("c")), (1, MOST_WEIGHT, 1));
    }

    #[test]
    fn a_half_life_is_from_a_minute_to_thirty_days() {
        for (text, told) in
            [("24h", "24h"), ("90m", "90m"), ("1h 30m", "90m"), ("61s", "61s"), ("720h", "720h")]
        {
            assert_eq!(text.parse::<HalfLife>().unwrap().to_string(), told);
        }
        for bad in ["", "24", "59s", "721h", "-1h", "1h 1ms", "soon"] {
            assert_eq!(bad.parse::<HalfLife>().unwrap_err().field, "halfLife", "{bad}");
        }
    }

    #[test]
    fn a_priority_that_is_refused_is_answered_with_those_that_are_open() {
        let of = |value, globs: &[&str]| Priority {
            value,
            repositories: globs.iter().map(|glob| (*glob).to_owned()).collect(),
        };
        let yard = YardSharing {
            priorities: map(&[("high", of(100, &["Acme/release"])), ("bulk", of(-10, &["*"]))]),
            ..YardSharing::default()
        };
        let ask = |name: Option<&str>, of: &str| yard.priority(name, &repository(of));
        assert_eq!(ask(None, "acme/web"), Ok(0));
        assert_eq!(ask(Some("high"), "acme/Release"), Ok(100));
        assert_eq!(
            ask(Some("high"), "acme/web").unwrap_err(),
            "priority high is not open to acme/web; acme/web may use bulk (`[sharing]` of the operator's file)"
        );
        assert_eq!(
            ask(Some("urgent"), "acme/release").unwrap_err(),
            "priority urgent is unknown; acme/release may use bulk, high (`[sharing]` of the operator's file)"
        );
        assert_eq!(
            YardSharing::default().priority(Some("x"), &repository("a/b")).unwrap_err(),
            "priority x is unknown; a/b may use none (`[sharing]` of the operator's file)"
        );
    }
}
