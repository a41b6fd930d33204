//! Calls `docker` as GitHub's worker does, with its messages (actions/runner 2.336.0, `DockerCommandManager.cs`,
//! `ContainerOperationProvider.cs`).

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::sleep;

/// How often a failing registry is tried, and the pause between; GitHub's worker pauses for one to ten seconds.
const PULLS: usize = 3;
const PULL_PAUSE: Duration = Duration::from_secs(1);
/// The first and the longest interval between two checks of a service that is starting; doubled each time.
const LOOK: Duration = Duration::from_secs(2);
const MOST: Duration = Duration::from_secs(32);

/// Why containers cannot be started.
pub(super) enum Failure {
    /// A failure, with the runner's message.
    Said(String),
    Io(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Calls `docker` as the worker does.
pub(super) struct Docker {
    pub(super) directory: PathBuf,
    /// The label by which it recognises its own containers.
    pub(super) label: String,
    pub(super) log: File,
}

impl Docker {
    pub(super) fn say(&self, line: &str) -> io::Result<()> {
        writeln!(&self.log, "{line}")
    }

    pub(super) fn command(&self, words: &str) -> Command {
        let mut command = Command::new("docker");
        command.args(split(words)).current_dir(&self.directory).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Runs a command; returns its exit code and each line of its output.
    async fn call(&self, words: &str) -> io::Result<(i32, Vec<String>)> {
        self.say(&format!("##[command]docker {words}"))?;
        let done = self.command(words).output().await?;
        (&self.log).write_all(&done.stdout)?;
        (&self.log).write_all(&done.stderr)?;
        let lines = String::from_utf8_lossy(&done.stdout);
        let lines = lines.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
        Ok((done.status.code().unwrap_or(-1), lines))
    }

    pub(super) async fn code(&self, words: &str) -> io::Result<i32> {
        Ok(self.call(words).await?.0)
    }

    pub(super) async fn must(&self, words: &str) -> Result<Vec<String>, Failure> {
        match self.call(words).await? {
            (0, lines) => Ok(lines),
            (code, _) => Err(Failure::Said(format!(
                "Exit code {code} returned from process: file name 'docker', arguments '{words}'."
            ))),
        }
    }

    pub(super) async fn compatible(&self) -> Result<(), Failure> {
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

    pub(super) async fn pull(&self, image: &str) -> Result<(), Failure> {
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

    /// Waits as long as the container reports that it is starting, however long that is.
    pub(super) async fn becomes_healthy(&self, alias: &str, id: &str) -> Result<bool, Failure> {
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

/// Parses a line of `docker port`: the container's port, and the machine's.
pub(super) fn of_port(line: &str) -> Option<(String, String)> {
    let (inside, outside) = line.split_once(" -> ")?;
    Some((inside.split('/').next()?.to_owned(), outside.rsplit(':').next()?.to_owned()))
}

/// Formats a volume as `docker` takes it.
pub(super) fn of_volume(volume: &str) -> String {
    match volume.split(':').collect::<Vec<_>>().as_slice() {
        [source, target, how @ ..] => {
            let how = if how == ["ro"] { ":ro" } else { "" };
            format!("-v \"{source}\":\"{target}\"{how}")
        }
        target => format!("-v \"{}\"", target.concat()),
    }
}

/// Quotes a text as one word for [`split`].
pub(super) fn quoted(word: &str) -> String {
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

/// Splits a command into words as .NET does, which the worker relies on (`ProcessStartInfo.Arguments`): only double
/// quotes hold words together, and a backslash is literal except before one.
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
