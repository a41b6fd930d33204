//! Registration and removal tokens: each is minted once a scope and kept until it is nearly over. However many
//! machines wait for the same token, GitHub is asked once, and all of them get that one answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use jiff::SignedDuration;

use crate::ports::github::{Scope, Token};
use crate::ports::{Clock, GitHub, GitHubError};

/// A kept token is used while at least this much of its life is left.
const LEAST_LEFT: SignedDuration = SignedDuration::from_mins(10);

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    Registration,
    Removal,
}

type Name = (Purpose, Scope);
type Mint = Shared<BoxFuture<'static, Result<Token, GitHubError>>>;

/// Tokens at hand and tokens being minted.
pub(super) struct Tokens {
    github: Arc<dyn GitHub>,
    clock: Arc<dyn Clock>,
    kept: Mutex<BTreeMap<Name, Token>>,
    minting: Mutex<BTreeMap<Name, Mint>>,
}

impl Tokens {
    pub(super) fn new(github: Arc<dyn GitHub>, clock: Arc<dyn Clock>) -> Self {
        Self { github, clock, kept: Mutex::default(), minting: Mutex::default() }
    }

    /// A token that is at hand, without asking anybody.
    pub(super) fn kept(&self, purpose: Purpose, scope: &Scope) -> Option<Token> {
        let kept = self.kept.lock().expect("nobody panics while holding the tokens");
        let token = kept.get(&(purpose, scope.clone()))?;
        (token.expires_at.duration_since(self.clock.now()) > LEAST_LEFT).then(|| token.clone())
    }

    /// A token that is at hand, else a new one.
    ///
    /// # Guarantees
    /// At most one call to GitHub is under way for a purpose and scope; whoever asks meanwhile shares its answer, an
    /// error too.
    ///
    /// # Errors
    /// What GitHub answered.
    pub(super) async fn get(&self, purpose: Purpose, scope: &Scope) -> Result<Token, GitHubError> {
        let name = (purpose, scope.clone());
        let mint = {
            let mut minting = self.minting.lock().expect("nobody panics while holding the mints");
            // Under the lock: a mint that just ended has left its token before it left the table.
            if let Some(token) = self.kept(purpose, scope) {
                return Ok(token);
            }
            minting.entry(name.clone()).or_insert_with(|| self.mint(purpose, scope.clone())).clone()
        };
        let minted = mint.clone().await;
        if let Ok(token) = &minted {
            let mut kept = self.kept.lock().expect("nobody panics while holding the tokens");
            kept.insert(name.clone(), token.clone());
        }
        let mut minting = self.minting.lock().expect("nobody panics while holding the mints");
        if minting.get(&name).is_some_and(|current| current.ptr_eq(&mint)) {
            minting.remove(&name);
        }
        minted
    }

    fn mint(&self, purpose: Purpose, scope: Scope) -> Mint {
        let github = Arc::clone(&self.github);
        async move {
            match purpose {
                Purpose::Registration => github.registration_token(&scope).await,
                Purpose::Removal => github.removal_token(&scope).await,
            }
        }
        .boxed()
        .shared()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fakes::{FakeGitHub, Fault, TokioClock};

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
        let asked = (0..256).map(|_| tokens.get(Purpose::Registration, &scope));
        let got = futures::future::join_all(asked).await;
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
