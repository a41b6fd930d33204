//! The runner package: the one that the claim names, else the one that the machine was launched with. It is fetched
//! once, and unpacked once ([`crate::host::package::unpacked`]), while it is checked against its digest. Nothing of what has another
//! digest is ever used.

pub(crate) mod unpacked;
pub(crate) mod version;

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt;
use reqwest::StatusCode;
use reqwest::header::RANGE;
use runyard_core::model::{RunnerPackage, origin_of};
use tokio::io::AsyncWriteExt;

use super::{Host, PackageSource};
use crate::host::files::remove::remove;
use crate::host::package::unpacked::Found;
use crate::system::backoff::Backoff;
use crate::system::disk;

/// How often a package that is not the right one, or that the server refuses, is asked for.
const ATTEMPTS: u32 = 3;
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Longest wait for a connection, and for anything on it.
const CONNECT: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(30);

enum FetchError {
    /// To be tried again for as long as it takes.
    Away(String),
    /// To be tried again a few times.
    Wrong(String),
}

/// Why there was no answer, with what is behind it: that it could not be asked says nothing of who refused.
fn away(error: reqwest::Error) -> FetchError {
    let error = error.without_url();
    let causes = std::iter::successors(Some(&error as &dyn Error), |&cause| cause.source());
    FetchError::Away(causes.map(ToString::to_string).collect::<Vec<_>>().join(": "))
}

impl Host {
    /// From now on the claim's package, or the one that the machine was launched with.
    pub(super) fn name_package(&self, package: Option<&RunnerPackage>) {
        let named = package.map(|package| self.source_of(package));
        if let Some(Err(why)) = &named {
            tracing::warn!(why, "the runner package that the record names is not run");
        }
        *self.named.lock().expect("no holder panics") = named;
    }

    /// # Errors
    /// Why such a package is never fetched.
    fn source_of(&self, package: &RunnerPackage) -> Result<PackageSource, String> {
        let pinned = origin_of(self.settings.package.url.as_str());
        let hosts = self.settings.package_hosts.iter().map(|host| format!("https://{host}"));
        package.check(&hosts.chain(pinned).collect::<Vec<_>>()).map_err(|wrong| wrong.to_string())?;
        let url = reqwest::Url::parse(&package.url).map_err(|error| format!("runner.url: {error}"))?;
        Ok(PackageSource { url, sha256: package.sha256.clone(), version: package.version.clone() })
    }

    /// The package that runs now.
    ///
    /// # Errors
    /// Why the one that the record names does not.
    pub(super) fn package(&self) -> Result<PackageSource, String> {
        let named = self.named.lock().expect("no holder panics").clone();
        named.unwrap_or_else(|| Ok(self.settings.package.clone()))
    }

    pub(super) fn archive(&self, package: &PackageSource) -> PathBuf {
        self.layout.package().join(format!("{}.tar.gz", package.sha256))
    }

