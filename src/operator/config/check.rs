//! Do the keys make sense together? Each rule names the keys it is about and what to write instead.

use std::path::PathBuf;
use std::time::Duration;

use super::reader::Reader;
use super::{ComputeKind, Credential, QueueKind, RunnerPackage};
use crate::model::Timing;

pub(super) fn timing(timing: &Timing, compute: Option<ComputeKind>, reader: &mut Reader) {
    // Where another program plays the agents, how often they beat and poll is not ours to say.
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
    let deadlines = [("created", timing.created), ("claimed", timing.claimed), ("cleanup", timing.cleanup)];
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
        // What was given wrongly is told already; it is not missing as well.
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

pub(super) fn runner(
    url: Option<String>,
    sha256: Option<String>,
    version: Option<String>,
    reader: &mut Reader,
) -> Option<Option<RunnerPackage>> {
    match (url, sha256, version) {
        (Some(url), Some(sha256), Some(version)) => Some(Some(RunnerPackage { url, sha256, version })),
        (None, None, None) => Some(None),
        (url, sha256, version) => {
            let given = [
                ("agent.runner_url", url),
                ("agent.runner_sha256", sha256),
                ("agent.runner_version", version),
            ];
            for (path, _) in given.into_iter().filter(|(_, value)| value.is_none()) {
                let fix =
                    "set all three of agent.runner_url, agent.runner_sha256, agent.runner_version, or none";
                reader.refuse(path, String::new(), "is missing for the runner package", fix);
            }
            None
        }
    }
}

fn shown(duration: Duration) -> String {
    format!("{duration:?}")
}
