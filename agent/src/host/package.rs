//! The runner package: the one that the claim names, or else the one that the machine was launched with. It is
//! downloaded once, and unpacked once ([`crate::host::package::unpacked`]), while its digest is checked. Nothing from a
//! package with another digest is ever used.

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

/// How often a package that has a wrong digest, or that the server refuses, is requested.
const ATTEMPTS: u32 = 3;
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Time limits for a connection, and for silence on it.
const CONNECT: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(30);

enum FetchError {
    /// The request is repeated for as long as it takes.
    Away(String),
    /// The request is repeated a few times.
    Wrong(String),
}

/// Returns the reason why there was no response, with its causes: the outermost error does not contain the actual
/// reason.
fn away(error: reqwest::Error) -> FetchError {
    let error = error.without_url();
    let causes = std::iter::successors(Some(&error as &dyn Error), |&cause| cause.source());
    FetchError::Away(causes.map(ToString::to_string).collect::<Vec<_>>().join(": "))
}

impl Host {
    /// Selects the claim's package, or the one that the machine was launched with.
    pub(super) fn name_package(&self, package: Option<&RunnerPackage>) {
        let named = package.map(|package| self.source_of(package));
        if let Some(Err(why)) = &named {
            tracing::warn!(why, "the runner package that the record names is not run");
        }
        *self.named.lock().expect("no holder panics") = named;
    }

    /// Returns the source of a package, if the agent may download it.
    ///
    /// # Errors
    /// The reason why such a package is never downloaded.
    fn source_of(&self, package: &RunnerPackage) -> Result<PackageSource, String> {
        let pinned = origin_of(self.settings.package.url.as_str());
        let hosts = self.settings.package_hosts.iter().map(|host| format!("https://{host}"));
        package.check(&hosts.chain(pinned).collect::<Vec<_>>()).map_err(|wrong| wrong.to_string())?;
        let url = reqwest::Url::parse(&package.url).map_err(|error| format!("runner.url: {error}"))?;
        Ok(PackageSource { url, sha256: package.sha256.clone(), version: package.version.clone() })
    }

    /// Returns the package that is in use now.
    ///
    /// # Errors
    /// The reason why the package that the record names is not used.
    pub(super) fn package(&self) -> Result<PackageSource, String> {
        let named = self.named.lock().expect("no holder panics").clone();
        named.unwrap_or_else(|| Ok(self.settings.package.clone()))
    }

    pub(super) fn archive(&self, package: &PackageSource) -> PathBuf {
        self.layout.package().join(format!("{}.tar.gz", package.sha256))
    }

    /// Downloads and unpacks a package unless it is already complete, and returns its directory. For the package that
    /// the machine was launched with, it waits for as long as the server is unreachable.
    ///
    /// # Errors
    /// The reason why the package is not available.
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

    /// Downloads a package unless it is complete. Other callers for the same package wait meanwhile, so that nothing is
    /// downloaded or unpacked twice.
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

    /// Frees space: only the package that the machine was launched with and the one that is downloaded now remain. No
    /// claim uses another one at this point.
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

    /// Downloads a package. Continues where an earlier download was interrupted, if the server supports it.
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
            // The file is already complete; its digest decides whether it is used.
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

/// Creates a client for one download: its root certificates take a MiB, and a machine downloads seldom. From an
/// encrypted address it only follows redirects to other encrypted addresses.
fn client(url: &reqwest::Url) -> reqwest::Result<reqwest::Client> {
    let client = reqwest::Client::builder().connect_timeout(CONNECT).read_timeout(SILENCE);
    client.https_only(url.scheme() == "https").build()
}

#[cfg(test)]
mod tests {
    use super::{FetchError, away};

    #[tokio::test]
    async fn a_server_that_refuses_a_connection_is_told_as_one_without_the_address() {
        // The discard port: no server listens there.
        let url = "http://127.0.0.1:9/runner.tar.gz?token=hidden";
        let error = reqwest::get(url).await.expect_err("nobody is there");
        let FetchError::Away(told) = away(error) else { panic!("another try may succeed") };
        assert!(told.contains("Connection refused") && !told.contains("hidden"), "{told}");
    }
}
