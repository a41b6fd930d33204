//! Checks combinations of keys. Each rule names its keys and the correct values.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::reader::Reader;
use super::{Agent, AgentProgram, Architectures, ComputeKind, Credential, Follow, QueueKind, RunnerPackage};
use crate::ledger::Prices;
use crate::model::Timing;
use crate::prices;

/// The limits of the time for which an image may be pinned.
const SHORTEST_IMAGE: Duration = Duration::from_secs(60);
const LONGEST_IMAGE: Duration = Duration::from_secs(24 * 3600);

/// Returns the shipped prices, overridden by those of the configured file.
pub(super) fn prices(reader: &mut Reader) -> Option<Prices> {
    let Some(file) = reader.optional("cost.prices", super::reader::path)? else {
        return Some(prices::shipped());
    };
    prices::load(&file)
        .map_err(|problems| {
            for problem in problems {
                let field = format!("cost.prices: {}", problem.field);
                reader.problems.push(problem.named(field));
            }
        })
        .ok()
}

pub(super) fn timing(timing: &Timing, compute: Option<ComputeKind>, reader: &mut Reader) {
    if !(SHORTEST_IMAGE..=LONGEST_IMAGE).contains(&timing.image) {
        reader.refuse(
            "timing.image",
            shown(timing.image),
            "is not from a minute to a day",
            "write 1m to 24h: each time costs three calls of EC2 a class, and a new image waits as long at most",
        );
    }
    // If another program plays the agents, their heartbeat and polling intervals are not ours to check.
    let agents_are_ours = match compute {
        Some(ComputeKind::Ec2 | ComputeKind::Local) => true,
        Some(ComputeKind::None) | None => false,
    };
    if !agents_are_ours {
        return;
    }
    if timing.stale < timing.heartbeat * 2 {
        reader.refuse(
            "timing.stale",
            shown(timing.stale),
            &format!("is less than twice timing.heartbeat ({})", shown(timing.heartbeat)),
            "raise timing.stale or lower timing.heartbeat: one late heartbeat must not end a machine",
        );
    }
    let deadlines = [
        ("created", timing.created),
        ("claimed", timing.claimed),
        ("cleanup", timing.cleanup),
        ("end", timing.end),
    ];
    for (key, deadline) in deadlines {
        if deadline <= timing.agent_poll {
            reader.refuse(
                &format!("timing.{key}"),
                shown(deadline),
                &format!("is not more than timing.agent_poll ({})", shown(timing.agent_poll)),
                "raise it, or lower timing.agent_poll: an agent must read its record before the deadline",
            );
        }
    }
}

pub(super) fn queue(queue: Option<QueueKind>, compute: Option<ComputeKind>, reader: &mut Reader) {
    if let (Some(QueueKind::Memory), Some(ComputeKind::Ec2)) = (queue, compute) {
        reader.refuse(
            "queue.kind",
            "memory".to_owned(),
            "does not go with compute.kind = \"ec2\": other replicas would not see it",
            "use sqs, or compute.kind = \"local\"",
        );
    }
}

pub(super) fn credential(
    token_file: Option<PathBuf>,
    app_id: Option<String>,
    app_key_file: Option<PathBuf>,
    reader: &mut Reader,
) -> Option<Credential> {
    const APP: &str = "set both github.app_id and github.app_key_file, or neither";
    match (token_file, app_id, app_key_file) {
        (Some(file), None, None) => return Some(Credential::TokenFile(file)),
        (None, Some(id), Some(key_file)) => return Some(Credential::App { id, key_file }),
        // An invalid value has been reported already; it is not missing as well.
        (None, None, None) if reader.problems.iter().any(|problem| problem.field.starts_with("github.")) => {}
        (None, None, None) => reader.refuse(
            "github.token_file",
            String::new(),
            "github.kind is \"real\" and there is no credential",
            "set github.token_file, or github.app_id and github.app_key_file, or github.kind = \"none\"",
        ),
        (Some(_), Some(id), _) => reader.refuse(
            "github.app_id",
            id,
            "there are two credentials, a token and an App",
            "keep the App and clear github.token_file, or the other way round",
        ),
        (Some(_) | None, None, Some(file)) => {
            reader.refuse(
                "github.app_id",
                String::new(),
                &format!("is missing beside {}", file.display()),
                APP,
            );
        }
        (None, Some(id), None) => {
            reader.refuse("github.app_key_file", String::new(), &format!("is missing for the App {id}"), APP);
        }
    }
    None
}

