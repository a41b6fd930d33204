//! Kept directories: the parts of a machine's disk that survive from one run of a repository to the next. Which paths a
//! class may keep is decided in one place, for `apply`, for the operator and for the agent.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::record::field::FieldError;
use crate::model::record::ids::ClaimId;
use crate::model::record::item::AttributeValue;
use crate::model::record::state::words;

words! {
    /// Whose runs share a kept directory.
    KeepScope {
        /// Those of one repository.
        Repository = "repository",
    }
}

words! {
    /// The runs whose changes are kept.
    WriteFrom {
        /// Those of the repository's default branch.
        DefaultBranch = "default-branch",
        /// Those of any branch that GitHub says is protected.
        Protected = "protected",
    }
}

/// The most directories that a class keeps.
pub const MOST_KEPT: usize = 8;
/// The most kept directories that an agent reports.
pub const MOST_REPORTED: usize = 10;
/// The prefix of the path of a directory in the job user's home.
pub const HOME: &str = "~/";
/// The longest path of a kept directory, in bytes.
const LONGEST_PATH: usize = 200;
/// The most GiB of a kept directory.
const MOST_GIB: u32 = 1000;
/// The most days that a directory is kept unused.
const MOST_DAYS: u32 = 365;
/// Directories of the system, of each job or of the agent: nothing is kept in, at or above them.
const SYSTEM: [&str; 20] = [
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/sys",
    "/tmp",
    "/usr",
    "/var/lib/runyard",
    "/var/lock",
    "/var/log",
    "/var/run",
    "/var/tmp",
];

/// A directory that a class keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Keep {
    /// Its name, unique in the class.
    pub name: String,
    /// The path where jobs find it: absolute, or beginning with `~/`.
    pub path: String,
    /// Which runs share it.
    #[serde(default = "repository")]
    pub scope: KeepScope,
    /// The runs whose changes are kept.
    #[serde(default = "default_branch")]
    pub write_from: WriteFrom,
    /// The most GiB that are kept; a larger one starts again empty.
    #[serde(rename = "maxGiB", default = "ten")]
    pub max_gib: u32,
    /// For how many days it is kept unused.
    #[serde(default = "thirty")]
    pub max_age_days: u32,
}

fn repository() -> KeepScope {
    KeepScope::Repository
}
fn default_branch() -> WriteFrom {
    WriteFrom::DefaultBranch
}
fn ten() -> u32 {
    10
}
fn thirty() -> u32 {
    30
}

impl Keep {
    /// Checks the directory by itself.
    ///
    /// # Errors
    /// Names the attribute, its value and the fix.
    pub fn check(&self) -> Result<(), FieldError> {
        let refuse = |field: &str, value: &str, message: &str, fix: &str| {
            Err(FieldError::new(field, value, message, fix))
        };
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let (name, path) = (self.name.as_str(), self.path.as_str());
        if name.is_empty() || name.len() > 40 || name.starts_with('-') || !name.bytes().all(plain) {
            return refuse("name", name, "is no name", "use 1 to 40 of a-z, 0-9 and -, such as cargo");
        }
        let below = path.strip_prefix(HOME).or_else(|| path.strip_prefix('/'));
        let Some(below) = below else {
            return refuse("path", path, "is not absolute", "begin it with / or, for the job's home, ~/");
        };
        if path.len() > LONGEST_PATH || !path.bytes().all(|b| b.is_ascii_graphic()) {
            let fix = "use at most 200 printable characters without spaces";
            return refuse("path", path, "is too long or has a blank", fix);
        }
        if below.split('/').any(|part| ["", ".", ".."].contains(&part)) {
            let fix = "write it plainly, such as ~/.cargo/registry: no empty part, no . and no ..";
            return refuse("path", path, "is not a plain path", fix);
        }
        let reaches = |dir: &&str| within(path, dir) || within(dir, path);
        if let Some(dir) = SYSTEM.into_iter().find(reaches) {
            let message = format!("is in or above {dir}, which is not a job's to keep");
            return refuse("path", path, &message, "keep a directory of the job's home, /opt, /srv or /mnt");
        }
        if path.starts_with('/') && !below.contains('/') {
            let fix = "name a directory in it, such as /opt/hostedtoolcache";
            return refuse("path", path, "is a top directory of the machine", fix);
        }
        if !(1..=MOST_GIB).contains(&self.max_gib) {
            return refuse("maxGiB", &self.max_gib.to_string(), "is no size", "use 1 to 1000");
        }
        if !(1..=MOST_DAYS).contains(&self.max_age_days) {
            return refuse("maxAgeDays", &self.max_age_days.to_string(), "is no age", "use 1 to 365");
        }
        Ok(())
    }

    /// Checks the directories of a class, each by itself and against the others.
    ///
    /// # Errors
    /// The number of the first invalid one, and its fault.
    pub fn check_all(keep: &[Self]) -> Result<(), (usize, FieldError)> {
        for (at, one) in keep.iter().enumerate() {
            one.check().map_err(|error| (at, error))?;
            if at >= MOST_KEPT {
                let message = format!("is one more than the {MOST_KEPT} that a class may keep");
                return Err((at, FieldError::new("name", &one.name, message, "keep fewer")));
            }
            for other in &keep[..at] {
                if other.name == one.name {
                    let fix = "give each its own name";
                    return Err((at, FieldError::new("name", &one.name, "stands there twice", fix)));
                }
                if within(&one.path, &other.path) || within(&other.path, &one.path) {
                    let message = format!("overlaps with {} ({})", other.path, other.name);
                    let fix = "keep one of the two, or two that lie apart";
                    return Err((at, FieldError::new("path", &one.path, message, fix)));
                }
            }
        }
        Ok(())
    }
}

