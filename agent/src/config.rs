//! The agent's configuration: one TOML file. Every problem in it is reported at once, with the key, the value and the
//! fix. An unknown key is a problem.

use std::path::PathBuf;
use std::time::Duration;

use jiff::SignedDuration;
use runyard_core::model::{FieldError, InstanceArn, InstanceId, TableName, Timing as Rhythm, origin_of};
use toml::{Table, Value};

use crate::agent::Timing;
use crate::host::{OwnScript, PackageSource};
use crate::shutdown::guard::Lengths;

/// The shortest duration that is accepted.
const SHORTEST: Duration = Duration::from_millis(100);
/// GitHub's worker kills a step 10 s after its listener was asked to end, then uploads its logs and reports the job,
/// without a limit of its own (actions/runner, `ProcessInvoker.cs`, `JobDispatcher.cs`).
const STOP: Duration = Duration::from_secs(60);
/// Path of a machine's post-run script, if its image or its pre-runner script installed one.
const POST_RUN: &str = "/etc/runyard/post-run.sh";

/// How the machine is powered off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerOff {
    /// The agent exits.
    Exit,
    /// `systemctl poweroff`.
    Systemctl,
}

/// An agent's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The table.
    pub table: TableName,
    /// The machine's id and its ARN; read from the metadata service if `None`.
    pub instance: Option<(InstanceId, InstanceArn)>,
    /// Directory for files that only root can read.
    pub state_dir: PathBuf,
    /// Directory for all other files.
    pub work_dir: PathBuf,
    /// The intervals and time limits.
    pub timing: Timing,
    /// Time limit for a runner to end by itself.
    pub stop: Duration,
    /// Mount points of foreign file systems that jobs may write to all the same.
    pub spare: Vec<PathBuf>,
    /// The runner package.
    pub package: PackageSource,
    /// Hosts other than GitHub's from which a claim's runner package may be downloaded.
    pub package_hosts: Vec<String>,
    /// The script that runs first.
    pub pre_runner: Option<OwnScript>,
    /// The script that runs after each claim.
    pub post_run: Option<OwnScript>,
    /// How the machine is powered off.
    pub power: PowerOff,
    /// The user that jobs run as.
    pub job_user: Option<String>,
    /// Whether a machine registers no runner if its jobs can reach the machine's own resources.
    pub isolated: bool,
}

/// All problems of a configuration.
#[derive(Debug, thiserror::Error)]
#[error("the configuration cannot be used:\n{}", .0.iter().map(|p| format!("  {p}")).collect::<Vec<_>>().join("\n"))]
pub struct Problems(pub Vec<FieldError>);

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    /// All problems that were found.
    pub fn parse(text: &str) -> Result<Self, Problems> {
        let table = text.parse::<Table>().map_err(|e| {
            Problems(vec![FieldError::new(
                "(file)",
                "",
                e.message(),
                "write TOML: key = \"value\", [section]",
            )])
        })?;
        let mut keys = Keys { table, problems: Vec::new() };
        let config = read(&mut keys);
        keys.refuse_the_rest();
        match config {
            Some(config) if keys.problems.is_empty() => Ok(config),
            Some(_) | None => Err(Problems(keys.problems)),
        }
    }
}

