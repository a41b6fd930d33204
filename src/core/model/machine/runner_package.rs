//! The runner package of a claim, and how a class adopts a new version of it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::record::field::FieldError;
use crate::model::record::ids::ClaimId;
use crate::model::record::item::Item;
use crate::model::record::parse;

/// The origins of GitHub's packages: the address in its list, and the addresses that it redirects to.
const GITHUB: [&str; 3] = [
    "https://github.com",
    "https://objects.githubusercontent.com",
    "https://release-assets.githubusercontent.com",
];

/// The longest address that is accepted, in bytes.
const LONGEST_URL: usize = 2048;

/// The package that holds GitHub's runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerPackage {
    /// Its version, such as `2.336.0`.
    pub version: String,
    /// The address to fetch it from.
    pub url: String,
    /// Its digest, 64 lower-case hexadecimal digits.
    pub sha256: String,
}

impl RunnerPackage {
    /// Parses the package that an instance record names, whatever its other attributes are; none where it names none.
    ///
    /// # Errors
    /// Describes the part that cannot be read.
    pub fn named_in(instance: &Item) -> Result<Option<Self>, String> {
        #[derive(Deserialize)]
        struct Named {
            #[serde(default)]
            runner: Option<RunnerPackage>,
        }
        parse::<Named>(instance).map(|named| named.runner)
    }

    /// Returns whether this is a newer version. A text that is not a version is newer than nothing.
    #[must_use]
    pub fn newer_than(&self, other: &Self) -> bool {
        numbers(&self.version) > numbers(&other.version)
    }

    /// Checks that a machine may fetch and run it: it has a version of three numbers and a digest, and comes from
    /// GitHub or from one of these origins (`scheme://host[:port]`).
    ///
    /// # Errors
    /// The field that is wrong, and the fix.
    pub fn check(&self, origins: &[String]) -> Result<(), FieldError> {
        if numbers(&self.version).is_none() {
            let fix = "three numbers, for example 2.336.0";
            return Err(FieldError::new("runner.version", &self.version, "is not a version", fix));
        }
        let digest = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if self.sha256.len() != 64 || !self.sha256.bytes().all(digest) {
            let fix = "64 lower-case hexadecimal digits, as sha256sum prints them";
            return Err(FieldError::new("runner.sha256", &self.sha256, "is not a SHA-256", fix));
        }
        let Some(origin) = origin_of(&self.url) else {
            let fix = "an address such as https://github.com/actions/runner/releases/download/…";
            return Err(FieldError::new("runner.url", &self.url, "is not an address of a package", fix));
        };
        if GITHUB.contains(&origin.as_str()) || origins.contains(&origin) {
            return Ok(());
        }
        let message = format!("comes from {origin}, which is none of GitHub's addresses for packages");
        let fix = "name the host in agent.runner_hosts if it is a mirror of yours";
        Err(FieldError::new("runner.url", &self.url, message, fix))
    }
}

/// Parses the numbers of a version; none where it does not have three.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let number = |part: &str| part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok()).flatten();
    let numbers = version.split('.').map(number).collect::<Option<Vec<u64>>>()?;
    numbers.try_into().ok()
}

/// Returns scheme, host and port of an address, in lower case; none where the address is unusual. Parsers interpret
/// unusual addresses differently, so these have no origin.
#[must_use]
pub fn origin_of(url: &str) -> Option<String> {
    if url.len() > LONGEST_URL || !url.bytes().all(|b| b.is_ascii_graphic() && b != b'\\') {
        return None;
    }
    let (scheme, rest) = url.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let authority = rest.split(['/', '?', '#']).next()?.to_ascii_lowercase();
    let (host, port) = authority.split_once(':').map_or((authority.as_str(), None), |(h, p)| (h, Some(p)));
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.' || b == b'-';
    let port_fits = port.is_none_or(|port| port.parse::<u16>().is_ok());
    let known = scheme == "https" || scheme == "http";
    (known && !host.is_empty() && host.bytes().all(plain) && port_fits)
        .then(|| format!("{scheme}://{authority}"))
}

/// The adoption state of a class for new versions of the runner package.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Adoption {
    /// The package of its claims; none while they get the one that the operator's file pins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted: Option<RunnerPackage>,
    /// The package that a few of its claims get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<RunnerTrial>,
    /// The package that failed, and is held back for a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back: Option<HeldBack>,
}

/// A package that a few claims try.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerTrial {
    /// The package.
    pub package: RunnerPackage,
    /// The claims whose runners of it listened, at most [`Self::CLAIMS`].
    #[serde(default)]
    pub claims: Vec<ClaimId>,
    /// When it began.
    pub since: Timestamp,
}

impl RunnerTrial {
    /// How many claims must have run with a package before all get it.
    pub const CLAIMS: usize = 3;
}

/// A package that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBack {
    /// The package.
    pub package: RunnerPackage,
    /// When it failed.
    pub at: Timestamp,
    /// The failure, for people.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(version: &str, url: &str) -> RunnerPackage {
        RunnerPackage { version: version.into(), url: url.into(), sha256: "0a".repeat(32) }
    }

    #[test]
    fn a_package_comes_from_github_or_from_an_origin_that_is_named() {
        let named = ["http://127.0.0.1:8080".to_owned(), "https://mirror.example.com".to_owned()];
        for (url, good) in [
            ("https://github.com/actions/runner/releases/download/v2.336.0/a.tar.gz", true),
            ("https://GitHub.com/a", true),
            ("https://release-assets.githubusercontent.com/a?b=c", true),
            ("https://mirror.example.com/a", true),
            ("http://127.0.0.1:8080/package", true),
            ("http://github.com/a", false),
            ("https://github.com:444/a", false),
            ("https://github.com.evil.example/a", false),
            ("https://evil.example/github.com", false),
            ("https://user@github.com/a", false),
            ("https://github.com@evil.example/a", false),
            ("https://evil.example\\.github.com/a", false),
            ("https://github.com\\@evil.example/a", false),
            ("https://git\thub.com/a", false),
            ("https:github.com/a", false),
            ("https:///github.com/a", false),
            ("http://127.0.0.1:8081/package", false),
            ("http://mirror.example.com/a", false),
            ("file:///etc/passwd", false),
            ("", false),
        ] {
            let judged = package("2.336.0", url).check(&named);
            assert_eq!(judged.is_ok(), good, "{url}");
            assert!(judged.err().is_none_or(|wrong| wrong.field == "runner.url" && !wrong.fix.is_empty()));
        }
    }

    #[test]
    fn a_package_without_version_or_digest_is_refused_with_the_field() {
        let good = package("2.336.0", "https://github.com/a");
        for version in ["", "2.336", "v2.336.0", "2.336.0-rc1", "2.+3.0", "2.336.0.1"] {
            let wrong = RunnerPackage { version: version.into(), ..good.clone() }.check(&[]).unwrap_err();
            assert_eq!(wrong.field, "runner.version", "{version}");
        }
        for sha256 in [String::new(), "0A".repeat(32), "0g".repeat(32), "0a".repeat(31)] {
            let wrong = RunnerPackage { sha256, ..good.clone() }.check(&[]).unwrap_err();
            assert_eq!(wrong.field, "runner.sha256");
        }
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        let newer = |a: &str, b: &str| package(a, "").newer_than(&package(b, ""));
        assert!(newer("2.10.0", "2.9.9") && newer("2.333.1", "2.333.0") && newer("2.1.0", ""));
        assert!(!newer("2.9.9", "2.10.0") && !newer("2.1.0", "2.1.0") && !newer("latest", "2.1.0"));
    }
}
