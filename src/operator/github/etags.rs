//! A cache of responses with ETags, so that a repeated request can be answered with "304 not modified", which costs
//! nothing of the hourly budget.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use reqwest::header::{ETAG, HeaderValue};
use reqwest::{StatusCode, Url};

use super::errors::Answer;

/// Maximum size of the cache, in bytes: the responses of some two thousand runs, and the empty lists of many more
/// repositories.
const MOST: usize = 24 * 1024 * 1024;
/// The largest cached response: a page of a hundred runners is some 100 KiB.
const LARGEST: usize = 256 * 1024;
/// The memory of a response beside its body.
const BESIDE: usize = 2 * 1024;
/// How long an unused response is cached. Repeated requests go round: if the cache is too small for all of them,
/// evicting the oldest would evict each just before it is needed, and the cache would be useless.
const UNUSED: SignedDuration = SignedDuration::from_hours(1);

/// The cached responses, by address. If the cache is full, its responses remain while they are used.
#[derive(Default)]
pub(super) struct Etags {
    kept: BTreeMap<String, (Timestamp, Answer)>,
    bytes: usize,
}

impl Etags {
    /// Returns the ETag of the cached response for this address.
    pub(super) fn mark(&self, url: &Url) -> Option<HeaderValue> {
        self.kept.get(url.as_str()).and_then(|(_, answer)| answer.headers.get(ETAG)).cloned()
    }

    /// Caches a response with an ETag, and replaces a "not modified" response by the cached one.
    pub(super) fn resolve(&mut self, url: &Url, answer: Answer, now: Timestamp) -> Answer {
        if answer.status == StatusCode::NOT_MODIFIED
            && let Some((used, kept)) = self.kept.get_mut(url.as_str())
        {
            *used = now;
            return kept.clone();
        }
        if answer.status == StatusCode::OK
            && answer.headers.contains_key(ETAG)
            && answer.body.len() <= LARGEST
        {
            self.keep(url.as_str(), &answer, now);
        }
        answer
    }

    fn keep(&mut self, url: &str, answer: &Answer, now: Timestamp) {
        if let Some((_, former)) = self.kept.remove(url) {
            self.bytes -= size(&former);
        }
        if self.bytes + size(answer) > MOST {
            self.kept.retain(|_, (used, _)| now.duration_since(*used) < UNUSED);
            self.bytes = self.kept.values().map(|(_, answer)| size(answer)).sum();
        }
        if self.bytes + size(answer) <= MOST {
            self.bytes += size(answer);
            self.kept.insert(url.to_owned(), (now, answer.clone()));
        }
    }
}

fn size(answer: &Answer) -> usize {
    answer.body.len() + BESIDE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(bytes: usize) -> Answer {
        let headers = [(ETAG, HeaderValue::from_static("\"one\""))].into_iter().collect();
        Answer { status: StatusCode::OK, headers, body: vec![b' '; bytes], what: "GET /x".to_owned() }
    }

    fn url(number: usize) -> Url {
        Url::parse(&format!("http://127.0.0.1/{number}")).unwrap()
    }

    #[test]
    fn of_questions_that_have_no_room_together_most_keep_their_answers() {
        let (mut etags, fits) = (Etags::default(), MOST / (LARGEST + BESIDE));
        let now = Timestamp::UNIX_EPOCH;
        for round in 0..3 {
            let known = (0..2 * fits).filter(|number| etags.mark(&url(*number)).is_some()).count();
            assert_eq!(known, if round == 0 { 0 } else { fits }, "round {round}");
            for number in 0..2 * fits {
                etags.resolve(&url(number), marked(LARGEST), now);
            }
        }
        assert!(etags.bytes <= MOST);
        let later = now + UNUSED;
        etags.resolve(&url(9_999), marked(LARGEST), later);
        assert!(
            etags.mark(&url(9_999)).is_some() && etags.kept.len() == 1,
            "what nobody asks for makes room"
        );
    }

    #[test]
    fn an_answer_takes_the_place_of_the_former_one() {
        let mut etags = Etags::default();
        for bytes in [10, 3000, 20] {
            etags.resolve(&url(1), marked(bytes), Timestamp::UNIX_EPOCH);
            assert_eq!((etags.kept.len(), etags.bytes), (1, bytes + BESIDE));
        }
        etags.resolve(&url(1), marked(LARGEST + 1), Timestamp::UNIX_EPOCH);
        assert_eq!(
            etags.kept.len(),
            1,
            "one that is too large is not kept, and the mark of the former one still holds"
        );
    }
}
