//! Checks before the first job whether runners can register: the App's identity, its permissions in the installation,
//! and the repositories that an organisation's runner groups admit. Only an unused token is created.

use reqwest::Method;

use super::auth::{NEEDED, address};
use super::budget::Priority;
use super::client::Question;
use super::errors::Call;
use super::verbs::RestGitHub;
use super::wire::{AppBody, GroupBody, GroupsPage, InstallationBody, RepositoryBody};
use crate::ports::github::{GitHub as _, GitHubError, Scope};
use crate::preflight::Check;

/// Maximum number of runner groups that are read: the first page.
const GROUPS: &str = "100";
/// The runner group of an organisation if a class names none.
const DEFAULT_GROUP: &str = "Default";

impl RestGitHub {
    /// Checks whether runners of a scope could register, as far as GitHub can tell in advance. `group` is the class's
    /// runner group, if it names one; `repository` a repository whose jobs it shall run, if one is known.
    pub async fn preflight(
        &self,
        scope: &Scope,
        group: Option<&str>,
        repository: Option<(&str, &str)>,
    ) -> Vec<Check> {
        let mut checks = match self.app_checks(scope).await {
            Ok(checks) => checks,
            // Without the App nothing else can be checked.
            Err(check) => return vec![check],
        };
        checks.push(match self.registration_token(scope).await {
            Ok(_) => {
                Check::good("registration", format!("runners of {} may register", self.runner_url(scope)))
            }
            Err(error) => self.failed("registration", &error),
        });
        match scope {
            Scope::Organization { owner } => checks.push(self.group_check(owner, group, repository).await),
            Scope::Repository { .. } => {}
        }
        checks
    }

    /// Checks the App's identity and its permissions; nothing for other credentials.
    async fn app_checks(&self, scope: &Scope) -> Result<Vec<Check>, Check> {
        let Some(assertion) = self.auth.assertion((self.client.clock)()) else {
            return Ok(vec![Check::good("credential", "a token, no App")]);
        };
        let failed = |error: &GitHubError| self.failed("App", error);
        let assertion = assertion.map_err(|error| failed(&error))?;
        let get = |segments: &[&str]| -> Result<Question, GitHubError> {
            Ok(Question::new(Call::Read, Method::GET, address(&self.client, segments)?))
        };
        let asked = get(&["app"]).map_err(|error| failed(&error))?;
        let app: AppBody =
            self.client.ask_json(&asked, Some(&assertion)).await.map_err(|error| failed(&error))?;
        let place: &[&str] = match scope {
            Scope::Repository { owner, name } => &["repos", owner, name, "installation"],
            Scope::Organization { owner } => &["orgs", owner, "installation"],
        };
        let asked = get(place).map_err(|error| failed(&error))?;
        let url = self.runner_url(scope);
        let installation: InstallationBody = match self.client.ask_json(&asked, Some(&assertion)).await {
            Ok(installation) => installation,
            Err(GitHubError::NotFound(_)) => {
                let fix =
                    format!("install it: {}/apps/{}/installations/new", self.client.origin.web(), app.slug);
                return Err(Check::wrong("App", format!("{} is not installed for {url}", app.slug), fix));
            }
            Err(error) => return Err(failed(&error)),
        };
        let mut checks = vec![Check::good("App", format!("{}, installed for {url}", app.slug))];
        if installation.suspended_at.is_some() {
            let fix = "unsuspend it among the installed Apps of the account's settings";
            checks.push(Check::wrong("App", format!("its installation for {url} is suspended"), fix));
        }
        checks.extend(permission_checks(scope, &installation));
        Ok(checks)
    }

