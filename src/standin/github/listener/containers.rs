//! Starts and ends the containers of a job as GitHub's worker does: the same calls of `docker`, in the same order, with
//! the same words (actions/runner 2.336.0, `ContainerOperationProvider.cs`, `DockerCommandManager.cs`, `StepHost.cs`).

mod docker;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tokio::process::Command;

use super::super::shared_state::secret;
use super::super::state::{ContainerSpec, JobSpec};
use docker::{Docker, Failure, of_port, of_volume, quoted};

/// The working directories of a job on the machine.
pub(super) struct Places<'a> {
    pub(super) root: &'a Path,
    pub(super) work: &'a Path,
    pub(super) workspace: &'a Path,
    pub(super) temp: &'a Path,
}

/// The containers of one job.
pub(super) struct Containers {
    all: Vec<Container>,
    docker: Docker,
    /// Directories of the machine, and their paths in the job's container.
    mapped: Vec<(PathBuf, &'static str)>,
    mounts: Vec<String>,
    network: String,
    begun: bool,
    /// The values of these expressions in steps.
    known: BTreeMap<String, String>,
}

struct Container {
    spec: ContainerSpec,
    /// For a service, its name in the network.
    alias: Option<String>,
    name: String,
    id: Option<String>,
    failed: bool,
}

impl Containers {
    /// Prepares the containers of a job; none for a job that works on the machine alone.
    ///
    /// # Errors
    /// The directories that its container mounts cannot be created.
    pub(super) fn of(spec: &JobSpec, places: &Places<'_>, log: &File) -> io::Result<Option<Self>> {
        // Created again for actions alone.
        let actions = places.work.join("_actions");
        if actions.exists() {
            fs::remove_dir_all(&actions)?;
        }
        let services = spec.services.iter().map(|(alias, spec)| Container::of(spec, Some(alias)));
        let all: Vec<_> =
            spec.container.iter().map(|spec| Container::of(spec, None)).chain(services).collect();
        if all.is_empty() {
            return Ok(None);
        }
        let (home, workflow) = (places.temp.join("_github_home"), places.temp.join("_github_workflow"));
        let tools = places.work.join("_tool");
        for dir in [&home, &workflow, &tools] {
            fs::create_dir_all(dir)?;
        }
        let settings = fs::read(places.root.join(".runner"))?;
        let label: String =
            Sha256::digest(&settings).iter().take(3).map(|byte| format!("{byte:02x}")).collect();
        let externals = places.root.join("externals");
        let mapped = vec![
            (home.clone(), "/github/home"),
            (workflow.clone(), "/github/workflow"),
            (places.work.to_owned(), "/__w"),
            (externals.clone(), "/__e"),
        ];
        let mut this = Self {
            all,
            docker: Docker { directory: places.workspace.to_owned(), label, log: log.try_clone()? },
            mapped,
            mounts: vec!["-v \"/var/run/docker.sock\":\"/var/run/docker.sock\"".to_owned()],
            network: format!("github_network_{}", secret().to_lowercase()),
            begun: false,
            known: BTreeMap::new(),
        };
        for (place, how) in [
            (places.work, ""),
            (&externals, ":ro"),
            (places.temp, ""),
            (&actions, ""),
            (&tools, ""),
            (&home, ""),
            (&workflow, ""),
        ] {
            let inside = this.inside(&place.display().to_string());
            this.mounts.push(format!("-v \"{}\":\"{inside}\"{how}", place.display()));
        }
        Ok(Some(this))
    }

    /// Translates the machine's paths in a text into those of the job's container.
    fn inside(&self, text: &str) -> String {
        let below = |(place, inside): &(PathBuf, &str)| {
            let rest = text.strip_prefix(place.to_str()?)?;
            (rest.is_empty() || rest.starts_with('/')).then(|| format!("{inside}{rest}"))
        };
        self.mapped.iter().find_map(below).unwrap_or_else(|| text.to_owned())
    }

    /// Runs "Initialize containers". Returns the reason if it failed.
    pub(super) async fn start(&mut self) -> io::Result<Result<(), String>> {
        self.begun = true;
        Ok(match self.started().await {
            Ok(()) => Ok(()),
            Err(Failure::Said(why)) => Err(why),
            Err(Failure::Io(error)) => return Err(error),
        })
    }

