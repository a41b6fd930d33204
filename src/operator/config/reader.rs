//! Reads the value of each key. Values are parsed one by one; an invalid one is recorded and the reading continues, so
//! that all problems are reported at once.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use figment::Figment;
use figment::value::Value;
use jiff::SignedDuration;
use reqwest::Url;

use super::layers::scalar;
use super::secret::{HIDDEN, looks_secret, names_secret};
use crate::model::{FieldError, variable_refusal};

/// The shortest configurable duration: below it, a machine would do nothing but poll.
pub const SHORTEST: Duration = Duration::from_millis(100);

/// The longest configurable duration: a year. Longer ones are typing errors.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Reads values and collects their problems.
pub(super) struct Reader {
    values: Figment,
    pub(super) problems: Vec<FieldError>,
}

impl Reader {
    pub(super) fn new(values: Figment, problems: Vec<FieldError>) -> Self {
        Self { values, problems }
    }

    /// Parses the value at a path with `parse`. Returns `None` if it is invalid, which is recorded.
    pub(super) fn parsed<T>(
        &mut self,
        path: &str,
        parse: impl FnOnce(&str) -> Result<T, FieldError>,
    ) -> Option<T> {
        let value = self.values.find_value(path).expect("the defaults have every key");
        let Some(text) = scalar(&value) else {
            self.note(path, FieldError::new(path, "…", "is not a single value", "write one value in quotes"));
            return None;
        };
        parse(text.trim()).map_err(|problem| self.note(path, problem)).ok()
    }

    /// Parses an optional value; `""` is none.
    pub(super) fn optional<T>(
        &mut self,
        path: &str,
        parse: impl FnOnce(&str) -> Result<T, FieldError>,
    ) -> Option<Option<T>> {
        self.parsed(path, |text| if text.is_empty() { Ok(None) } else { parse(text).map(Some) })
    }

    /// Reads variables with their values: a table, or the same as JSON in one text.
    pub(super) fn variables(&mut self, path: &str) -> Option<BTreeMap<String, String>> {
        let value = self.values.find_value(path).expect("the defaults have every key");
        let given = match scalar(&value) {
            Some(text) if text.trim().is_empty() => Some(BTreeMap::new()),
            Some(text) => serde_json::from_str(&text).ok(),
            None => value.as_dict().and_then(|table| {
                table.iter().map(|(name, value)| Some((name.clone(), scalar(value)?))).collect()
            }),
        };
        let Some(given) = given else {
            let fix = "write a table of texts, such as {HTTPS_PROXY = \"http://proxy.example:3128\"}, or by the \
                       environment as JSON";
            self.note(path, FieldError::new(path, "…", "is not a table of variables", fix));
            return None;
        };
        let refused: Vec<FieldError> =
            given.iter().filter_map(|(name, value)| bad_variable(name, value)).collect();
        let good = refused.is_empty();
        for problem in refused {
            let name = format!("{path}.{}", problem.field);
            self.problems.push(problem.named(name));
        }
        good.then_some(given)
    }

    /// Returns the value at a path unparsed.
    pub(super) fn value(&self, path: &str) -> Value {
        self.values.find_value(path).expect("the defaults have every key")
    }

    /// Records a problem of one key, with the source of its value.
    pub(super) fn note(&mut self, path: &str, problem: FieldError) {
        let from = self.values.find_metadata(path).map_or("the defaults", |metadata| &metadata.name);
        let message = format!("{} (from {from})", problem.message);
        self.problems.push(FieldError { message, ..problem }.named(path));
    }

    /// Records a problem between keys.
    pub(super) fn refuse(&mut self, path: &str, value: String, message: &str, fix: &str) {
        self.problems.push(FieldError::new(path, value, message, fix));
    }
}

