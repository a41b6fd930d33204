//! Reads a list that comes in pages and may change between them. An incomplete list is an error, because runners
//! missing from it would look removed; a caller that acts only on the listed runners can take each page as it is.

use std::collections::BTreeMap;

use reqwest::header::{HeaderMap, LINK};

use super::client::json;
use super::errors::{Answer, unusable};
use super::wire::RunnersPage;
use crate::ports::github::{GitHubError, Runner};

/// The maximum page size of GitHub.
pub(super) const PAGE_SIZE: u64 = 100;
/// A runner group contains at most 10,000 runners; a list longer than five times that is a loop.
const MAX_PAGES: u64 = 500;

/// A list in progress.
#[derive(Default)]
pub(super) struct Listing {
    runners: BTreeMap<u64, Runner>,
    total: Option<u64>,
    pages: u64,
    /// Whether the listed runners suffice, even if the list changed between its pages.
    as_seen: bool,
}

/// The next step after a page.
pub(super) enum Next {
    /// Request the page with this number.
    Page(u64),
    /// The list is complete.
    Complete(Vec<Runner>),
    /// The list changed meanwhile and must be read again from the start.
    Changed,
}

impl Listing {
    /// Creates a list that accepts changes between its pages: it is never [`Next::Changed`].
    pub(super) fn as_seen() -> Self {
        Self { as_seen: true, ..Self::default() }
    }

    /// Adds a page.
    pub(super) fn take(mut self, answer: &Answer) -> Result<(Self, Next), GitHubError> {
        let page: RunnersPage = json(answer)?;
        self.pages += 1;
        if *self.total.get_or_insert(page.total_count) != page.total_count && !self.as_seen {
            return Ok((self, Next::Changed));
        }
        let empty = page.runners.is_empty();
        self.runners.extend(page.runners.into_iter().map(|r| (r.id, r.into())));
        let short = (self.runners.len() as u64) < page.total_count;
        let more = has_next(&answer.headers).unwrap_or(short && !empty);
        if more && self.pages >= MAX_PAGES {
            return Err(unusable(
                &answer.what,
                format_args!("the list does not end after {MAX_PAGES} pages"),
            ));
        }
        let next = match (more, short) {
            (true, _) => Next::Page(self.pages + 1),
            (false, true) if !self.as_seen => Next::Changed,
            (false, _) => Next::Complete(std::mem::take(&mut self.runners).into_values().collect()),
        };
        Ok((self, next))
    }
}

/// Returns whether the `Link` header announces a next page; `None` without the header. Its address is not used: pages
/// are numbered, and an address from outside could point anywhere.
fn has_next(headers: &HeaderMap) -> Option<bool> {
    let link = headers.get(LINK)?.to_str().ok()?;
    Some(link.split(',').any(|part| part.split(';').skip(1).any(|p| p.trim() == r#"rel="next""#)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::StatusCode;

    fn page(total: u64, ids: std::ops::Range<u64>, link: Option<&str>) -> Answer {
        let runners: Vec<_> = ids
            .map(|id| serde_json::json!({"id": id, "name": "n", "status": "online", "busy": false, "labels": []}))
            .collect();
        let mut headers: HeaderMap = HeaderMap::new();
        headers.insert("content-type", "application/json".parse().unwrap());
        if let Some(link) = link {
            headers.insert(LINK, link.parse().unwrap());
        }
        let body = serde_json::json!({"total_count": total, "runners": runners}).to_string().into_bytes();
        Answer { status: StatusCode::OK, headers, body, what: "GET /runners".to_owned() }
    }

    fn outcome(pages: &[Answer]) -> String {
        let mut listing = Listing::default();
        for (index, answer) in pages.iter().enumerate() {
            match listing.take(answer).unwrap() {
                (next, Next::Page(number)) if index + 1 < pages.len() => {
                    assert_eq!(number, index as u64 + 2);
                    listing = next;
                }
                (_, Next::Page(number)) => return format!("page {number}"),
                (_, Next::Complete(all)) => return format!("complete {}", all.len()),
                (_, Next::Changed) => return "changed".to_owned(),
            }
        }
        "no pages".to_owned()
    }

    const NEXT: Option<&str> = Some(r#"<https://x/?page=2>; rel="next", <https://x/?page=2>; rel="last""#);
    const LAST: Option<&str> = Some(r#"<https://x/?page=1>; rel="prev""#);

    #[test]
    fn a_list_ends_where_its_links_or_its_count_say() {
        assert_eq!(outcome(&[page(0, 0..0, None)]), "complete 0");
        assert_eq!(outcome(&[page(2, 0..2, None)]), "complete 2");
        assert_eq!(outcome(&[page(3, 0..2, None)]), "page 2");
        assert_eq!(outcome(&[page(3, 0..2, None), page(3, 2..3, None)]), "complete 3");
        assert_eq!(outcome(&[page(3, 0..2, NEXT)]), "page 2");
        assert_eq!(outcome(&[page(3, 0..2, NEXT), page(3, 2..3, LAST)]), "complete 3");
    }

    #[test]
    fn a_list_that_changed_between_its_pages_is_not_taken_for_complete() {
        assert_eq!(outcome(&[page(3, 0..2, NEXT), page(2, 2..2, LAST)]), "changed");
        assert_eq!(outcome(&[page(4, 0..2, NEXT), page(4, 1..3, LAST)]), "changed");
        assert_eq!(outcome(&[page(4, 0..2, None), page(4, 2..2, None)]), "changed");
    }

    #[test]
    fn a_page_with_a_runner_that_cannot_be_read_is_an_error() {
        let mut answer = page(1, 0..1, None);
        answer.body = br#"{"total_count":1,"runners":[{"id":null}]}"#.to_vec();
        assert!(matches!(Listing::default().take(&answer), Err(GitHubError::Unreachable(_))));
    }

    #[test]
    fn a_list_without_an_end_is_an_error() {
        let mut listing = Listing::default();
        let failed = (0..=MAX_PAGES).any(|_| match listing_take(&mut listing) {
            Ok(()) => false,
            Err(error) => matches!(error, GitHubError::Unreachable(_)),
        });
        assert!(failed);
    }

    proptest::proptest! {
        #[test]
        fn no_page_is_a_complete_list_unless_it_holds_what_it_counts(
            total in 0_u64..4,
            ids in proptest::collection::vec(0_u64..4, 0..4),
            link in proptest::option::of("[ -~]{0,30}"),
        ) {
            let mut answer = page(total, 0..0, link.as_deref());
            let one = |id: &u64| serde_json::json!({"id": id, "name": "n", "status": "", "busy": true, "labels": []});
            let runners: Vec<_> = ids.iter().map(one).collect();
            answer.body = serde_json::json!({"total_count": total, "runners": runners}).to_string().into_bytes();
            if let Ok((_, Next::Complete(all))) = Listing::default().take(&answer) {
                proptest::prop_assert!(all.len() as u64 >= total);
            }
        }

        #[test]
        fn no_body_makes_it_panic(body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let answer = Answer { body, ..page(0, 0..0, None) };
            proptest::prop_assert!(Listing::default().take(&answer).is_err());
        }
    }

    fn listing_take(listing: &mut Listing) -> Result<(), GitHubError> {
        let (next, _) = std::mem::take(listing).take(&page(9, 0..1, NEXT))?;
        *listing = next;
        Ok(())
    }
}