/// An address and a digest, as far as they are configured.
type Fetched = (Option<String>, Option<String>);

pub(super) fn runner(
    (url, sha256): Fetched,
    arm64: Fetched,
    version: Option<String>,
    reader: &mut Reader,
) -> Option<Architectures<RunnerPackage>> {
    let package = |(url, sha256): Fetched| {
        Some(RunnerPackage { url: url?, sha256: sha256?, version: version.clone()? })
    };
    let (needs_usual, needs_arm64) =
        (url.is_some() || sha256.is_some(), arm64.0.is_some() || arm64.1.is_some());
    // The version alone does not identify a package.
    let none = version.is_some() && !needs_usual && !needs_arm64;
    let given = [
        ("agent.runner_url", url.is_some(), needs_usual || none),
        ("agent.runner_sha256", sha256.is_some(), needs_usual || none),
        ("agent.runner_url_arm64", arm64.0.is_some(), needs_arm64),
        ("agent.runner_sha256_arm64", arm64.1.is_some(), needs_arm64),
        ("agent.runner_version", version.is_some(), needs_usual || needs_arm64),
    ];
    let missing: Vec<_> = given.iter().filter(|(_, given, needed)| *needed && !given).collect();
    for (path, ..) in &missing {
        let fix = "set all three of agent.runner_url, agent.runner_sha256, agent.runner_version, or none; those of \
                   arm64 end in _arm64, but for the version";
        reader.refuse(path, String::new(), "is missing for the runner package", fix);
    }
    missing.is_empty().then(|| Architectures { usual: package((url, sha256)), arm64: package(arm64) })
}

/// Checks that machines following GitHub's list begin with a package that the file pins, and that a claim can name.
pub(super) fn follow(agent: &Agent, reader: &mut Reader) {
    let (hosts, fix) = (agent.runner_origins(), "pin a package to begin with, or set it to \"pin\"");
    for (suffix, follow, package) in [
        ("", agent.runner_follow, &agent.runner.usual),
        ("_arm64", agent.runner_follow_arm64, &agent.runner.arm64),
    ] {
        let key = format!("agent.runner_follow{suffix}");
        match (follow, package) {
            (Follow::Pin, _) => {}
            (Follow::Latest, None) => {
                reader.refuse(&key, follow.to_string(), &format!("needs agent.runner_url{suffix}"), fix);
            }
            (Follow::Latest, Some(package)) => {
                if let Err(problem) = package.check(&hosts) {
                    let message = format!("the package that is pinned cannot be named in a claim: {problem}");
                    reader.refuse(&key, follow.to_string(), &message, fix);
                }
            }
        }
    }
}

pub(super) fn program(
    suffix: &str,
    url: Option<String>,
    sha256: Option<String>,
    reader: &mut Reader,
) -> Option<Option<AgentProgram>> {
    let missing = match (&url, &sha256) {
        (Some(_), None) => "sha256",
        (None, Some(_)) => "url",
        (Some(_), Some(_)) | (None, None) => {
            return Some(url.zip(sha256).map(|(url, sha256)| AgentProgram { url, sha256 }));
        }
    };
    let fix = format!("set both of agent.url{suffix} and agent.sha256{suffix}, or neither");
    reader.refuse(
        &format!("agent.{missing}{suffix}"),
        String::new(),
        "is missing for the agent's program",
        &fix,
    );
    None
}

/// Refuses a proxy for plain HTTP that would also receive the requests to the metadata service, so that the agent could
/// not reach it.
pub(super) fn proxy(variables: &BTreeMap<String, String>, reader: &mut Reader) {
    let set = |names: [&str; 2]| names.into_iter().find_map(|name| variables.get(name));
    let proxy = set(["HTTP_PROXY", "http_proxy"]).or_else(|| set(["ALL_PROXY", "all_proxy"]));
    let without = set(["NO_PROXY", "no_proxy"]);
    if proxy.is_some() && without.is_none_or(|list| !list.contains("169.254.")) {
        reader.refuse(
            "agent.environment",
            without.cloned().unwrap_or_default(),
            "has a proxy for http and no NO_PROXY with the address of the metadata service",
            "add 169.254.169.254 to NO_PROXY: machines have their credentials from there",
        );
    }
}

fn shown(duration: Duration) -> String {
    format!("{duration:?}")
}