    async fn started(&mut self) -> Result<(), Failure> {
        self.docker.compatible().await?;
        self.docker.say("##[group]Clean up resources from previous jobs")?;
        let label = self.docker.label.clone();
        let stale = format!("ps --all --quiet --no-trunc --filter \"label={label}\"");
        for id in self.docker.must(&stale).await? {
            let code = self.docker.code(&format!("rm --force {id}")).await?;
            if code != 0 {
                self.docker.say(&format!(
                    "##[warning]Delete stale containers failed, docker rm fail with exit code {code} for container {id}"
                ))?;
            }
        }
        let code = self.docker.code(&format!("network prune --force --filter \"label={label}\"")).await?;
        if code != 0 {
            self.docker.say(&format!(
                "##[warning]Delete stale container networks failed, docker network prune fail with exit code {code}"
            ))?;
        }
        self.docker.say("##[endgroup]")?;
        self.docker.say("##[group]Create local container network")?;
        let code = self.docker.code(&format!("network create --label {label} {}", self.network)).await?;
        if code != 0 {
            return Err(Failure::Said(format!("Docker network create failed with exit code {code}")));
        }
        self.docker.say("##[endgroup]")?;
        for at in 0..self.all.len() {
            self.start_one(at).await?;
        }
        self.wait_until_healthy().await
    }

    async fn start_one(&mut self, at: usize) -> Result<(), Failure> {
        let (image, alias) = (self.all[at].spec.image.clone(), self.all[at].alias.clone());
        self.docker.say(&match &alias {
            None => "##[group]Starting job container".to_owned(),
            Some(alias) => format!("##[group]Starting {alias} service container"),
        })?;
        self.docker.pull(&image).await?;
        let options = self.options(at);
        let id = self.docker.must(&format!("create {options}")).await?.into_iter().next();
        let id =
            id.ok_or_else(|| Failure::Said("Value cannot be null. (Parameter 'ContainerId')".to_owned()))?;
        self.all[at].id = Some(id.clone());
        let code = self.docker.code(&format!("start {id}")).await?;
        if code != 0 {
            return Err(Failure::Said(format!("Docker start fail with exit code {code}")));
        }
        let format = "--no-trunc --format \"{{.ID}} {{.Status}}\"";
        let running = format!("ps --all --filter id={id} --filter status=running {format}");
        if !self.docker.must(&running).await?.first().is_some_and(|line| line.starts_with(&id)) {
            self.docker.must(&format!("ps --all --filter id={id} {format}")).await?;
            self.docker.code(&format!("logs --details {id}")).await?;
            self.docker.say(&format!("##[warning]Docker container {id} is not in running state."))?;
        }
        match alias {
            Some(alias) => {
                let ports = self.docker.must(&format!("port {id}")).await?;
                for (port, host) in ports.iter().filter_map(|line| of_port(line)) {
                    for quoted in [format!("'{port}'"), port.clone()] {
                        let expression = format!("${{{{ job.services.{alias}.ports[{quoted}] }}}}");
                        self.known.insert(expression, host.clone());
                    }
                }
                self.known.insert(format!("${{{{ job.services.{alias}.id }}}}"), id);
            }
            None => {
                let asked = "--format \"{{range .Config.Env}}{{println .}}{{end}}\"";
                self.docker.must(&format!("inspect {asked} {id}")).await?;
            }
        }
        self.docker.say("##[endgroup]")?;
        Ok(())
    }

    /// Builds the options of `docker create` for a container.
    fn options(&self, at: usize) -> String {
        let Container { spec, alias, name, .. } = &self.all[at];
        let mut words = vec![format!("--name {name}"), format!("--label {}", self.docker.label)];
        let mut environment = spec.env.clone();
        if alias.is_none() {
            let workspace = self.inside(&self.docker.directory.display().to_string());
            words.push(format!("--workdir {workspace}"));
            environment.insert("HOME".to_owned(), "/github/home".to_owned());
        }
        words.push(format!("--network {}", self.network));
        words.extend(alias.iter().map(|alias| format!("--network-alias {alias}")));
        words.extend(spec.ports.iter().map(|port| format!("-p {port}")));
        words.push(spec.options.clone());
        for (name, value) in &environment {
            let pair = if value.is_empty() { name.clone() } else { format!("{name}={value}") };
            words.push(format!("-e {}", quoted(&pair)));
        }
        words.push("-e GITHUB_ACTIONS=true".to_owned());
        if !environment.contains_key("CI") {
            words.push("-e CI=true".to_owned());
        }
        words.extend(spec.volumes.iter().map(|volume| of_volume(volume)));
        if alias.is_none() {
            words.extend(self.mounts.iter().cloned());
            words.push("--entrypoint \"tail\"".to_owned());
        }
        words.push(spec.image.clone());
        if alias.is_none() {
            words.push("\"-f\" \"/dev/null\"".to_owned());
        }
        words.join(" ")
    }

