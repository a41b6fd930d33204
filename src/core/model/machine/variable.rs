//! Which variables may be given to runners and their jobs? Those of the operator's file, and those of a machine's
//! image.

/// Variables that only the agent or GitHub's runner sets for runners and jobs.
const TOLD: [&str; 4] = ["HOME", "LOGNAME", "TMPDIR", "USER"];
/// The same by the prefixes of their names: among them variables that would replace the check before each job, or a
/// credential (actions/runner, `CommandSettings.cs` and `Constants.cs`).
const PREFIXES: [&str; 5] =
    ["ACTIONS_RUNNER_HOOK_", "ACTIONS_RUNNER_INPUT_", "ACTIONS_RUNNER_RETURN_", "GITHUB_", "RUNYARD_"];

/// Returns why a variable of this name cannot be given to runners and jobs; none where it can.
pub fn variable_refusal(name: &str) -> Option<String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    if name.is_empty() || !name.bytes().all(plain) || name.as_bytes()[0].is_ascii_digit() {
        return Some("is no name of a variable".into());
    }
    if TOLD.contains(&name) {
        return Some("is set by the agent".into());
    }
    let prefix = PREFIXES.into_iter().find(|prefix| name.starts_with(prefix))?;
    Some(format!("begins with {prefix}, which only the agent and GitHub's runner may use"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_and_tool_caches_are_taken_and_what_the_agent_sets_is_not() {
        for good in
            ["HTTPS_PROXY", "no_proxy", "RUNNER_TOOL_CACHE", "AGENT_TOOLSDIRECTORY", "PATH", "JAVA_HOME"]
        {
            assert_eq!(variable_refusal(good), None, "{good}");
        }
        for bad in [
            "",
            "1A",
            "A B",
            "A=B",
            "HOME",
            "TMPDIR",
            "ACTIONS_RUNNER_HOOK_JOB_STARTED",
            "ACTIONS_RUNNER_INPUT_TOKEN",
            "GITHUB_TOKEN",
            "RUNYARD_CLAIM",
        ] {
            assert!(variable_refusal(bad).is_some(), "{bad}");
        }
    }
}
