//! The file `.runner`, in which a registered runner stores its identity, in the two forms of the real one: for a token,
//! with .NET's names in camel case and a leading byte order mark (actions/runner, `IOUtil.SaveObject`); for a
//! single-use configuration, with all values as text.

use reqwest::Url;
use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};

use super::state::RunnerId;

/// .NET's byte order mark before UTF-8.
const MARK: &str = "\u{feff}";

/// The identity of a registered runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunnerConfig {
    pub(super) url: String,
    pub(super) scope: String,
    pub(super) runner_id: RunnerId,
    pub(super) name: String,
    pub(super) ephemeral: bool,
    pub(super) work_folder: String,
    /// `UseRunnerAdminFlow`.
    pub(super) admin_flow: bool,
}

impl RunnerConfig {
    /// Formats the file of a runner that registered with a token. False values are left out.
    pub(super) fn file(&self) -> String {
        let mut all = json!({
            "agentId": self.runner_id,
            "agentName": self.name,
            "poolId": 1,
            "poolName": "Default",
            "disableUpdate": true,
            "serverUrl": self.address(),
            "gitHubUrl": self.address(),
            "workFolder": self.work_folder,
        });
        for (name, flag) in [("ephemeral", self.ephemeral), ("useRunnerAdminFlow", self.admin_flow)] {
            if flag {
                all[name] = true.into();
            }
        }
        format!("{MARK}{all:#}")
    }

    /// Formats the result of `generate-jitconfig`: the files by name, each in base64, all of it in base64 again.
    pub(super) fn single_use(&self, credential: &str) -> String {
        let runner = json!({
            "AgentId": self.runner_id.to_string(),
            "AgentName": self.name,
            "PoolId": "1",
            "PoolName": "Default",
            "DisableUpdate": "True",
            "Ephemeral": "True",
            "ServerUrl": self.address(),
            "WorkFolder": self.work_folder,
        });
        let files = json!({
            ".runner": BASE64_STANDARD.encode(runner.to_string()),
            ".credentials": BASE64_STANDARD.encode(json!({"credential": credential}).to_string()),
            ".credentials_rsaparams": BASE64_STANDARD.encode(json!({"modulus": ""}).to_string()),
        });
        BASE64_STANDARD.encode(files.to_string())
    }

    /// Returns the files inside a single-use configuration.
    pub(super) fn files(jitconfig: &str) -> Option<BTreeMap<String, Vec<u8>>> {
        let text = BASE64_STANDARD.decode(jitconfig.trim()).ok()?;
        let files: BTreeMap<String, String> = serde_json::from_slice(&text).ok()?;
        files.into_iter().map(|(name, content)| Some((name, BASE64_STANDARD.decode(content).ok()?))).collect()
    }

    /// Parses either form, as .NET does: names without regard to case, numbers and flags as themselves or as text.
    pub(super) fn read(text: &str) -> Option<Self> {
        let all: Map<String, Value> = serde_json::from_str(text.strip_prefix(MARK).unwrap_or(text)).ok()?;
        let value = |name: &str| {
            let found = all.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))?.1;
            Some(found.as_str().map_or_else(|| found.to_string(), str::to_owned))
        };
        let flag = |name| value(name).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let (url, scope) = split(&value("gitHubUrl").or_else(|| value("serverUrl"))?).ok()?;
        Some(Self {
            url,
            scope,
            runner_id: value("agentId")?.parse().ok()?,
            name: value("agentName")?,
            ephemeral: flag("ephemeral"),
            work_folder: value("workFolder")?,
            admin_flow: flag("useRunnerAdminFlow"),
        })
    }

    fn address(&self) -> String {
        format!("{}/{}", self.url, self.scope)
    }
}

/// Splits `http://host:port/owner/name` into the server and the scope.
pub(super) fn split(url: &str) -> Result<(String, String), String> {
    let bad = || {
        format!("Invalid configuration provided for url: {url:?} must be like https://github.com/owner/name")
    };
    let parsed = Url::parse(url).map_err(|_| bad())?;
    let segments: Vec<_> = parsed.path_segments().ok_or_else(bad)?.filter(|s| !s.is_empty()).collect();
    if segments.is_empty() || segments.len() > 2 {
        return Err(bad());
    }
    Ok((parsed.origin().ascii_serialization(), segments.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> RunnerConfig {
        RunnerConfig {
            url: "http://127.0.0.1:4711".to_owned(),
            scope: "octo/app".to_owned(),
            runner_id: 7,
            name: "r".to_owned(),
            ephemeral: false,
            work_folder: "_work".to_owned(),
            admin_flow: true,
        }
    }

    #[test]
    fn the_file_of_a_token_begins_with_a_mark_and_is_read_again() {
        let text = config().file();
        assert!(
            text.starts_with("\u{feff}{") && text.contains("\"agentId\": 7") && !text.contains("ephemeral")
        );
        assert_eq!(RunnerConfig::read(&text), Some(config()));
    }

    #[test]
    fn a_single_use_configuration_holds_text_only_and_no_admin_flow() {
        let config = RunnerConfig { ephemeral: true, admin_flow: false, ..config() };
        let files = RunnerConfig::files(&config.single_use("secret")).unwrap();
        let text = String::from_utf8(files[".runner"].clone()).unwrap();
        assert!(text.contains("\"AgentId\":\"7\""), "{text}");
        assert_eq!(RunnerConfig::read(&text), Some(config));
        assert_eq!(RunnerConfig::files("hunter2"), None);
    }
}
