//! The runner package. It is fetched once, checked against its digest each time before it is unpacked, and unpacked
//! afresh for every claim, so that no change that a job makes to one copy reaches the next.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::read::GzDecoder;
use futures::StreamExt;
use reqwest::StatusCode;
use reqwest::header::RANGE;
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;

use super::Host;
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

impl Host {
    pub(super) fn archive(&self) -> PathBuf {
        self.layout.package().join(format!("{}.tar.gz", self.settings.package.sha256))
    }

    /// Sees to it that the package is here and right.
    ///
    /// # Errors
    /// Why it cannot be had.
    pub(super) async fn fetch(&self) -> Result<(), String> {
        let (mut backoff, mut wrong) = (Backoff::new(FIRST_WAIT, LONGEST_WAIT), 0);
        loop {
            match self.fetch_once().await {
                Ok(()) => return Ok(()),
                Err(FetchError::Away(why)) => tracing::warn!(why, "the runner package cannot be fetched"),
                Err(FetchError::Wrong(why)) => {
                    wrong += 1;
                    tracing::warn!(why, "the runner package has another digest");
                    if wrong == ATTEMPTS {
                        return Err(why);
                    }
                }
            }
            tokio::time::sleep(backoff.wait()).await;
        }
    }

    async fn fetch_once(&self) -> Result<(), FetchError> {
        let (archive, sha256) = (self.archive(), self.settings.package.sha256.clone());
        let disk_error = |e: io::Error| FetchError::Wrong(e.to_string());
        if self.verified(&archive).await.is_ok() {
            return Ok(());
        }
        let part = archive.with_extension("part");
        self.download(&part).await?;
        let found = digest_of(&part).await.map_err(disk_error)?;
        if found != sha256 {
            let _ = fs::remove_file(&part);
            let wanted = format!("its SHA-256 is {found}, not {sha256}; mend runner.sha256 or runner.url");
            return Err(FetchError::Wrong(wanted));
        }
        fs::rename(&part, &archive).map_err(disk_error)?;
        tracing::info!(version = self.settings.package.version, "the runner package was fetched");
        Ok(())
    }

    /// Goes on where an earlier download was cut off, if the server can.
    async fn download(&self, part: &Path) -> Result<(), FetchError> {
        let disk_error = |e: io::Error| FetchError::Wrong(disk::at(part, &e).to_string());
        let away = |e: reqwest::Error| FetchError::Away(e.without_url().to_string());
        let have = fs::metadata(part).map_or(0, |metadata| metadata.len());
        let mut request = client().map_err(away)?.get(self.settings.package.url.clone());
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

    async fn verified(&self, archive: &Path) -> io::Result<()> {
        let found = digest_of(archive).await?;
        if found == self.settings.package.sha256 {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "the runner package on disk was changed"))
    }

    /// Unpacks the package into a directory that must not exist, where no job can reach yet. A package that is not
    /// here, or not right any more, is fetched before.
    ///
    /// # Errors
    /// The package cannot be had, or the disk does not take it.
    pub(super) async fn unpacked(&self, into: PathBuf) -> io::Result<()> {
        for _ in 0..ATTEMPTS {
            let (archive, sha256, into) =
                (self.archive(), self.settings.package.sha256.clone(), into.clone());
            if self.in_turn(move || unpack(&archive, &sha256, &into)).await? {
                return Ok(());
            }
            self.fetch().await.map_err(io::Error::other)?;
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

/// Made for each download: the roots of trust it holds are worth a MiB, and a machine downloads once.
fn client() -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder().connect_timeout(CONNECT).read_timeout(SILENCE).build()
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