/// Reads every key before it checks for missing ones, so that all problems are found.
fn read(keys: &mut Keys) -> Option<Config> {
    let table = keys.text("table").and_then(|v| keys.checked("table", TableName::parse(&v)));
    let instance = keys.instance();
    let (state_dir, work_dir) = (keys.path("state_dir"), keys.path("work_dir"));
    let heartbeat = keys.duration("timing.heartbeat", Duration::from_secs(10));
    let heartbeat_free = keys.duration("timing.heartbeat_free", Rhythm::rarely(heartbeat));
    let poll = keys.duration("timing.poll", Duration::from_secs(1));
    let grace = keys.duration("timing.grace", Duration::from_secs(300));
    let created = keys.duration("timing.created", Duration::from_secs(900));
    let reregister = keys.duration("timing.reregister", Duration::from_secs(2));
    let stop = keys.duration("timing.stop", STOP);
    let spare = keys.places("cleaning.spare");
    let url = keys.text("runner.url").and_then(|v| keys.url("runner.url", &v));
    let sha256 = keys.text("runner.sha256").and_then(|v| keys.sha256("runner.sha256", &v));
    let version = keys.runner_version();
    let package_hosts = keys.hosts("runner.hosts");
    let script = keys.optional("pre_runner_script").map(PathBuf::from);
    let timeout = keys.duration("pre_runner_timeout", Duration::from_secs(600));
    let power = keys.power();
    let post_run = keys.post_run(power);
    let job_user = keys.optional("job_user");
    let isolated = keys.flag("isolation.required", job_user.is_some());
    if isolated && job_user.is_none() {
        keys.problem(
            "isolation.required",
            "true",
            "without a job_user",
            "name the user jobs run as: job_user",
        );
    }
    Some(Config {
        table: table?,
        instance,
        state_dir: state_dir?,
        work_dir: work_dir?,
        timing: Timing { heartbeat, heartbeat_free, poll, reregister, guard: Lengths { created, grace } },
        stop,
        spare,
        package: PackageSource { url: url?, sha256: sha256?, version },
        package_hosts,
        pre_runner: script.map(|script| OwnScript { script, timeout, optional: false }),
        post_run,
        power,
        job_user,
        isolated,
    })
}

/// The keys that were not read yet, and the problems of the others.
struct Keys {
    table: Table,
    problems: Vec<FieldError>,
}

impl Keys {
    fn take(&mut self, key: &str) -> Option<Value> {
        match key.split_once('.') {
            None => self.table.remove(key),
            Some((section, key)) => self.table.get_mut(section)?.as_table_mut()?.remove(key),
        }
    }

    fn problem(&mut self, key: &str, value: &str, message: &str, fix: &str) {
        self.problems.push(FieldError::new(key, value, message, fix));
    }

    fn checked<T>(&mut self, key: &str, result: Result<T, FieldError>) -> Option<T> {
        result.map_err(|error| self.problems.push(error.named(key))).ok()
    }

    fn optional(&mut self, key: &str) -> Option<String> {
        match self.take(key)? {
            Value::String(value) if !value.is_empty() => Some(value),
            other => {
                self.problem(
                    key,
                    &other.to_string(),
                    "not a string with something in it",
                    "write key = \"value\"",
                );
                None
            }
        }
    }

    fn text(&mut self, key: &str) -> Option<String> {
        let before = self.problems.len();
        let value = self.optional(key);
        if value.is_none() && self.problems.len() == before {
            self.problem(key, "", "missing", "every agent needs it");
        }
        value
    }

    /// Reads the machine's id and ARN. Both must be given or neither, and they must name the same machine.
    fn instance(&mut self) -> Option<(InstanceId, InstanceArn)> {
        let id = self.optional("instance_id");
        let arn = self.optional("instance_arn");
        match (&id, &arn) {
            (Some(_), None) => self.problem("instance_arn", "", "missing", "give both, or neither on EC2"),
            (None, Some(_)) => self.problem("instance_id", "", "missing", "give both, or neither on EC2"),
            (Some(_), Some(_)) | (None, None) => {}
        }
        let id = id.and_then(|v| self.checked("instance_id", InstanceId::parse(&v)));
        let arn = arn.and_then(|v| self.checked("instance_arn", InstanceArn::parse(&v)));
        let (id, arn) = (id?, arn?);
        if arn.instance_id() != id.as_str() {
            let fix = "end it in instance/<instance_id>";
            self.problem("instance_arn", arn.as_str(), "not the ARN of instance_id", fix);
        }
        Some((id, arn))
    }

    /// Reads the version. It is empty if it is not given: then GitHub refuses a runner that is too old. Whether a
    /// version is too old depends on the GitHub server, so this is checked when a runner is registered.
    fn runner_version(&mut self) -> String {
        let Some(version) = self.optional("runner.version") else { return String::new() };
        let numbers: Option<Vec<u64>> = version.split('.').map(|part| part.parse().ok()).collect();
        if numbers.is_none_or(|numbers| numbers.len() != 3) {
            self.problem("runner.version", &version, "not a version", "write for example 2.330.0");
        }
        version
    }

