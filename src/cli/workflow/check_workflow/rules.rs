//! Finds the parts of a job that do not work on a class: its containers, its steps, and its duration.

use super::class::Class;
use super::document::Node;
use super::findings::{Finding, Level};
use super::tables::{Need, of_action, of_command, of_line};
use super::workflow::Job;

/// Words that precede a command.
const LEADING: &[&str] = &[
    "then", "do", "else", "if", "elif", "while", "until", "!", "time", "exec", "env", "command", "nohup",
    "xargs",
];
/// Inputs of actions that contain scripts.
const SCRIPTS: &[&str] = &["run", "command", "cmd"];

/// Collects the findings of one job.
struct Judged<'a> {
    class: &'a Class,
    source: &'a str,
    findings: Vec<Finding>,
}

impl Judged<'_> {
    /// Adds a finding for a need that the class does not meet: once per line, and once per job for a tool of the image.
    fn need(&mut self, need: Need, line: usize, subject: &str) {
        let Some(level) = need.level(self.class, self.source) else { return };
        let what = format!("{subject}: {}", need.why(self.class));
        let known = |one: &Finding| {
            one.rule == need.rule() && (one.line == line || (level == Level::Image && one.what == what))
        };
        if !self.findings.iter().any(known) {
            self.findings.push(Finding::new(level, need.rule(), line, what, need.fix()));
        }
    }

    fn script(&mut self, script: &Node) {
        for (line, text) in script.lines() {
            let text = text.strip_prefix("run:").unwrap_or(text).trim();
            if text.starts_with('#') {
                continue;
            }
            for command in commands(text) {
                if let Some(need) = of_command(command) {
                    self.need(need, *line, &format!("`{command}`"));
                }
            }
            for (need, words) in of_line(text) {
                self.need(need, *line, &format!("`{words}`"));
            }
        }
    }

    fn step(&mut self, step: &Node, in_container: bool) {
        if step.get("if").and_then(Node::text).is_some_and(is_of_another_system) {
            return;
        }
        if let Some(uses) = step.get("uses") {
            self.uses(uses, in_container);
        }
        if in_container {
            return;
        }
        if let Some(script) = step.get("run") {
            self.script(script);
        }
        if let Some(inputs) = step.get("with") {
            SCRIPTS.iter().filter_map(|name| inputs.get(name)).for_each(|script| self.script(script));
        }
        if let Some(shell) = step.get("shell") {
            let first = shell.text().unwrap_or_default().split_whitespace().next().unwrap_or_default();
            if let Some(need) = of_command(first) {
                self.need(need, shell.line, &format!("`shell: {first}`"));
            }
        }
    }

    fn uses(&mut self, uses: &Node, in_container: bool) {
        let text = uses.text().unwrap_or_default();
        if text.starts_with("docker://") {
            self.need(Need::Containers, uses.line, &format!("`uses: {text}`"));
        } else if text.starts_with("./") {
            let fix = "look into its action.yml for the same things".to_owned();
            let what = format!("`uses: {text}`: the steps of an action of the repository are not read");
            self.findings.push(Finding::new(Level::Note, "local-action", uses.line, what, fix));
        } else if let Some(need) = of_action(text)
            && !(in_container
                && matches!(
                    need,
                    Need::Root | Need::ToolCache | Need::Image(_) | Need::Absent | Need::Job(_)
                ))
        {
            self.need(need, uses.line, &format!("`uses: {text}`"));
        }
    }
}

/// Returns the parts of a job that do not work on a class; `source` is the text of its workflow.
pub(super) fn of_job(job: &Job, class: &Class, source: &str) -> Vec<Finding> {
    let mut judged = Judged { class, source, findings: Vec::new() };
    for key in ["container", "services"] {
        if let Some(node) = job.get(key) {
            judged.need(Need::Containers, job.line_of(key), &format!("`{key}:`"));
            privileged(&mut judged, node, key);
        }
    }
    let in_container = job.get("container").is_some();
    job.steps.iter().for_each(|step| judged.step(step, in_container));
    judged.findings.extend(longer_than_lent(job, class));
    judged.findings
}

/// Checks the options of a job's container, or of its services.
fn privileged(judged: &mut Judged<'_>, node: &Node, key: &str) {
    let services = node.entries().filter(|_| key == "services").unwrap_or_default();
    let each = services.iter().map(|(_, service)| &**service);
    for options in each.chain([node]).filter_map(|one| one.get("options")) {
        let text = options.text().unwrap_or_default();
        if text.split_whitespace().any(|word| word == "--privileged") {
            judged.need(Need::Privileged, options.line, "`--privileged`");
        }
    }
}

fn longer_than_lent(job: &Job, class: &Class) -> Option<Finding> {
    let node = job.get("timeout-minutes")?;
    let (minutes, most) = (node.text()?.parse::<u64>().ok()?, class.max_minutes?);
    let what = format!("`timeout-minutes: {minutes}`: the class lends machines for {most} minutes at most");
    let fix = "shorten it, or ask for a class with a longer `maxRuntimeMinutes`".to_owned();
    (minutes > most).then(|| Finding::new(Level::Note, "max-runtime", node.line, what, fix))
}

/// Returns whether a step runs only on Windows or macOS.
fn is_of_another_system(condition: &str) -> bool {
    let condition = condition.to_ascii_lowercase().replace(['"', ' '], "");
    ["windows", "macos"].iter().any(|system| condition.contains(&format!("runner.os=='{system}'")))
        && !condition.contains("||")
}

/// Returns the commands of a line of a script: the first word of each, and the command after `sudo`.
fn commands(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for part in line.split(['&', '|', ';', '(', '{', '`']) {
        let is_leading = |word: &&str| LEADING.contains(word) || is_assignment(word);
        let mut words =
            part.split_whitespace().map(|word| word.trim_matches(['"', '\''])).skip_while(is_leading);
        let Some(first) = words.next().map(name) else { continue };
        found.push(first);
        if first == "sudo" {
            found.extend(words.find(|word| !word.starts_with('-') && !is_assignment(word)).map(name));
        }
    }
    found
}

/// Returns a program's name without its directory.
fn name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

fn is_assignment(word: &str) -> bool {
    let named = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    word.split_once('=').is_some_and(|(name, _)| named(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_behind_what_the_shell_puts_before_them() {
        for (line, expected) in [
            ("sudo -E apt-get update", vec!["sudo", "apt-get"]),
            ("if ! docker ps; then exit 1; fi", vec!["docker", "exit", "fi"]),
            ("FOO=1 BAR=\"x\" docker run x | tee y", vec!["docker", "tee"]),
            ("x=$(/usr/bin/docker ps -q) && echo sudo", vec!["docker", "echo"]),
            ("echo \"use sudo\"", vec!["echo"]),
            ("pseudo docker", vec!["pseudo"]),
            ("", vec![]),
            ("&&;|(", vec![]),
        ] {
            assert_eq!(commands(line), expected, "{line}");
        }
    }

    #[test]
    fn a_step_of_another_system_is_known_by_its_condition() {
        for of_another in
            ["runner.os == 'Windows'", "${{ runner.os == \"macOS\" }}", "runner.os=='Windows' && x"]
        {
            let quoted = of_another.replace('"', "'");
            assert!(is_of_another_system(&quoted), "{of_another}");
        }
        for here in
            ["runner.os != 'Windows'", "runner.os == 'Linux'", "runner.os == 'Windows' || x", "always()"]
        {
            assert!(!is_of_another_system(here), "{here}");
        }
    }
}