/// Returns why a variable cannot be passed on: every job can read it, and its machine's user data.
fn bad_variable(name: &str, value: &str) -> Option<FieldError> {
    let refused = |value: &str, message: String, fix: &str| Some(FieldError::new(name, value, message, fix));
    if let Some(why) = variable_refusal(name) {
        return refused(value, why, "leave it out, or name another");
    }
    let password = value.split_once("://").and_then(|(_, rest)| rest.split('/').next()?.rsplit_once('@'));
    if looks_secret(value) || (names_secret(name) && !value.is_empty()) {
        return refused(HIDDEN, "looks like a secret, and every job can read it".into(), "leave it out");
    }
    if password.is_some_and(|(user, _)| user.contains(':')) {
        let fix = "write the URL without USER:PASSWORD@, and let the proxy know machines by their network";
        return refused(HIDDEN, "holds a password, and every job can read it".into(), fix);
    }
    if value.len() > 4096 || value.chars().any(char::is_control) {
        return refused(value, "is not one line of at most 4096 bytes".into(), "shorten it");
    }
    None
}

/// Parses a duration such as `90s`.
///
/// # Errors
/// Without a unit, shorter than 100 ms or longer than a year.
pub fn duration(text: &str) -> Result<Duration, FieldError> {
    let refused = |message: &str| {
        let fix = "write a number and a unit (ms, s, m, h), at least 100ms, such as \"90s\"";
        FieldError::new("duration", text, message, fix)
    };
    let unit_less = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if unit_less {
        return Err(refused("is a duration without a unit"));
    }
    let signed: SignedDuration = text.parse().map_err(|_| refused("is not a duration"))?;
    let duration = Duration::try_from(signed).map_err(|_| refused("is a negative duration"))?;
    if duration < SHORTEST {
        return Err(refused("is shorter than 100 ms"));
    }
    if duration > LONGEST {
        return Err(refused("is longer than a year"));
    }
    Ok(duration)
}

/// Parses an interval of at least a second; `0s` or `off` disables it.
pub(super) fn interval(text: &str) -> Result<Option<Duration>, FieldError> {
    if matches!(text, "0s" | "0" | "off") {
        return Ok(None);
    }
    let every = duration(text)?;
    if every < Duration::from_secs(1) {
        let fix = "write at least \"1s\", or \"0s\" for never";
        return Err(FieldError::new("interval", text, "is shorter than a second", fix));
    }
    Ok(Some(every))
}

/// Parses how long the history is kept, in whole days.
pub(super) fn keep(text: &str) -> Result<Duration, FieldError> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok());
    let days = days.filter(|days| (1..=3650).contains(days));
    days.map(|days| Duration::from_secs(days * 24 * 3600)).ok_or_else(|| {
        let fix = "write whole days from \"1d\" to \"3650d\", such as \"90d\"";
        FieldError::new("keep", text, "is not how long the history is kept", fix)
    })
}

/// Parses the maximum number of open requests of one repository.
pub(super) fn requests_per_repository(text: &str) -> Result<u32, FieldError> {
    let most = text.parse().ok().filter(|most| (1..=100_000).contains(most));
    most.ok_or_else(|| {
        let fix = "write a whole number from 1 to 100000, such as 2000";
        FieldError::new("requests_per_repository", text, "is not how many requests may be open", fix)
    })
}

/// Parses the capacity of a bucket.
pub(super) fn burst(text: &str) -> Result<u32, FieldError> {
    let burst = text.parse().ok().filter(|burst| (1..=1_000_000).contains(burst));
    burst.ok_or_else(|| {
        let fix = "write a whole number from 1 to 1000000, such as 50";
        FieldError::new("burst", text, "is not what a bucket may hold", fix)
    })
}

/// Parses the refill rate of a bucket, and returns it in thousandths per second.
pub(super) fn per_second(text: &str) -> Result<u32, FieldError> {
    let rate = text.parse().ok().filter(|rate: &f64| (0.01..=10_000.0).contains(rate));
    rate.map(|rate| (rate * 1000.0).round() as u32).ok_or_else(|| {
        let fix = "write a number from 0.01 to 10000, such as 5 or 0.5";
        FieldError::new("per_second", text, "is not a rate a second", fix)
    })
}

/// Parses `true` or `false`.
pub(super) fn truth(text: &str) -> Result<bool, FieldError> {
    text.parse()
        .map_err(|_| FieldError::new("truth", text, "is neither true nor false", "write true or false"))
}

