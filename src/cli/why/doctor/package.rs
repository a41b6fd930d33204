//! Downloads a package as a machine would, without keeping it, and checks its digest.

use std::time::Duration;

use sha2::{Digest as _, Sha256};

use runyard_operator::preflight::Check;

/// Timeout of the connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Timeout between two reads.
const SILENCE: Duration = Duration::from_secs(30);
/// Timeout of the whole download.
const ALL: Duration = Duration::from_secs(600);
/// Maximum size of a package, in bytes.
const MOST: u64 = 2 << 30;

/// Checks a package by its address and digest (hexadecimal). `keys` are the settings that name it.
pub(super) async fn check(what: &str, url: &str, sha256: &str, keys: &str) -> Check {
    let fix =
        |what_else: &str| format!("{what_else} ({keys}); machines must reach it too, from their subnets");
    match digest(url).await {
        Ok((found, bytes)) if found == sha256 => {
            Check::good(what, format!("{url}: {} MiB, of the right digest", bytes >> 20))
        }
        Ok((found, _)) => {
            let problem = format!("{url} has the digest {found}, and {sha256} is expected");
            Check::wrong(
                what,
                problem,
                fix("compare both with the release's own page, and set the right one"),
            )
        }
        Err(why) => {
            Check::wrong(what, format!("{url} cannot be fetched: {why}"), fix("name an address that answers"))
        }
    }
}

/// Downloads the body of an address piece by piece and returns its digest and length.
async fn digest(url: &str) -> Result<(String, u64), String> {
    let told = |error: reqwest::Error| {
        let error = error.without_url();
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("{error}{cause}")
    };
    let client = reqwest::Client::builder()
        .user_agent(concat!("runyard/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT)
        .read_timeout(SILENCE)
        .timeout(ALL);
    let mut answer = client.build().map_err(told)?.get(url).send().await.map_err(told)?;
    if !answer.status().is_success() {
        return Err(format!("the answer is {}", answer.status()));
    }
    let (mut digest, mut bytes) = (Sha256::new(), 0_u64);
    while let Some(piece) = answer.chunk().await.map_err(told)? {
        bytes += piece.len() as u64;
        if bytes > MOST {
            return Err(format!("it is larger than {} MiB", MOST >> 20));
        }
        digest.update(&piece);
    }
    Ok((digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect(), bytes))
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::http::StatusCode;
    use axum::routing::get;

    use super::*;
    use runyard_operator::preflight::Outcome;

    /// The digest of `package`.
    const RIGHT: &str = "bc4a4a8a3ad5b4b6d2e0a1c9a3e2f3f34e9fe6eb49f28b4d6d1a7c1a0bf0d8c0";

    async fn server() -> String {
        let app = Router::new()
            .route("/package", get(|| async { "package" }))
            .route("/moved", get(|| async { (StatusCode::FOUND, [("location", "/package")], "") }));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        url
    }

    #[tokio::test]
    async fn a_package_is_fetched_and_measured_and_another_one_told_with_both_digests() {
        let url = server().await;
        let right: String = Sha256::digest("package").iter().map(|byte| format!("{byte:02x}")).collect();
        for path in ["package", "moved"] {
            let good = check("runner package", &format!("{url}/{path}"), &right, "agent.runner_sha256").await;
            assert!(matches!(good.outcome, Outcome::Good(_)), "{path}: {good:?}");
        }
        let other = check("runner package", &format!("{url}/package"), RIGHT, "agent.runner_sha256").await;
        let told = format!("{other:?}");
        assert!(
            matches!(other.outcome, Outcome::Wrong { .. }) && told.contains(&right) && told.contains(RIGHT)
        );
        assert!(told.contains("agent.runner_sha256"), "{told}");
    }

    #[tokio::test]
    async fn a_package_that_is_not_there_or_cannot_be_reached_is_told() {
        let url = server().await;
        let gone = format!("{:?}", check("runner package", &format!("{url}/none"), RIGHT, "k").await);
        assert!(gone.contains("404"), "{gone}");
        let nobody = format!("{:?}", check("runner package", "http://127.0.0.1:9/p", RIGHT, "k").await);
        assert!(nobody.contains("cannot be fetched"), "{nobody}");
    }
}