/// Returns whether a path is a directory or lies in it.
fn within(path: &str, dir: &str) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A kept directory of one name and repository on a machine, as its agent reports it: a hint, and no proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Kept {
    /// The repository, `owner/name` in lower case.
    pub repository: String,
    /// How often it was written, from 1.
    pub generation: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// When a claim last used it, by the machine's clock.
    pub used_at: Timestamp,
}

/// The report of an agent, by name; the second and further repositories of a name have `#2`, `#3` appended.
pub type KeptDirectories = BTreeMap<String, Kept>;

/// Lists the reported directories of one repository (`owner/name` in lower case), with the name of each.
pub fn kept_of<'a>(kept: &'a KeptDirectories, repository: &str) -> impl Iterator<Item = (&'a str, &'a Kept)> {
    let of = kept.iter().filter(move |(_, kept)| kept.repository == repository);
    of.map(|(key, kept)| (key.split('#').next().unwrap_or_default(), kept))
}

/// Returns the form in the agent's record.
pub fn kept_attribute(kept: &KeptDirectories) -> AttributeValue {
    serde_dynamo::to_attribute_value(kept).expect("it has only types that DynamoDB can hold")
}

/// The operator's decision about a claim's writes into kept directories, by GitHub's record of its run. Without one,
/// nothing is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Promotion {
    /// The claim that it is for.
    pub claim_id: ClaimId,
    /// The names of the directories whose changes are kept; none where no change is.
    #[serde(default)]
    pub names: Vec<String>,
    /// The reason, for people.
    #[serde(default)]
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(more: serde_json::Value) -> Keep {
        let mut fields = serde_json::json!({"name": "cargo", "path": "~/.cargo/registry"});
        for (name, value) in more.as_object().unwrap() {
            fields[name] = value.clone();
        }
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn what_a_kept_directory_does_not_say_has_its_default() {
        let plain = keep(serde_json::json!({}));
        assert_eq!((plain.scope, plain.write_from), (KeepScope::Repository, WriteFrom::DefaultBranch));
        assert_eq!((plain.max_gib, plain.max_age_days), (10, 30));
        assert_eq!(plain.check(), Ok(()));
        for path in ["/opt/hostedtoolcache", "/mnt/git/mirrors", "~/go", "/home/runner/.npm", "/var/cache/x"]
        {
            assert_eq!(keep(serde_json::json!({"path": path})).check(), Ok(()), "{path}");
        }
    }

    #[test]
    fn a_path_that_no_class_may_keep_is_refused_by_field_value_and_fix() {
        for (field, value) in [
            ("path", serde_json::json!("")),
            ("path", serde_json::json!("cache")),
            ("path", serde_json::json!("~")),
            ("path", serde_json::json!("~/")),
            ("path", serde_json::json!("~root/x")),
            ("path", serde_json::json!("/")),
            ("path", serde_json::json!("/opt")),
            ("path", serde_json::json!("/home")),
            ("path", serde_json::json!("/opt/../etc")),
            ("path", serde_json::json!("/opt/./x")),
            ("path", serde_json::json!("/opt//x")),
            ("path", serde_json::json!("/opt/x/")),
            ("path", serde_json::json!("~/../x")),
            ("path", serde_json::json!("/opt/a b")),
            ("path", serde_json::json!(format!("/opt/{}", "x".repeat(200)))),
            ("path", serde_json::json!("/etc/cache")),
            ("path", serde_json::json!("/usr/local/cache")),
            ("path", serde_json::json!("/tmp/x")),
            ("path", serde_json::json!("/var/lib")),
            ("path", serde_json::json!("/var/lib/runyard/claims")),
            ("path", serde_json::json!("/proc/1")),
            ("name", serde_json::json!("")),
            ("name", serde_json::json!("Cargo")),
            ("name", serde_json::json!("-x")),
            ("name", serde_json::json!("a/b")),
            ("name", serde_json::json!("x".repeat(41))),
            ("maxGiB", serde_json::json!(0)),
            ("maxGiB", serde_json::json!(1001)),
            ("maxAgeDays", serde_json::json!(0)),
            ("maxAgeDays", serde_json::json!(366)),
        ] {
            let error =
                keep(serde_json::json!({field: value})).check().expect_err(&format!("{field} {value}"));
            assert_eq!(error.field, field, "{error:?}");
            assert!(!error.message.is_empty() && !error.fix.is_empty(), "{error:?}");
        }
        assert_eq!(keep(serde_json::json!({"path": "/etcetera/x"})).check(), Ok(()));
    }

    #[test]
    fn kept_directories_of_a_class_do_not_overlap_and_are_few() {
        let of = |paths: &[&str]| -> Vec<Keep> {
            let named = paths.iter().enumerate();
            named.map(|(i, path)| keep(serde_json::json!({"name": format!("n{i}"), "path": path}))).collect()
        };
        assert_eq!(Keep::check_all(&of(&["~/.npm", "~/.npmrc.d", "/opt/a"])), Ok(()));
        for paths in [["/opt/a", "/opt/a/b"], ["/opt/a/b", "/opt/a"], ["~/.npm", "~/.npm"]] {
            let (at, error) = Keep::check_all(&of(&paths)).unwrap_err();
            assert_eq!((at, error.field.as_str()), (1, "path"), "{error:?}");
        }
        let twins = [keep(serde_json::json!({})), keep(serde_json::json!({"path": "/opt/a"}))];
        assert_eq!(Keep::check_all(&twins).unwrap_err().1.field, "name");
        let many: Vec<String> = (0..9).map(|i| format!("/opt/{i}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(Keep::check_all(&of(&many)).unwrap_err().0, 8);
    }
}