/// Parses an address to listen at.
pub(super) fn address(text: &str) -> Result<SocketAddr, FieldError> {
    text.parse().map_err(|_| {
        let fix = "write IP:PORT, such as 0.0.0.0:8080, 127.0.0.1:0 or [::]:8080";
        FieldError::new("address", text, "is not an address to listen at", fix)
    })
}

/// Parses the address of a server whose traffic must be protected from reading and tampering.
pub(super) fn url(text: &str) -> Result<String, FieldError> {
    let refused = |message: &str, fix: &str| FieldError::new("url", text, message, fix);
    let url = Url::parse(text)
        .map_err(|error| refused(&format!("is not a URL: {error}"), "write https://HOST/PATH"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(FieldError::new(
            "url",
            HIDDEN,
            "holds a password",
            "write the URL without USER:PASSWORD@",
        ));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(refused("has a query or a fragment", "write the URL without ? and #"));
    }
    let secure = url.scheme() == "https" || (url.scheme() == "http" && url.host_str().is_some_and(loopback));
    if secure {
        Ok(text.trim_end_matches('/').to_owned())
    } else {
        Err(refused("is not https", "write https://…; http is for loopback only"))
    }
}

fn loopback(host: &str) -> bool {
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

/// Parses the name of an SQS standard queue: at most 80 of letters, digits, `-` and `_` (SQS).
pub(super) fn queue_name(text: &str) -> Result<String, FieldError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if text.len() <= 80 && text.bytes().all(plain) {
        return Ok(text.to_owned());
    }
    let fix = "write the name (not the URL or ARN) of a standard queue, such as runyard-interruptions";
    Err(FieldError::new("queue", text, "is not the name of an SQS queue", fix))
}

/// Parses the name of a file.
pub(super) fn path(text: &str) -> Result<PathBuf, FieldError> {
    if text.chars().any(char::is_control) {
        return Err(FieldError::new("path", HIDDEN, "is not the name of a file", "write the file's path"));
    }
    Ok(PathBuf::from(text))
}

/// Parses mount points, separated by commas.
pub(super) fn places(text: &str) -> Result<Vec<PathBuf>, FieldError> {
    let given = text.split(',').map(str::trim).filter(|place| !place.is_empty());
    let place = |text: &str| {
        let path = path(text)?;
        if path.is_absolute() && path.parent().is_some() {
            return Ok(path);
        }
        let fix = "write where each is mounted, such as /mnt/efs,/mnt/tools";
        Err(FieldError::new("places", text, "is not an absolute path below /", fix))
    };
    given.map(place).collect()
}

/// Parses hosts, separated by commas.
pub(super) fn hosts(text: &str) -> Result<Vec<String>, FieldError> {
    let given = text.split(',').map(str::trim).filter(|host| !host.is_empty());
    let host = |text: &str| {
        let host = text.to_ascii_lowercase();
        if crate::model::origin_of(&format!("https://{host}")) == Some(format!("https://{host}")) {
            return Ok(host);
        }
        let fix = "write names such as mirror.example.com, with :port where it is not 443";
        Err(FieldError::new("hosts", text, "is not a host", fix))
    };
    given.map(host).collect()
}

/// Parses the app id or client id of a GitHub App.
pub(super) fn app_id(text: &str) -> Result<String, FieldError> {
    if text.len() <= 40 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.') {
        Ok(text.to_owned())
    } else {
        let fix = "write the number or the client id that the App's page shows";
        Err(FieldError::new("app_id", text, "is not the id of a GitHub App", fix))
    }
}

/// Parses a SHA-256 digest.
pub(super) fn sha256(text: &str) -> Result<String, FieldError> {
    if text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(FieldError::new("sha256", text, "is not a SHA-256 digest", "write its 64 hexadecimal digits"))
    }
}

/// Parses a version such as 2.330.0.
pub(super) fn version(text: &str) -> Result<String, FieldError> {
    let good = text.len() <= 40 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b".-+".contains(&b));
    if good {
        Ok(text.to_owned())
    } else {
        Err(FieldError::new(
            "version",
            text,
            "is not a version",
            "write the package's version, such as 2.330.0",
        ))
    }
}
