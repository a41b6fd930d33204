//! Did it change since we last asked? Answers that GitHub marked are kept, so that the same question can be answered by
//! "304 not modified", which costs nothing of the hourly budget.

use std::collections::BTreeMap;

use reqwest::header::{ETAG, HeaderValue};
use reqwest::{StatusCode, Url};

use super::errors::Answer;

/// The most answers that are kept.
const MOST: usize = 512;
/// The largest answer that is kept: a page of a hundred runners is some 100 KiB.
const LARGEST: usize = 256 * 1024;

/// The answers kept, by address; the one that was not used for longest goes first.
#[derive(Default)]
pub(super) struct Etags {
    kept: BTreeMap<String, (u64, Answer)>,
    turn: u64,
}

impl Etags {
    /// The mark of the answer kept for this address.
    pub(super) fn mark(&self, url: &Url) -> Option<HeaderValue> {
        self.kept.get(url.as_str()).and_then(|(_, answer)| answer.headers.get(ETAG)).cloned()
    }

    /// Keeps a marked answer, and answers "not modified" with the one that was kept.
    pub(super) fn resolve(&mut self, url: &Url, answer: Answer) -> Answer {
        self.turn += 1;
        if answer.status == StatusCode::NOT_MODIFIED
            && let Some((turn, kept)) = self.kept.get_mut(url.as_str())
        {
            *turn = self.turn;
            return kept.clone();
        }
        if answer.status == StatusCode::OK
            && answer.headers.contains_key(ETAG)
            && answer.body.len() <= LARGEST
        {
            self.kept.insert(url.as_str().to_owned(), (self.turn, answer.clone()));
            if self.kept.len() > MOST {
                let oldest = self.kept.iter().min_by_key(|(_, (turn, _))| *turn).map(|(url, _)| url.clone());
                oldest.and_then(|url| self.kept.remove(&url));
            }
        }
        answer
    }
}