    async fn wait_until_healthy(&mut self) -> Result<(), Failure> {
        self.docker.say("##[group]Waiting for all services to be ready")?;
        for service in &mut self.all {
            let (Some(alias), Some(id)) = (&service.alias, &service.id) else { continue };
            service.failed = !self.docker.becomes_healthy(alias, id).await?;
            if !service.failed {
                self.docker.say(&format!("{alias} service is healthy."))?;
            }
        }
        self.docker.say("##[endgroup]")?;
        for service in self.all.iter().filter(|container| container.failed) {
            let (Some(alias), Some(id)) = (&service.alias, &service.id) else { continue };
            self.docker.say(&format!("##[group]Service container {alias} failed."))?;
            self.docker.code(&format!("logs --details {id}")).await?;
            self.docker.say(&format!("##[error]Failed to initialize container {}", service.spec.image))?;
            self.docker.say("##[endgroup]")?;
        }
        if self.all.iter().any(|container| container.failed) {
            return Err(Failure::Said("One or more containers failed to start.".to_owned()));
        }
        Ok(())
    }

    /// Runs "Stop containers", which is always done.
    pub(super) async fn stop(&self) -> io::Result<()> {
        if !self.begun {
            return Ok(());
        }
        for Container { alias, name, id, failed, .. } in &self.all {
            let Some(id) = id else { continue };
            if alias.is_some() && !failed {
                self.docker.say(&format!("Print service container logs: {name}"))?;
                self.docker.code(&format!("logs --details {id}")).await?;
            }
            self.docker.say(&format!("Stop and remove container: {name}"))?;
            let code = self.docker.code(&format!("rm --force {id}")).await?;
            if code != 0 {
                self.docker.say(&format!("##[warning]Docker rm fail with exit code {code}"))?;
            }
        }
        self.docker.say(&format!("Remove container network: {}", self.network))?;
        let code = self.docker.code(&format!("network rm {}", self.network)).await?;
        if code != 0 {
            self.docker.say(&format!("##[warning]Docker network rm failed with exit code {code}"))?;
        }
        Ok(())
    }

    /// Fills in the expressions of a step.
    pub(super) fn filled(&self, script: &str) -> String {
        self.known.iter().fold(script.to_owned(), |text, (expression, value)| text.replace(expression, value))
    }

    /// Builds the command that runs a step in the job's container; none for a job that has services alone.
    pub(super) fn exec(&self, script: &Path, environment: &[(String, String)]) -> Option<Command> {
        let container = self.all.iter().find(|container| container.alias.is_none())?;
        let mut words = vec!["exec -i".to_owned()];
        words.push(format!("--workdir {}", self.inside(&self.docker.directory.display().to_string())));
        words.extend(environment.iter().map(|(name, _)| format!("-e {}", quoted(name))));
        words.push(container.id.clone().unwrap_or_default());
        words.push(format!("sh -e {}", self.inside(&script.display().to_string())));
        let mut command = self.docker.command(&words.join(" "));
        command.envs(environment.iter().map(|(name, value)| (name, self.inside(value))));
        Some(command)
    }
}

impl Container {
    fn of(spec: &ContainerSpec, alias: Option<&String>) -> Self {
        let plain: String = spec.image.chars().filter(char::is_ascii_alphanumeric).collect();
        let random = |count| secret().to_lowercase().chars().take(count).collect::<String>();
        let name = format!("{}_{plain}_{}", random(32), random(6));
        Self { spec: spec.clone(), alias: alias.cloned(), name, id: None, failed: false }
    }
}
