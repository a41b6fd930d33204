//! Checks that GitHub still accepts this runner version. The check precedes a registration, so that the agent can
//! report the reason in words.

/// The oldest runner that github.com registers (GitHub changelog, "Self-hosted runner minimum version enforcement"). A
/// self-hosted appliance applies its own rules.
const OLDEST: [u64; 3] = [2, 329, 0];

/// Returns the reason why a runner of this version cannot be registered at this address; `None` if it can, or if this
/// cannot be determined.
pub(crate) fn too_old(version: &str, url: &str) -> Option<String> {
    let host = reqwest::Url::parse(url).ok()?.host_str()?.to_owned();
    if host != "github.com" && !host.ends_with(".ghe.com") {
        return None;
    }
    let numbers: Vec<u64> =
        version.split(['.', '-', '+']).map_while(|part| part.parse().ok()).take(3).collect();
    let [a, b, c] = OLDEST;
    (numbers.len() == 3 && numbers[..] < OLDEST[..]).then(|| {
        format!("runner {version}: GitHub registers none older than {a}.{b}.{c}; pin a newer package (agent.runner_url, agent.runner_sha256, agent.runner_version)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runner_too_old_for_github_is_refused_and_an_appliance_decides_for_itself() {
        for (version, url, refused) in [
            ("2.328.9", "https://github.com/a/b", true),
            ("1.999.999", "https://acme.ghe.com/a", true),
            ("2.329.0", "https://github.com/a/b", false),
            ("2.330.0-rc1", "https://github.com/a/b", false),
            ("3.0.0", "https://github.com/a/b", false),
            ("", "https://github.com/a/b", false),
            ("latest", "https://github.com/a/b", false),
            ("2.300.0", "https://github.example.com/a/b", false),
            ("2.300.0", "http://127.0.0.1:8080/a/b", false),
        ] {
            let why = too_old(version, url);
            assert_eq!(why.is_some(), refused, "{version} at {url}");
            assert!(why.is_none_or(|why| why.contains(version) && why.contains("agent.runner_version")));
        }
    }
}