    /// Checks the runner group. By default a group admits no public repository, whose jobs would wait forever.
    async fn group_check(&self, owner: &str, group: Option<&str>, repository: Option<(&str, &str)>) -> Check {
        let what = "runner group";
        let scope = Scope::Organization { owner: owner.to_owned() };
        let groups = match self.groups(&scope).await {
            Ok(groups) => groups,
            Err(error) => return self.failed(what, &error),
        };
        let wanted = group.unwrap_or(DEFAULT_GROUP);
        let found = groups.iter().find(|one| if group.is_some() { one.name == wanted } else { one.default });
        let Some(found) = found else {
            let fix = format!(
                "make the group {wanted} in {owner}'s settings, or name another in the class's runnerGroup"
            );
            return Check::wrong(what, format!("{owner} has no runner group {wanted}"), fix);
        };
        if found.allows_public_repositories {
            return Check::good(what, format!("{}, which lets public repositories in", found.name));
        }
        let fix = format!(
            "`gh api -X PATCH orgs/{owner}/actions/runner-groups/{} -F allows_public_repositories=true`, if their code may run here",
            found.id
        );
        let Some((owner, name)) = repository else {
            return Check::unchecked(
                what,
                format!("{} lets no public repository in: their jobs would wait for ever", found.name),
                fix,
            );
        };
        match self.is_private(owner, name).await {
            Ok(true) => Check::good(what, format!("{}, and {owner}/{name} is private", found.name)),
            Ok(false) => {
                let problem = format!(
                    "{owner}/{name} is public, and {} lets no public repository in: its jobs wait for ever",
                    found.name
                );
                Check::wrong(what, problem, fix)
            }
            Err(error) => self.failed(what, &error),
        }
    }

    async fn groups(&self, scope: &Scope) -> Result<Vec<GroupBody>, GitHubError> {
        let mut url = self.address(scope, &["actions", "runner-groups"])?;
        url.query_pairs_mut().append_pair("per_page", GROUPS);
        let question = Question::new(Call::Read, Method::GET, url).of(Priority::Register);
        let page: GroupsPage = self.ask_json(scope, question).await?;
        Ok(page.runner_groups)
    }

    async fn is_private(&self, owner: &str, name: &str) -> Result<bool, GitHubError> {
        let scope = Scope::Repository { owner: owner.to_owned(), name: name.to_owned() };
        let question = Question::new(Call::Read, Method::GET, self.address(&scope, &[])?);
        let body: RepositoryBody = self.ask_json(&scope, question.of(Priority::Register)).await?;
        Ok(body.private)
    }

    fn failed(&self, what: &str, error: &GitHubError) -> Check {
        let fix = match error {
            GitHubError::Denied(_) => {
                "check github.app_id and github.app_key_file (or github.token_file), and the App's permissions"
            }
            GitHubError::NotFound(_) => {
                "check the owner and the repository, and that the App is installed there"
            }
            GitHubError::Unreachable(_) => {
                "check github.api_url, and the way from here to it (a proxy: HTTPS_PROXY)"
            }
            GitHubError::Throttled { .. } | GitHubError::Deferred { .. } => "wait, and run this again",
            GitHubError::NameTaken(_) | GitHubError::Busy(_) | GitHubError::Invalid(_) => {
                "mend what GitHub names"
            }
        };
        match error {
            GitHubError::Throttled { .. } | GitHubError::Deferred { .. } => {
                Check::unchecked(what, error.to_string(), fix)
            }
            GitHubError::Denied(_)
            | GitHubError::NotFound(_)
            | GitHubError::Unreachable(_)
            | GitHubError::NameTaken(_)
            | GitHubError::Busy(_)
            | GitHubError::Invalid(_) => Check::wrong(what, error.to_string(), fix),
        }
    }
}

/// Returns the permissions for registering runners and reading runs that the installation lacks.
fn permission_checks(scope: &Scope, installation: &InstallationBody) -> Vec<Check> {
    let spared = match scope {
        Scope::Repository { .. } => "organization_self_hosted_runners",
        Scope::Organization { .. } => "administration",
    };
    let enough = |needed: &str| match installation.permissions.get(needed).map(String::as_str) {
        Some("write" | "admin") => 2,
        Some("read") => 1,
        Some(_) | None => 0,
    };
    let lacking = NEEDED
        .into_iter()
        .filter(|(name, _)| *name != spared)
        .filter(|(name, level)| enough(name) < if *level == "write" { 2 } else { 1 });
    let fix =
        "grant it in the App's settings (Permissions & events), then accept it where the App is installed";
    let lacking: Vec<Check> = lacking
        .map(|(name, level)| Check::wrong("App's permissions", format!("it lacks {name}: {level}"), fix))
        .collect();
    if lacking.is_empty() { vec![Check::good("App's permissions", "all that is needed")] } else { lacking }
}

#[cfg(test)]
mod tests;
