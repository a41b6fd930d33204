//! Identifiers as types of their own, checked where they enter, and the keys built from them.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::field::FieldError;

/// Declares an identifier: a string that passed `$check`. Copies share the text, because a yard names each machine in
/// many places.
macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident, $field:literal, $check:expr, $fix:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Parses a value of the right form.
            ///
            /// # Errors
            /// Names the value and the expected form.
            pub fn parse(value: &str) -> Result<Self, FieldError> {
                let check: fn(&str) -> bool = $check;
                if check(value) {
                    Ok(Self(value.into()))
                } else {
                    Err(FieldError::new($field, value, concat!("not a valid ", $field), $fix))
                }
            }

            /// Returns the identifier as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = FieldError;
            fn from_str(value: &str) -> Result<Self, FieldError> {
                Self::parse(value)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = FieldError;
            fn try_from(value: String) -> Result<Self, FieldError> {
                Self::parse(&value)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0.as_ref().to_owned()
            }
        }
    };
}

identifier!(
    /// The name of a resource class: the one that a workflow requests and a pool provides.
    ClassName, "resourceClass",
    |v| slug(v) && !v.ends_with("-dead"),
    "use 1 to 40 of a-z, 0-9 and -, starting with a letter or digit, not ending in -dead"
);
/// The suffix of the doorbell's queue name after the table's name.
pub const DOORBELL: &str = "doorbell";
/// The suffix of the interruptions queue's name after the table's name, by convention.
pub const INTERRUPTIONS: &str = "interruptions";
/// The suffix of the name of the queue of GitHub's queued jobs after the table's name.
pub const JOBS: &str = "jobs";

impl ClassName {
    /// Returns whether a queue other than a class's has this name; a class with the name would share that queue.
    pub fn is_reserved(&self) -> bool {
        [DOORBELL, INTERRUPTIONS, JOBS].contains(&self.as_str())
    }
}

identifier!(
    /// The name of a request within its run; most runs have one, `default`.
    RequestName, "name", slug,
    "use 1 to 40 of a-z, 0-9 and -, starting with a letter or digit"
);
identifier!(
    /// A workflow run's id as GitHub gives it.
    RunId, "runId",
    |v| (1..=64).contains(&v.len()) && v.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b)),
    "use 1 to 64 of A-Z, a-z, 0-9, _, . and -, as in GITHUB_RUN_ID"
);
identifier!(
    /// `owner/name` of a GitHub repository, or `owner/~` for all repositories of an organisation.
    Repository, "repository", |v| repository(v) || v.strip_suffix(ALL).is_some_and(owner),
    "use OWNER/REPO, as in GITHUB_REPOSITORY"
);
identifier!(
    /// EC2's id of an instance, or local mode's.
    InstanceId, "instanceId",
    |v| (1..=64).contains(&v.len()) && v.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'),
    "use an id such as i-0123456789abcdef0"
);
identifier!(
    /// The ARN of an instance; part of the keys of its two records.
    InstanceArn, "instanceArn",
    |v| v.len() <= 200 && v.starts_with("arn:") && v.contains(":instance/") && !v.contains('#') && plain(v),
    "use arn:<partition>:ec2:<region>:<account>:instance/<id>"
);
identifier!(
    /// Names one assignment of one machine to one request; never used again.
    ClaimId, "claimId",
    |v| (1..=128).contains(&v.len()) && plain(v),
    "use 1 to 128 printable ASCII characters without spaces"
);
identifier!(
    /// Distinguishes a record from former ones under the same key; set by the record's creator.
    Uid, "uid",
    |v| (1..=128).contains(&v.len()) && plain(v),
    "use 1 to 128 printable ASCII characters without spaces"
);
identifier!(
    /// The secret part of a request's label; drawn at random by the verb that writes the request.
    LabelSuffix, "labelSuffix",
    |v| v.len() == LabelSuffix::LENGTH && v.bytes().all(|b| LabelSuffix::ALPHABET.contains(&b)),
    "use 8 of a-z and 0-9, or leave it out; `runyard provision --secret-label` draws one"
);
identifier!(
    /// Names one intent to launch machines.
    LaunchId, "launchId",
    |v| (1..=56).contains(&v.len()) && v.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'),
    "use 1 to 56 of A-Z, a-z, 0-9 and -"
);
identifier!(
    /// The name of the DynamoDB table, and the value that marks our resources at EC2.
    TableName, "table",
    |v| (3..=255).contains(&v.len()) && v.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b)),
    "use 3 to 255 of A-Z, a-z, 0-9, _, . and - (DynamoDB's rule for table names)"
);

