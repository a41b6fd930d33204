//! Registration and removal tokens: one is minted for each scope and cached until it nearly expires.

use std::sync::Arc;

use futures::FutureExt;
use jiff::SignedDuration;

use super::answers::Answers;
use crate::ports::github::{Scope, Token};
use crate::ports::{Clock, GitHub, GitHubError};

/// A cached token is used while at least this much of its lifetime remains.
const LEAST_LEFT: SignedDuration = SignedDuration::from_mins(10);

/// The purpose of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    Registration,
    Removal,
}

/// Cached tokens, and tokens being minted.
pub(crate) struct Tokens {
    github: Arc<dyn GitHub>,
    clock: Arc<dyn Clock>,
    minted: Answers<(Purpose, Scope), Token, GitHubError>,
}

impl Tokens {
    pub(crate) fn new(github: Arc<dyn GitHub>, clock: Arc<dyn Clock>) -> Self {
        Self { github, clock, minted: Answers::default() }
    }

    /// Returns a cached token; makes no call.
    pub(crate) fn kept(&self, purpose: Purpose, scope: &Scope) -> Option<Token> {
        self.minted.kept(&(purpose, scope.clone()), |token| self.lasts(token))
    }

    /// Returns a cached token, else a new one; concurrent callers share one call.
    ///
    /// # Errors
    /// GitHub's error.
    pub(crate) async fn get(&self, purpose: Purpose, scope: &Scope) -> Result<Token, GitHubError> {
        let mint = || {
            let (github, scope) = (Arc::clone(&self.github), scope.clone());
            async move {
                match purpose {
                    Purpose::Registration => github.registration_token(&scope).await,
                    Purpose::Removal => github.removal_token(&scope).await,
                }
            }
            .boxed()
        };
        self.minted.get(&(purpose, scope.clone()), |token| self.lasts(token), mint).await
    }

    fn lasts(&self, token: &Token) -> bool {
        token.expires_at.duration_since(self.clock.now()) > LEAST_LEFT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runyard_fakes::{FakeGitHub, Fault, TokioClock};

    fn scope() -> Scope {
        Scope::Repository { owner: "demo".into(), name: "app".into() }
    }

    fn tokens() -> (FakeGitHub, Tokens) {
        let clock = Arc::new(TokioClock::starting(jiff::Timestamp::UNIX_EPOCH));
        let github = FakeGitHub::new(clock.clone());
        (github.clone(), Tokens::new(Arc::new(github), clock))
    }

    #[tokio::test(start_paused = true)]
    async fn machines_that_ask_at_once_cost_one_mint() {
        let (github, tokens) = tokens();
        let scope = scope();
        let requests = (0..256).map(|_| tokens.get(Purpose::Registration, &scope));
        let got = futures::future::join_all(requests).await;
        assert!(got.windows(2).all(|pair| pair[0] == pair[1]) && got[0].is_ok());
        assert_eq!(github.calls()["registration"], 1);
        assert_eq!(tokens.get(Purpose::Registration, &scope).await, got[0]);
        assert_eq!(github.calls()["registration"], 1, "it is kept");
        tokens.get(Purpose::Removal, &scope).await.unwrap();
        assert_eq!(github.calls()["removal"], 1, "another purpose is another token");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_mint_is_not_kept_and_the_next_asks_anew() {
        let (github, tokens) = tokens();
        let scope = scope();
        github.next(Fault::Fail(GitHubError::Unreachable("away".into())));
        assert!(tokens.get(Purpose::Registration, &scope).await.is_err());
        tokens.get(Purpose::Registration, &scope).await.unwrap();
        assert_eq!(github.calls()["registration"], 2);
    }
}
