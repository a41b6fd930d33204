//! Lists the repositories that the credential sees: those of each installation of an App, or those of a token's owner.

use reqwest::Method;
use serde::Deserialize;

use super::auth::address;
use super::client::Question;
use super::errors::{Call, unusable};
use super::paging::PAGE_SIZE;
use super::verbs::RestGitHub;
use crate::model::Repository;
use crate::ports::github::{GitHubError, Scope};

/// The most pages of one list: 10,000 repositories of an account.
const MAX_PAGES: u64 = 100;

#[derive(Deserialize)]
struct Named {
    full_name: String,
    /// Runs cannot be started there.
    #[serde(default)]
    archived: bool,
}

#[derive(Deserialize)]
struct OfInstallation {
    repositories: Vec<Named>,
}

impl RestGitHub {
    /// Lists every repository that may have runs. An account whose list cannot be read is left out: it hides no other.
    pub(super) async fn visible_repositories(&self) -> Result<Vec<Repository>, GitHubError> {
        let mut found = Vec::new();
        match self.auth.accounts(&self.client).await? {
            Some(accounts) => {
                for owner in accounts {
                    let scope = Scope::Organization { owner };
                    let list = |page: OfInstallation| page.repositories;
                    match self.named(&scope, &["installation", "repositories"], list).await {
                        Ok(named) => found.extend(named),
                        Err(error) => {
                            tracing::warn!(?scope, %error, "the repositories of an account cannot be listed")
                        }
                    }
                }
            }
            None => {
                let scope = Scope::Organization { owner: String::new() };
                found = self.named(&scope, &["user", "repos"], |page: Vec<Named>| page).await?;
            }
        }
        Ok(found)
    }

    async fn named<T: serde::de::DeserializeOwned>(
        &self,
        scope: &Scope,
        segments: &[&str],
        list: impl Fn(T) -> Vec<Named>,
    ) -> Result<Vec<Repository>, GitHubError> {
        let mut found = Vec::new();
        for page in 1..=MAX_PAGES {
            let mut url = address(&self.client, segments)?;
            url.query_pairs_mut()
                .append_pair("per_page", &PAGE_SIZE.to_string())
                .append_pair("page", &page.to_string());
            let question = Question::new(Call::Read, Method::GET, url).conditional();
            let listed = list(self.ask_json(scope, question).await?);
            let last = (listed.len() as u64) < PAGE_SIZE;
            // A name that is no repository's is nobody's request.
            let open = listed.iter().filter(|one| !one.archived);
            found.extend(open.filter_map(|one| Repository::parse_at_github(&one.full_name).ok()));
            if last {
                return Ok(found);
            }
        }
        Err(unusable("the list of repositories", "it does not end"))
    }
}