    /// Sees to it that a package is here, unpacked and right; where it is unpacked. The one that the machine was launched
    /// with is waited for as long as its server is away.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub(super) async fn fetch(&self, package: &PackageSource) -> Result<PathBuf, String> {
        let (mut backoff, mut attempts) = (Backoff::new(FIRST_WAIT, LONGEST_WAIT), 0);
        let patient = package.sha256 == self.settings.package.sha256;
        loop {
            let why = match self.fetch_once(package).await {
                Ok(()) => return Ok(self.tree(package)),
                Err(FetchError::Away(why)) => {
                    attempts += u32::from(!patient);
                    why
                }
                Err(FetchError::Wrong(why)) => {
                    attempts += 1;
                    why
                }
            };
            tracing::warn!(version = package.version, why, "the runner package cannot be had");
            if attempts == ATTEMPTS {
                return Err(format!("runner {}: {why}", package.version));
            }
            tokio::time::sleep(backoff.wait()).await;
        }
    }

    /// Whoever wants the same meanwhile waits, so that nothing is fetched or unpacked twice.
    async fn fetch_once(&self, package: &PackageSource) -> Result<(), FetchError> {
        let disk_error = |e: io::Error| FetchError::Wrong(e.to_string());
        let slot = self.slot(package).lock_owned().await;
        let (slot, found) = self.look_at(package, slot).await.map_err(disk_error)?;
        if found == Found::Whole {
            return Ok(());
        }
        let archive = self.archive(package);
        let part = archive.with_extension("part");
        self.forget_others(package);
        self.download(package, &part).await?;
        fs::rename(&part, &archive).map_err(disk_error)?;
        match self.look_at(package, slot).await.map_err(disk_error)?.1 {
            Found::Whole => {}
            Found::Other(found) => {
                let sha256 = &package.sha256;
                let wanted =
                    format!("its SHA-256 is {found}, not {sha256}; mend runner.sha256 or runner.url");
                return Err(FetchError::Wrong(wanted));
            }
            Found::Nothing => return Err(FetchError::Wrong("it is gone from the disk".to_owned())),
        }
        tracing::info!(version = package.version, "the runner package was fetched");
        Ok(())
    }

    /// Makes room: the package that the machine was launched with stays, and the one that is fetched now. No claim runs
    /// another one then.
    fn forget_others(&self, package: &PackageSource) {
        let stays = [&package.sha256, &self.settings.package.sha256];
        let others = |sha256: &str| stays.iter().all(|stays| *stays != sha256);
        self.unpacked.lock().expect("no holder panics").retain(|sha256, _| !others(sha256));
        for entry in fs::read_dir(self.layout.package()).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.to_str().is_none_or(|name| others(name.split('.').next().unwrap_or_default()))
                && let Err(error) = remove(&entry.path())
            {
                tracing::warn!(%error, "a runner package that nobody uses stays on the disk");
            }
        }
    }

    /// Goes on where an earlier download was cut off, if the server can.
    async fn download(&self, package: &PackageSource, part: &Path) -> Result<(), FetchError> {
        let disk_error = |e: io::Error| FetchError::Wrong(disk::at(part, &e).to_string());
        let have = fs::metadata(part).map_or(0, |metadata| metadata.len());
        let mut request = client(&package.url).map_err(away)?.get(package.url.clone());
        if have > 0 {
            request = request.header(RANGE, format!("bytes={have}-"));
        }
        let answer = request.send().await.map_err(away)?;
        let goes_on = match answer.status() {
            StatusCode::PARTIAL_CONTENT => true,
            status if status.is_success() => false,
            // There is nothing more to get: the digest judges what is here.
            StatusCode::RANGE_NOT_SATISFIABLE => return Ok(()),
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                return Err(FetchError::Away(format!("the server answers {status}")));
            }
            status => return Err(FetchError::Wrong(format!("the server answers {status}"))),
        };
        let mut options = tokio::fs::OpenOptions::new();
        options.create(true).write(true).append(goes_on).truncate(!goes_on);
        let mut file = options.open(part).await.map_err(disk_error)?;
        let mut body = answer.bytes_stream();
        while let Some(chunk) = body.next().await {
            file.write_all(&chunk.map_err(away)?).await.map_err(disk_error)?;
        }
        file.sync_all().await.map_err(disk_error)
    }
}

/// Made for each download: the roots of trust it holds are worth a MiB, and a machine downloads seldom. From an address
/// that is encrypted it follows only to others that are.
fn client(url: &reqwest::Url) -> reqwest::Result<reqwest::Client> {
    let client = reqwest::Client::builder().connect_timeout(CONNECT).read_timeout(SILENCE);
    client.https_only(url.scheme() == "https").build()
}

#[cfg(test)]
mod tests {
    use super::{FetchError, away};

    #[tokio::test]
    async fn a_server_that_refuses_a_connection_is_told_as_one_without_the_address() {
        // Discard: nobody serves it here.
        let url = "http://127.0.0.1:9/runner.tar.gz?token=hidden";
        let error = reqwest::get(url).await.expect_err("nobody is there");
        let FetchError::Away(told) = away(error) else { panic!("another try may succeed") };
        assert!(told.contains("Connection refused") && !told.contains("hidden"), "{told}");
    }
}
