//! Starts and ends the containers of a job as GitHub's worker does: the same calls of `docker`, in the same order, with
//! the same words (actions/runner 2.336.0, `ContainerOperationProvider.cs`, `DockerCommandManager.cs`, `StepHost.cs`).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::process::Command;
use tokio::time::sleep;

use super::super::shared_state::secret;
use super::super::state::{ContainerSpec, JobSpec};

/// A registry that fails is asked so often, with such a pause; GitHub's takes any between one and ten seconds.
const PULLS: usize = 3;
const PULL_PAUSE: Duration = Duration::from_secs(1);
/// How long it is between two looks at a service that is starting: these two, doubled, up to the last.
const LOOK: Duration = Duration::from_secs(2);
const MOST: Duration = Duration::from_secs(32);

/// Where a job works, on the machine.
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
    /// Places of the machine, and what they are in the job's container.
    mapped: Vec<(PathBuf, &'static str)>,
    mounts: Vec<String>,
    network: String,
    begun: bool,
    /// What steps write in the place of these expressions.
    known: BTreeMap<String, String>,
}

struct Container {
    spec: ContainerSpec,
    /// Of a service, its name in the network.
    alias: Option<String>,
    name: String,
    id: Option<String>,
    failed: bool,
}

impl Containers {
    /// Those of a job; none of a job that works on the machine alone.
    ///
    /// # Errors
    /// The places that its container is to see cannot be made.
    pub(super) fn of(spec: &JobSpec, places: &Places<'_>, log: &File) -> io::Result<Option<Self>> {
        // Made again for actions alone.
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

    /// What a place of the machine's is called in the job's container.
    fn inside(&self, text: &str) -> String {
        let below = |(place, inside): &(PathBuf, &str)| {
            let rest = text.strip_prefix(place.to_str()?)?;
            (rest.is_empty() || rest.starts_with('/')).then(|| format!("{inside}{rest}"))
        };
        self.mapped.iter().find_map(below).unwrap_or_else(|| text.to_owned())
    }

    /// "Initialize containers". In words why it failed, if it did.
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

    /// What `create` is told of a container.
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

    /// "Stop containers", which is always done.
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

    /// A step as its author means it.
    pub(super) fn filled(&self, script: &str) -> String {
        self.known.iter().fold(script.to_owned(), |text, (expression, value)| text.replace(expression, value))
    }

    /// How a step runs in the job's container; none of a job that has services alone.
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

/// Why containers cannot be started.
enum Failure {
    /// In the runner's words.
    Said(String),
    Io(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Calls `docker` as the worker does.
struct Docker {
    directory: PathBuf,
    /// By which it knows what is its own.
    label: String,
    log: File,
}

impl Docker {
    fn say(&self, line: &str) -> io::Result<()> {
        writeln!(&self.log, "{line}")
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new("docker");
        command.args(split(words)).current_dir(&self.directory).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// The code it ends with, and each line that it writes to its output.
    async fn call(&self, words: &str) -> io::Result<(i32, Vec<String>)> {
        self.say(&format!("##[command]docker {words}"))?;
        let done = self.command(words).output().await?;
        (&self.log).write_all(&done.stdout)?;
        (&self.log).write_all(&done.stderr)?;
        let lines = String::from_utf8_lossy(&done.stdout);
        let lines = lines.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
        Ok((done.status.code().unwrap_or(-1), lines))
    }

    async fn code(&self, words: &str) -> io::Result<i32> {
        Ok(self.call(words).await?.0)
    }

    async fn must(&self, words: &str) -> Result<Vec<String>, Failure> {
        match self.call(words).await? {
            (0, lines) => Ok(lines),
            (code, _) => Err(Failure::Said(format!(
                "Exit code {code} returned from process: file name 'docker', arguments '{words}'."
            ))),
        }
    }

    async fn compatible(&self) -> Result<(), Failure> {
        if fs::read_to_string("/proc/1/cgroup")?.contains(":/docker/") {
            let why = "Container feature is not supported when runner is already running inside container.";
            return Err(Failure::Said(why.to_owned()));
        }
        self.say("##[group]Checking docker version")?;
        for (of, name) in [("Server", "daemon"), ("Client", "client")] {
            let found = self.must(&format!("version --format '{{{{.{of}.APIVersion}}}}'")).await?;
            let found = found.first().cloned().unwrap_or_default();
            self.say(&format!("Docker {name} API version: {found}"))?;
            let mut numbers = found.trim_matches('\'').split('.').map_while(|part| part.parse::<u32>().ok());
            if (numbers.next(), numbers.next()) < (Some(1), Some(35)) {
                return Err(Failure::Said(format!(
                    "Min required docker engine API {} version is '1.35', your docker ('docker') {} version is '{found}'",
                    of.to_lowercase(),
                    of.to_lowercase()
                )));
            }
        }
        self.say("##[endgroup]")?;
        Ok(())
    }

    async fn pull(&self, image: &str) -> Result<(), Failure> {
        let mut code = 0;
        for left in (0..PULLS).rev() {
            code = self.code(&format!("pull {image}")).await?;
            if code == 0 {
                return Ok(());
            }
            if left > 0 {
                let pause = PULL_PAUSE.as_secs_f64();
                self.say(&format!(
                    "##[warning]Docker pull failed with exit code {code}, back off {pause} seconds before retry."
                ))?;
                sleep(PULL_PAUSE).await;
            }
        }
        Err(Failure::Said(format!("Docker pull failed with exit code {code}")))
    }

    /// Waits as long as it says that it is starting, however long that is.
    async fn becomes_healthy(&self, alias: &str, id: &str) -> Result<bool, Failure> {
        let asked = "inspect --format=\"{{if .Config.Healthcheck}}{{print .State.Health.Status}}{{end}}\"";
        let mut pause = LOOK;
        loop {
            match self.must(&format!("{asked} {id}")).await?.first().map(String::as_str) {
                None | Some("healthy") => return Ok(true),
                Some("starting") => {}
                Some(_) => return Ok(false),
            }
            self.say(&format!(
                "{alias} service is starting, waiting {} seconds before checking again.",
                pause.as_secs()
            ))?;
            sleep(pause).await;
            pause = (pause * 2).min(MOST);
        }
    }
}

/// A line of `docker port`: the container's port, and the machine's.
fn of_port(line: &str) -> Option<(String, String)> {
    let (inside, outside) = line.split_once(" -> ")?;
    Some((inside.split('/').next()?.to_owned(), outside.rsplit(':').next()?.to_owned()))
}

/// A volume as a workflow names it.
fn of_volume(volume: &str) -> String {
    match volume.split(':').collect::<Vec<_>>().as_slice() {
        [source, target, how @ ..] => {
            let how = if how == ["ro"] { ":ro" } else { "" };
            format!("-v \"{source}\":\"{target}\"{how}")
        }
        target => format!("-v \"{}\"", target.concat()),
    }
}

/// As one word of those that [`split`] tells apart.
fn quoted(word: &str) -> String {
    let mut text = String::from("\"");
    let mut slashes = 0;
    for letter in word.chars() {
        if letter == '"' {
            text.extend(std::iter::repeat_n('\\', slashes + 1));
        }
        slashes = if letter == '\\' { slashes + 1 } else { 0 };
        text.push(letter);
    }
    text.extend(std::iter::repeat_n('\\', slashes));
    text.push('"');
    text
}

/// The words of a command as .NET tells them apart, which the worker leaves to it (`ProcessStartInfo.Arguments`): only
/// double quotes hold words together, and a backslash means itself but before one.
fn split(text: &str) -> Vec<String> {
    let (mut words, mut word, mut within) = (Vec::new(), None::<String>, false);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => {
                let mut count = 1;
                while letters.next_if_eq(&'\\').is_some() {
                    count += 1;
                }
                let before_quote = letters.peek() == Some(&'"');
                let kept = if before_quote { count / 2 } else { count };
                let word = word.get_or_insert_default();
                word.extend(std::iter::repeat_n('\\', kept));
                if before_quote && count % 2 == 1 {
                    letters.next();
                    word.push('"');
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                if within && letters.next_if_eq(&'"').is_some() {
                    word.push('"');
                } else {
                    within = !within;
                }
            }
            ' ' | '\t' if !within => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_told_apart_as_the_worker_s_runtime_does() {
        for (text, words) in [
            (
                r#"create  --health-cmd "pg_isready -U x" a"#,
                vec!["create", "--health-cmd", "pg_isready -U x", "a"],
            ),
            (r#"-v "/a b":"/c":ro"#, vec!["-v", "/a b:/c:ro"]),
            (
                "version --format '{{.Server.APIVersion}}'",
                vec!["version", "--format", "'{{.Server.APIVersion}}'"],
            ),
            (r#"-e "A=\"b\" c\\" d\e "" """"#, vec!["-e", r#"A="b" c\"#, r"d\e", "", "\""]),
        ] {
            assert_eq!(split(text), words, "{text}");
        }
    }

    #[test]
    fn a_word_that_is_quoted_is_found_again() {
        for word in ["A=b", "A=b c", r#"A="b""#, r"A=b\", r#"A=\"b\\"#, ""] {
            assert_eq!(split(&quoted(word)), [word], "{word}");
        }
    }

    #[test]
    fn ports_and_volumes_are_read_as_workflows_write_them() {
        assert_eq!(of_port("80/tcp -> 0.0.0.0:32768"), Some(("80".into(), "32768".into())));
        assert_eq!(of_port("nothing"), None);
        for (volume, words) in
            [("/a", r#"-v "/a""#), ("data:/b", r#"-v "data":"/b""#), ("/a:/b:ro", r#"-v "/a":"/b":ro"#)]
        {
            assert_eq!(of_volume(volume), words);
        }
    }
}