impl TableName {
    /// Returns the name of the yard's history table; none where the yard's name is too long for it.
    pub fn history(&self) -> Option<Self> {
        Self::parse(&format!("{}-history", self.0)).ok()
    }
}

fn slug(v: &str) -> bool {
    (1..=40).contains(&v.len())
        && !v.starts_with('-')
        && v.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

fn plain(v: &str) -> bool {
    v.bytes().all(|b| b.is_ascii_graphic())
}

/// What follows the owner of all repositories of an organisation. GitHub allows no `~` in a name.
const ALL: &str = "/~";

fn owner(v: &str) -> bool {
    (1..=100).contains(&v.len())
        && !v.starts_with('-')
        && v.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
}

fn repository(v: &str) -> bool {
    let name = |n: &str| {
        (1..=100).contains(&n.len())
            && n != "."
            && n != ".."
            && n.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
    };
    v.split_once('/').is_some_and(|(o, n)| owner(o) && name(n))
}

impl Repository {
    /// Parses the name of one repository, as GitHub, a workflow or a person writes it. Keys of slots alone name all
    /// repositories of an organisation.
    ///
    /// # Errors
    /// Names the value and the expected form.
    pub fn parse_at_github(value: &str) -> Result<Self, FieldError> {
        let parsed = Self::parse(value)?;
        if parsed.is_organization() {
            let message = "`~` is the name of no repository";
            return Err(FieldError::new(
                "repository",
                value,
                message,
                "use OWNER/REPO, as in GITHUB_REPOSITORY",
            ));
        }
        Ok(parsed)
    }

    /// Returns what stands in keys for all repositories of an organisation.
    ///
    /// # Errors
    /// Names the value and the expected form, if it is not the name of an owner.
    pub fn of_organization(owner: &str) -> Result<Self, FieldError> {
        Self::parse(&format!("{owner}{ALL}"))
    }

    /// Returns whether it stands for all repositories of an organisation.
    pub fn is_organization(&self) -> bool {
        self.0.ends_with(ALL)
    }

    /// Returns the account or organisation.
    pub fn owner(&self) -> &str {
        self.0.split_once('/').map_or("", |(owner, _)| owner)
    }

    /// Returns the repository's name without its owner.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, name)| name)
    }

    /// Returns the form used in keys and comparisons: lower case, because GitHub ignores case.
    pub fn folded(&self) -> Self {
        Self(self.0.to_ascii_lowercase().into())
    }

    /// Returns whether it is the same repository, regardless of case.
    pub fn is(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl LabelSuffix {
    /// The number of its characters.
    const LENGTH: usize = 8;
    /// The allowed characters.
    const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

    /// Draws a suffix from a cryptographic random source; `fill` fills a buffer from it.
    pub fn draw(mut fill: impl FnMut(&mut [u8])) -> Self {
        let mut drawn = String::with_capacity(Self::LENGTH);
        // Byte values beyond a multiple of 36 are rejected, so that all characters are equally likely.
        let fair = u8::MAX - u8::MAX % Self::ALPHABET.len() as u8;
        while drawn.len() < Self::LENGTH {
            let mut byte = [0];
            fill(&mut byte);
            if byte[0] < fair {
                drawn.push(char::from(Self::ALPHABET[usize::from(byte[0]) % Self::ALPHABET.len()]));
            }
        }
        Self(drawn.into())
    }
}

impl RunId {
    /// Returns the number of the runner scale set whose slot a request with this run id is; none for a run.
    pub fn set(&self) -> Option<u64> {
        let digits = self.0.strip_prefix("set-")?;
        // One set, one key: `+7` and `07` would name another record.
        digits.parse().ok().filter(|number: &u64| number.to_string() == digits)
    }
}

impl RequestName {
    /// Returns the name of a request unless its workflow sets one.
    pub fn default_name() -> Self {
        Self("default".into())
    }
}

impl InstanceArn {
    /// Returns the ARN of an instance in local mode.
    pub fn local(id: &InstanceId) -> Self {
        Self(format!("arn:aws:ec2:local:000000000000:instance/{id}").into())
    }

    /// Returns the instance id at the end of the ARN.
    pub fn instance_id(&self) -> &str {
        self.0.rsplit_once('/').map_or("", |(_, id)| id)
    }
}

impl ClaimId {
    /// Returns the claim that a write makes: the machine and the version that its record has after that write. Versions
    /// only rise, so no two assignments of a machine share one.
    pub fn of(instance: &InstanceId, version: u64) -> Self {
        Self(format!("{instance}.{version}").into())
    }

    /// Returns the version that the machine's record had after the claim; 0 for a claim that another program named.
    pub fn version(&self) -> u64 {
        self.0.rsplit_once('.').and_then(|(_, version)| version.parse().ok()).unwrap_or(0)
    }
}

/// The identity of a request: the parts of its key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestKey {
    /// The repository whose workflow requests: lower case, except in keys that were written before that was the rule.
    pub repository: Repository,
    /// The workflow run.
    pub run_id: RunId,
    /// The request's name among those of the run.
    pub name: RequestName,
    /// The attempt of the run, from 1.
    pub attempt: u32,
}

impl RequestKey {
    /// Returns the number of the runner scale set whose slot this is; none for the request of a run.
    pub fn set(&self) -> Option<u64> {
        self.run_id.set()
    }
}

impl fmt::Display for RequestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} run {}/{}/{}", self.repository, self.run_id, self.name, self.attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_names_are_short_slugs_that_no_dead_letter_queue_can_collide_with() {
        for good in ["a", "linux-x64", "0", &"a".repeat(40)] {
            assert!(ClassName::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "Linux", "a b", "a_b", "x-dead", "é", "a\n", &"a".repeat(41)] {
            let error = ClassName::parse(bad).unwrap_err();
            assert_eq!(error.field, "resourceClass", "{bad}");
            assert!(!error.fix.is_empty());
        }
    }

    #[test]
    fn run_ids_take_what_github_and_people_use_and_nothing_a_shell_minds() {
        for good in ["1", "1234567890", "local_run.1-2"] {
            assert!(RunId::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "a/b", "a#b", "$(x)", "a b", "\u{202e}x", "a\0", &"9".repeat(65)] {
            assert!(RunId::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn repositories_have_an_owner_and_a_name() {
        let ours = Repository::parse("acme/web.site").unwrap();
        assert_eq!((ours.owner(), ours.name()), ("acme", "web.site"));
        for bad in ["acme", "acme/", "/x", "a/b/c", "../..", "acme/..", "a b/c", "-a/b"] {
            assert!(Repository::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_tilde_alone_stands_for_all_repositories_of_an_organisation() {
        let all = Repository::of_organization("Acme").unwrap();
        assert_eq!((all.as_str(), all.owner(), all.name()), ("Acme/~", "Acme", "~"));
        assert!(all.is_organization() && Repository::parse("acme/~").is_ok_and(|other| other.is(&all)));
        assert!(!Repository::parse("acme/web").unwrap().is_organization());
        for bad in ["acme/a~b", "acme/~~", "acme/~a", "acme/a~", "~/~", "~/web", "/~", "~", "a/b/~"] {
            assert!(Repository::parse(bad).is_err(), "{bad}");
        }
        for bad in ["", "a b", "-a", "acme/web", "~"] {
            assert!(Repository::of_organization(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn nobody_at_github_has_a_repository_that_is_called_by_a_tilde() {
        assert!(Repository::parse_at_github("acme/web").is_ok());
        for bad in ["acme/~", "acme", "acme/a~b"] {
            let error = Repository::parse_at_github(bad).unwrap_err();
            assert_eq!((error.field.as_str(), error.value.as_str()), ("repository", bad));
        }
    }

    #[test]
    fn a_slot_is_known_by_its_run_id() {
        let set = |run: &str| RunId::parse(run).unwrap().set();
        assert_eq!((set("set-7"), set("set-18446744073709551615")), (Some(7), Some(u64::MAX)));
        for run in
            ["7", "set", "set-", "set-07", "set--7", "set-7-1", "set-7a", "Set-7", "set-18446744073709551616"]
        {
            assert_eq!(set(run), None, "{run}");
        }
        let key = RequestKey {
            repository: Repository::of_organization("acme").unwrap(),
            run_id: RunId::parse("set-7").unwrap(),
            name: RequestName::parse("s1").unwrap(),
            attempt: 1,
        };
        assert_eq!(key.set(), Some(7));
    }

    /// Returns for each of these whether it is accepted.
    fn taken<T>(parse: fn(&str) -> Result<T, FieldError>, values: &[&str]) -> Vec<bool> {
        values.iter().map(|value| parse(value).is_ok()).collect()
    }

    #[test]
    fn every_name_is_taken_to_its_last_character_and_not_beyond() {
        let long = |n: usize| "x".repeat(n);
        let arn = |n: usize| format!("arn:aws:ec2:local:0:instance/{}", "x".repeat(n - 29));
        assert_eq!(taken(RunId::parse, &[&long(64), &long(65), ""]), [true, false, false]);
        assert_eq!(taken(InstanceId::parse, &[&long(64), &long(65), "", "i_1"]), [true, false, false, false]);
        assert_eq!(taken(LaunchId::parse, &[&long(56), &long(57), "", "l.1"]), [true, false, false, false]);
        assert_eq!(taken(ClaimId::parse, &[&long(128), &long(129), "", "a b"]), [true, false, false, false]);
        let spoilt = [arn(40).replace('x', " "), arn(40).replace('x', "#"), arn(40).replace("arn:", "urn:")];
        let [spaced, hashed, other] = spoilt.each_ref().map(String::as_str);
        let values = [&*arn(200), &*arn(201), spaced, hashed, other, "arn:aws:ec2:x"];
        assert_eq!(taken(InstanceArn::parse, &values), [true, false, false, false, false, false]);
        let values = ["abc", "ab", &*long(255), &*long(256), "a b", "a.b_c-d"];
        assert_eq!(taken(TableName::parse, &values), [true, false, true, false, false, true]);
        let (owner, name) = (format!("{}/a", long(100)), format!("a/{}", long(100)));
        let (owners, names) = (format!("{}/a", long(101)), format!("a/{}", long(101)));
        let values = [&*owner, &*name, &*owners, &*names, "a_b/c", "a/.", "a/..", "a/...", "a/b c"];
        let expected = [true, true, false, false, true, false, false, true, false];
        assert_eq!(taken(Repository::parse, &values), expected);
    }

    #[test]
    fn names_tell_what_they_are_made_of() {
        let arn = InstanceArn::local(&"i-1".parse().unwrap());
        assert_eq!(arn.as_str(), "arn:aws:ec2:local:000000000000:instance/i-1");
        assert_eq!(arn.instance_id(), "i-1");
        assert_eq!(RequestName::default_name().as_str(), "default");
        let key = RequestKey {
            repository: "acme/web".parse().unwrap(),
            run_id: "7".parse().unwrap(),
            name: "gpu".parse().unwrap(),
            attempt: 2,
        };
        assert_eq!(key.to_string(), "acme/web run 7/gpu/2");
    }

    #[test]
    fn the_version_of_a_claim_is_known_if_it_was_named_here() {
        for (claim, version) in [("i-1.7", 7), ("i-1.0", 0), ("theirs", 0), ("theirs.x", 0), ("a.b.12", 12)] {
            assert_eq!(claim.parse::<ClaimId>().unwrap().version(), version, "{claim}");
        }
    }

    #[test]
    fn a_label_suffix_is_drawn_evenly_and_is_eight_small_letters_and_digits() {
        let mut next = 0u8;
        let mut seen = std::collections::BTreeMap::new();
        for _ in 0..63 {
            let drawn = LabelSuffix::draw(|buffer| {
                buffer.fill(next);
                next = next.wrapping_add(1);
            });
            assert_eq!(LabelSuffix::parse(drawn.as_str()).as_ref(), Ok(&drawn));
            drawn.as_str().bytes().for_each(|byte| *seen.entry(byte).or_insert(0) += 1);
        }
        // Two rounds of all bytes: 252 of each 256 count, 7 for each character.
        assert_eq!((seen.len(), seen.values().all(|times| *times == 14)), (36, true), "{seen:?}");
        let values = ["abcd0189", "abcd018", "abcd01899", "ABCD0189", "abcd-189", "abcd.189", ""];
        assert_eq!(taken(LabelSuffix::parse, &values), [true, false, false, false, false, false, false]);
    }

    #[test]
    fn a_suffix_that_is_refused_is_shown_to_nobody() {
        let error = LabelSuffix::parse("Secret12").unwrap_err();
        assert!(!error.to_string().contains("Secret12") && error.to_string().contains("********"), "{error}");
    }

    #[test]
    fn a_refused_value_is_shown_cut() {
        let error = RunId::parse(&"x".repeat(300)).unwrap_err();
        assert_eq!(error.value.chars().count(), 121);
    }

    #[test]
    fn claims_of_one_machine_differ_by_version() {
        let id = InstanceId::parse("i-0123456789abcdef0").unwrap();
        assert_eq!(ClaimId::of(&id, 7).as_str(), "i-0123456789abcdef0.7");
    }
}
