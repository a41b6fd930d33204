//! `runyard operator`: starts the operator with its environment and maps its result to an exit code.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::common::failure::{CliFailure, CliResult};
use runyard_core::model::{FieldError, TableName};
use runyard_operator::config::Config;
use runyard_operator::wire::WireError;
use runyard_operator::{config, telemetry, wire};

/// Timeout of a health check.
const HEALTH: Duration = Duration::from_secs(4);

/// Runs the daemon.
#[derive(Debug, Args)]
#[command(after_help = "\
Every key of the file can be set by the environment too: RUNYARD_<SECTION>__<KEY>, such as RUNYARD_TIMING__STALE=90s.

Example:
  runyard operator --config /etc/runyard/runyard.toml")]
pub(crate) struct OperatorArgs {
    /// Configuration file; config/default.toml documents each key
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the health of the operator running here (for containers), and exit
    #[arg(long)]
    healthcheck: bool,
}

/// Runs `runyard operator`.
pub(crate) fn operator(args: &OperatorArgs, table: Option<TableName>) -> CliResult {
    let environment_variables = environment_variables(table);
    let config = Config::load(args.config.as_deref(), environment_variables.clone().into_iter())
        .map_err(|errors| of_wire(&WireError::Config(errors)))?;
    if args.healthcheck {
        return runtime()?.block_on(lives(config.listen)).map_err(|why| {
            let address = config.listen.to_string();
            CliFailure::error(
                "admin.listen",
                &address,
                why,
                "read the operator's log; it is to be started again",
            )
        });
    }
    telemetry::init(&config.log)
        .map_err(|error| CliFailure::error("log", "", error.to_string(), "run the command again"))?;
    runtime()?.block_on(wire::operator(&config, &environment_variables)).map_err(|error| of_wire(&error))
}

/// Asks the operator that listens at this address of this machine whether it is alive.
///
/// # Errors
/// The reason why it is not alive.
async fn lives(listen: SocketAddr) -> Result<(), String> {
    let mut address = listen;
    match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        IpAddr::V4(_) | IpAddr::V6(_) => {}
    }
    let told = |error: reqwest::Error| format!("does not answer: {}", said(&error.without_url()));
    let client = reqwest::Client::builder().no_proxy().timeout(HEALTH).build().map_err(told)?;
    let answer = client.get(format!("http://{address}/livez")).send().await.map_err(told)?;
    if answer.status().is_success() { Ok(()) } else { Err(format!("answers {}", answer.status())) }
}

/// Returns the environment, overridden by the command line.
pub(crate) fn environment_variables(table: Option<TableName>) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = config::environment().collect();
    all.extend(table.map(|table| ("RUNYARD_TABLE".to_owned(), table.to_string())));
    all
}

pub(crate) fn runtime() -> CliResult<tokio::runtime::Runtime> {
    let built = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    built.map_err(|error| CliFailure::error("runtime", "", error.to_string(), "run the command again"))
}

/// Converts an error of the operator to a failure; problems of the configuration are usage errors.
pub(crate) fn of_wire(error: &WireError) -> CliFailure {
    let problem = match error {
        WireError::Config(errors) => Some(CliFailure::all_usage(errors.problems().to_vec())),
        WireError::Key(problem) => Some(CliFailure::usage(problem.clone())),
        WireError::ApiUrl(error) => {
            let fix = "use https://api.github.com or your server's https://HOST/api/v3";
            Some(CliFailure::usage(FieldError::new("github.api_url", "", error.to_string(), fix)))
        }
        #[cfg(feature = "local")]
        WireError::Local(_) => None,
        WireError::GitHub(_) | WireError::Operator(_) | WireError::System(..) | WireError::Aborted => None,
    };
    problem.unwrap_or_else(|| {
        CliFailure::error("operator", "", said(error), "mend what is said, then start it again")
    })
}

/// Formats an error with its causes.
pub(crate) fn said(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;

    use super::*;

    fn asked(address: SocketAddr) -> Result<(), String> {
        runtime().unwrap().block_on(lives(address))
    }

    /// Runs a health check of an operator that is configured to listen there and responds like this.
    fn checked(listen: &str, answer: &'static str) -> Result<(), String> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut address: SocketAddr = listen.parse().unwrap();
        address.set_port(listener.local_addr().unwrap().port());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            line
        });
        let said = asked(address);
        assert_eq!(server.join().unwrap(), "GET /livez HTTP/1.1\r\n");
        said
    }

    #[test]
    fn a_health_check_asks_the_operator_where_it_listens() {
        for listen in ["127.0.0.1:0", "0.0.0.0:0"] {
            assert_eq!(checked(listen, "HTTP/1.1 200 OK\r\n\r\nok\n"), Ok(()));
        }
        for answer in ["HTTP/1.1 503 Service Unavailable\r\n\r\n", "", "SSH-2.0\r\n"] {
            assert!(checked("127.0.0.1:0", answer).is_err(), "{answer}");
        }
    }

    #[test]
    fn an_operator_that_does_not_listen_is_dead() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        assert!(asked(address).unwrap_err().contains("does not answer"));
    }
}