    fn flag(&mut self, key: &str, default: bool) -> bool {
        match self.take(key) {
            None => default,
            Some(Value::Boolean(value)) => value,
            Some(other) => {
                self.problem(key, &other.to_string(), "neither true nor false", "write true or false");
                default
            }
        }
    }

    fn path(&mut self, key: &str) -> Option<PathBuf> {
        let value = self.text(key)?;
        let path = PathBuf::from(&value);
        if path.is_absolute() {
            return Some(path);
        }
        self.problem(key, &value, "not an absolute path", "begin it with /");
        None
    }

    /// Reads a list of mount points.
    fn places(&mut self, key: &str) -> Vec<PathBuf> {
        let Some(value) = self.take(key) else { return Vec::new() };
        let place = |value: &Value| {
            let path = PathBuf::from(value.as_str()?);
            (path.is_absolute() && path.parent().is_some()).then_some(path)
        };
        let places = value.as_array().and_then(|values| values.iter().map(place).collect());
        if places.is_none() {
            let fix = "write for example [\"/mnt/efs\"], each where one is mounted";
            self.problem(key, &value.to_string(), "not a list of absolute paths below /", fix);
        }
        places.unwrap_or_default()
    }

    /// Reads a list of host names.
    fn hosts(&mut self, key: &str) -> Vec<String> {
        let Some(value) = self.take(key) else { return Vec::new() };
        let host = |value: &Value| {
            let origin = format!("https://{}", value.as_str()?);
            (origin_of(&origin)? == origin).then(|| value.as_str().unwrap_or_default().to_owned())
        };
        let hosts = value.as_array().and_then(|values| values.iter().map(host).collect());
        if hosts.is_none() {
            let fix = "write for example [\"mirror.example.com\"], in lower case";
            self.problem(key, &value.to_string(), "not a list of hosts", fix);
        }
        hosts.unwrap_or_default()
    }

    fn duration(&mut self, key: &str, default: Duration) -> Duration {
        let Some(value) = self.optional(key) else { return default };
        let parsed = value.parse::<SignedDuration>().ok().and_then(|d| Duration::try_from(d).ok());
        match parsed {
            Some(duration) if duration >= SHORTEST => duration,
            Some(_) | None => {
                self.problem(
                    key,
                    &value,
                    "not a duration of at least 100ms",
                    "write for example \"90s\" or \"5m\"",
                );
                default
            }
        }
    }

    fn url(&mut self, key: &str, value: &str) -> Option<reqwest::Url> {
        match reqwest::Url::parse(value) {
            Ok(url) if matches!(url.scheme(), "http" | "https") => Some(url),
            Ok(_) | Err(_) => {
                self.problem(key, value, "not an address", "write https://…/actions-runner-linux-x64.tar.gz");
                None
            }
        }
    }

