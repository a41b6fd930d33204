//! The runner package: the one that the claim names, else the one that the machine was launched with. It is fetched
//! once, checked against its digest each time before it is unpacked, and unpacked afresh for every claim, so that no
//! change that a job makes to one copy reaches the next. What has another digest is never unpacked.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::read::GzDecoder;
use futures::StreamExt;
use reqwest::StatusCode;
use reqwest::header::RANGE;
use runyard_core::model::{RunnerPackage, origin_of};
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;

use super::{Host, PackageSource};
use crate::backoff::Backoff;
use crate::disk;

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

    /// Sees to it that a package is here and right. The one that the machine was launched with is waited for as long as
    /// its server is away.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub(super) async fn fetch(&self, package: &PackageSource) -> Result<(), String> {
        let (mut backoff, mut attempts) = (Backoff::new(FIRST_WAIT, LONGEST_WAIT), 0);
        let patient = package.sha256 == self.settings.package.sha256;
        loop {
            let why = match self.fetch_once(package).await {
                Ok(()) => return Ok(()),
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

    async fn fetch_once(&self, package: &PackageSource) -> Result<(), FetchError> {
        let (archive, sha256) = (self.archive(package), package.sha256.clone());
        let disk_error = |e: io::Error| FetchError::Wrong(e.to_string());
        if verified(&archive, &sha256).await.is_ok() {
            return Ok(());
        }
        let part = archive.with_extension("part");
        self.forget_others(&archive);
        self.download(package, &part).await?;
        let found = digest_of(&part).await.map_err(disk_error)?;
        if found != sha256 {
            let _ = fs::remove_file(&part);
            let wanted = format!("its SHA-256 is {found}, not {sha256}; mend runner.sha256 or runner.url");
            return Err(FetchError::Wrong(wanted));
        }
        fs::rename(&part, &archive).map_err(disk_error)?;
        tracing::info!(version = package.version, "the runner package was fetched");
        Ok(())
    }

    /// Makes room: the package that the machine was launched with stays, and the one that is fetched now.
    fn forget_others(&self, archive: &Path) {
        let (dir, pinned) = (self.layout.package(), self.archive(&self.settings.package));
        let stays = [archive.file_stem(), pinned.file_stem()];
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if !stays.contains(&entry.path().file_stem()) {
                let _ = fs::remove_file(entry.path());
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

    /// Unpacks the package into a directory that must not exist, where no job can reach yet. A package that is not
    /// here, or not right any more, is fetched before.
    ///
    /// # Errors
    /// The package cannot be had, or the disk does not take it.
    pub(super) async fn unpacked(&self, into: PathBuf) -> io::Result<()> {
        let package = self.package().map_err(io::Error::other)?;
        for _ in 0..ATTEMPTS {
            let (archive, sha256, into) = (self.archive(&package), package.sha256.clone(), into.clone());
            if self.in_turn(move || unpack(&archive, &sha256, &into)).await? {
                return Ok(());
            }
            self.fetch(&package).await.map_err(io::Error::other)?;
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the runner package on disk is changed again and again",
        ))
    }
}

/// Unpacks an archive into a directory that must not exist; whether the archive was there, and the right one. One that
/// is not is removed.
///
/// # Errors
/// The disk does not take it.
pub(super) fn unpack(archive: &Path, sha256: &str, into: &Path) -> io::Result<bool> {
    let mut file = match File::open(archive) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file.map_err(|e| disk::at(archive, &e))?,
    };
    if digest(&mut file)? != sha256 {
        fs::remove_file(archive).map_err(|e| disk::at(archive, &e))?;
        return Ok(false);
    }
    file.rewind()?;
    fs::create_dir(into).map_err(|e| disk::at(into, &e))?;
    tar::Archive::new(GzDecoder::new(file)).unpack(into)?;
    Ok(true)
}

/// Made for each download: the roots of trust it holds are worth a MiB, and a machine downloads seldom. From an address
/// that is encrypted it follows only to others that are.
fn client(url: &reqwest::Url) -> reqwest::Result<reqwest::Client> {
    let client = reqwest::Client::builder().connect_timeout(CONNECT).read_timeout(SILENCE);
    client.https_only(url.scheme() == "https").build()
}

async fn verified(archive: &Path, sha256: &str) -> io::Result<()> {
    if digest_of(archive).await? == sha256 {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "the runner package on disk was changed"))
}

async fn digest_of(path: &Path) -> io::Result<String> {
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || digest(&mut File::open(path)?)).await.map_err(io::Error::other)?
}

fn digest(file: &mut impl Read) -> io::Result<String> {
    let mut hasher = Sha256::new();
    io::copy(file, &mut hasher)?;
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
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