    fn sha256(&mut self, key: &str, value: &str) -> Option<String> {
        if value.len() == 64 && value.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Some(value.to_ascii_lowercase());
        }
        self.problem(
            key,
            value,
            "not a SHA-256",
            "write its 64 hexadecimal digits, as sha256sum prints them",
        );
        None
    }

    fn power(&mut self) -> PowerOff {
        match self.optional("power.off").as_deref() {
            None | Some("systemctl") => PowerOff::Systemctl,
            Some("exit") => PowerOff::Exit,
            Some(other) => {
                let other = other.to_owned();
                self.problem(
                    "power.off",
                    &other,
                    "not a way to switch off",
                    "use systemctl, or exit in local mode",
                );
                PowerOff::Systemctl
            }
        }
    }

    /// Reads the post-run script. A script that is named must exist; the default script of a machine of its own may be
    /// missing.
    fn post_run(&mut self, power: PowerOff) -> Option<OwnScript> {
        let named = self.optional("post_run_script").map(PathBuf::from);
        let timeout = self.duration("post_run_timeout", Duration::from_secs(60));
        match (named, power) {
            (Some(script), _) => Some(OwnScript { script, timeout, optional: false }),
            (None, PowerOff::Systemctl) => {
                Some(OwnScript { script: POST_RUN.into(), timeout, optional: true })
            }
            (None, PowerOff::Exit) => None,
        }
    }

    fn refuse_the_rest(&mut self) {
        let sections = ["timing", "runner", "power", "isolation", "cleaning"];
        let mut rest = Vec::new();
        for (key, value) in std::mem::take(&mut self.table) {
            match value {
                Value::Table(keys) if sections.contains(&key.as_str()) => {
                    rest.extend(keys.into_iter().map(|(name, value)| (format!("{key}.{name}"), value)));
                }
                value => rest.push((key, value)),
            }
        }
        for (key, value) in rest {
            self.problem(
                &key,
                &value.to_string(),
                "not a known key",
                "remove it, or look for a slip of the pen",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        table = "runyard"
        instance_id = "i-0123456789abcdef0"
        instance_arn = "arn:aws:ec2:local:000000000000:instance/i-0123456789abcdef0"
        state_dir = "/run/runyard"
        work_dir = "/var/lib/runyard"
        [timing]
        heartbeat = "500ms"
        poll = "100ms"
        grace = "1m 30s"
        created = "15m"
        [runner]
        url = "http://127.0.0.1:1/runner.tar.gz"
        sha256 = "ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef0123456789"
        version = "2.999.0"
        [power]
        off = "exit"
    "#;

    #[test]
    fn a_whole_configuration_is_read() {
        let config = Config::parse(GOOD).unwrap();
        assert_eq!(config.timing.heartbeat, Duration::from_millis(500));
        assert_eq!(config.timing.heartbeat_free, Duration::from_millis(1250), "nobody said another");
        let said = GOOD.replace("poll =", "heartbeat_free = \"900ms\"\npoll =");
        assert_eq!(Config::parse(&said).unwrap().timing.heartbeat_free, Duration::from_millis(900));
        assert_eq!(config.timing.guard.grace, Duration::from_secs(90));
        assert_eq!(config.power, PowerOff::Exit);
        assert!(config.package.sha256.starts_with("abcdef") && config.pre_runner.is_none());
    }

    #[test]
    fn a_named_post_run_script_must_exist_and_ec2_machines_have_a_default_path() {
        let with = |more: &str, power: &str| {
            let text = GOOD.replace("table =", &format!("{more}\ntable =")).replace("\"exit\"", power);
            Config::parse(&text).unwrap().post_run
        };
        assert_eq!(with("", "\"exit\""), None);
        let found = with("post_run_timeout = \"5s\"", "\"systemctl\"").unwrap();
        let (place, five) = (PathBuf::from("/etc/runyard/post-run.sh"), Duration::from_secs(5));
        assert_eq!(found, OwnScript { script: place, timeout: five, optional: true });
        for power in ["\"exit\"", "\"systemctl\""] {
            let named = with("post_run_script = \"/opt/hook\"", power).unwrap();
            assert_eq!((named.script, named.optional), (PathBuf::from("/opt/hook"), false));
        }
    }

    #[test]
    fn what_is_spared_is_a_list_of_places_below_the_root() {
        let with = |line: &str| Config::parse(&GOOD.replace("[timing]", &format!("{line}\n[timing]")));
        assert_eq!(with("").unwrap().spare, Vec::<PathBuf>::new());
        let spared = with("cleaning.spare = [\"/mnt/efs\"]").unwrap().spare;
        assert_eq!(spared, [PathBuf::from("/mnt/efs")]);
        for bad in ["\"/mnt\"", "[\"mnt\"]", "[\"/\"]", "[1]"] {
            let Problems(problems) = with(&format!("cleaning.spare = {bad}")).unwrap_err();
            assert_eq!(problems[0].field, "cleaning.spare", "{bad}");
        }
        assert_eq!(with("").unwrap().stop, Duration::from_secs(60), "GitHub's listener needs 45");
    }

    #[test]
    fn hosts_of_packages_are_a_list_of_names() {
        let with =
            |value: &str| Config::parse(&GOOD.replace("[power]", &format!("hosts = {value}\n[power]")));
        assert_eq!(with("[]").unwrap().package_hosts, Vec::<String>::new());
        assert_eq!(with("[\"ghes.example.com:8443\"]").unwrap().package_hosts, ["ghes.example.com:8443"]);
        for bad in ["\"a\"", "[\"https://a\"]", "[\"a/b\"]", "[\"\"]", "[\"u@a\"]", "[1]"] {
            let Problems(problems) = with(bad).unwrap_err();
            assert_eq!(problems[0].field, "runner.hosts", "{bad}");
        }
    }

    #[test]
    fn all_problems_are_reported_at_once_with_their_keys() {
        let bad = GOOD
            .replace("heartbeat = \"500ms\"", "heartbeat = \"99ms\"\nhartbeat = \"1s\"")
            .replace("off = \"exit\"", "off = \"halt\"")
            .replace("work_dir = \"/var", "work_dir = \"var")
            .replace("poll = \"100ms\"", "poll = 1")
            .replace("table = \"runyard\"", "tables = \"runyard\"")
            .replace("sha256 = \"ABC", "sha256 = \"xyz")
            .replace("http://127", "ftp://127")
            .replace("instance/i-0123456789abcdef0", "instance/i-1");
        let Problems(problems) = Config::parse(&bad).unwrap_err();
        let mut keys: Vec<_> = problems.iter().map(|p| p.field.as_str()).collect();
        keys.sort_unstable();
        let wanted = [
            "instance_arn",
            "power.off",
            "runner.sha256",
            "runner.url",
            "table",
            "tables",
            "timing.hartbeat",
            "timing.heartbeat",
            "timing.poll",
            "work_dir",
        ];
        assert_eq!(keys, wanted);
        assert!(problems.iter().all(|p| !p.fix.is_empty()));
    }

    #[test]
    fn an_unnamed_machine_is_read_from_metadata_and_a_half_named_one_is_refused() {
        let without = |keys: &[&str]| {
            let kept = GOOD.lines().filter(|line| !keys.iter().any(|key| line.trim().starts_with(key)));
            Config::parse(&kept.collect::<Vec<_>>().join("\n"))
        };
        assert_eq!(without(&["instance_id", "instance_arn"]).unwrap().instance, None);
        for key in ["instance_id", "instance_arn"] {
            let Problems(problems) = without(&[key]).unwrap_err();
            assert_eq!((problems.len(), problems[0].field.as_str()), (1, key));
        }
    }

    #[test]
    fn a_runner_version_is_three_numbers_and_its_age_is_judged_at_registration() {
        let of = |version: &str| Config::parse(&GOOD.replace("2.999.0", version));
        for good in ["2.328.9", "2.330.1", "3.0.0"] {
            assert_eq!(of(good).unwrap().package.version, good);
        }
        for bad in ["2.329", "v2.330.0", "2.330.0-rc1"] {
            let Problems(problems) = of(bad).unwrap_err();
            assert_eq!((problems.len(), problems[0].field.as_str()), (1, "runner.version"), "{bad}");
            assert!(problems[0].message.contains("not a version"), "{bad}: {}", problems[0].message);
        }
    }

    #[test]
    fn isolation_is_required_where_jobs_have_a_user_of_their_own_and_can_be_waived() {
        assert!(!Config::parse(GOOD).unwrap().isolated);
        let with = |more: &str| {
            Config::parse(&GOOD.replace("table =", &format!("job_user = \"runner\"\n{more}\ntable =")))
        };
        assert!(with("").unwrap().isolated);
        assert!(!with("isolation.required = false").unwrap().isolated);
        assert!(with("isolation.required = \"no\"").is_err());
        assert!(Config::parse(&GOOD.replace("table =", "isolation.required = true\ntable =")).is_err());
    }

    #[test]
    fn an_empty_file_names_everything_that_is_missing() {
        let error = Config::parse("").unwrap_err();
        for key in ["table", "state_dir", "work_dir", "runner.url", "runner.sha256"] {
            assert!(error.0.iter().any(|p| p.field == key && p.message == "missing"), "{key}: {error}");
        }
        assert!(Config::parse("= ?").is_err());
    }
}
