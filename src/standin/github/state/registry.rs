//! Registered runners: tokens, registration, single-use runners, removal.

use std::time::Duration;

use jiff::Timestamp;

use super::types::{Label, MintedToken, Refusal, RegisteredRunner, RunnerId, TokenKind, all_among};
use super::{State, TOKEN_LIFETIME};

/// The labels that GitHub adds to a runner registered without `--no-default-labels`.
const DEFAULT_LABELS: [(u64, &str); 3] = [(1, "self-hosted"), (2, "Linux"), (3, "X64")];
/// Most labels of one call (GitHub).
const MOST_LABELS: usize = 100;
/// GitHub's limit on the length of a runner's name.
const NAME_CHARS: usize = 64;

/// The registration data of a runner.
#[derive(Clone, Debug, Default)]
pub struct Registration {
    /// `owner/name` or `owner`.
    pub scope: String,
    /// Unique in the scope, unless `replace`.
    pub name: String,
    /// The labels that it chose itself.
    pub labels: Vec<String>,
    /// Whether to add no default labels.
    pub no_default_labels: bool,
    /// Whether to take over the registration of a runner of the same name.
    pub replace: bool,
    /// Whether it is removed after one job.
    pub ephemeral: bool,
    /// 1 is the default group.
    pub group_id: u64,
    /// The version of its package, where it reports it.
    pub version: String,
}

impl State {
    /// Mints a token; `value` must be unguessable.
    pub fn mint_token(&mut self, kind: TokenKind, scope: &str, value: String, now: Timestamp) -> MintedToken {
        self.tick(now);
        let token = MintedToken { kind, scope: scope.to_owned(), value, expires_at: now + TOKEN_LIFETIME };
        self.tokens.push(token.clone());
        self.changed();
        token
    }

    /// Checks that a token of this kind is valid in a scope.
    ///
    /// # Errors
    /// It is not.
    pub(in crate::github) fn check_token(
        &self,
        kind: TokenKind,
        scope: &str,
        value: &str,
    ) -> Result<(), Refusal> {
        let known =
            |t: &MintedToken| t.kind == kind && t.value == value && t.scope.eq_ignore_ascii_case(scope);
        if self.tokens.iter().any(known) { Ok(()) } else { Err(Refusal::Unauthorized) }
    }

    /// Registers a runner with a registration token; `credential` must be unguessable.
    ///
    /// # Errors
    /// A token that is not valid here, a name that is taken, a name or label that GitHub would not accept.
    pub fn register(
        &mut self,
        token: &str,
        registration: Registration,
        credential: String,
        now: Timestamp,
    ) -> Result<RegisteredRunner, Refusal> {
        self.tick(now);
        self.check_token(TokenKind::Registration, &registration.scope, token)?;
        if self.behaviour.cannot_register(&registration.version, now) {
            return Err(Refusal::Deprecated(registration.version));
        }
        self.admit(registration, credential, now)
    }

    /// Creates a single-use runner on behalf of an administrator of the scope.
    ///
    /// # Errors
    /// As [`Self::register`].
    pub fn create_single_use(
        &mut self,
        registration: Registration,
        credential: String,
        now: Timestamp,
    ) -> Result<RegisteredRunner, Refusal> {
        self.tick(now);
        let registration =
            Registration { no_default_labels: true, replace: false, ephemeral: true, ..registration };
        self.admit(registration, credential, now)
    }

    fn admit(
        &mut self,
        registration: Registration,
        credential: String,
        now: Timestamp,
    ) -> Result<RegisteredRunner, Refusal> {
        validate(&registration)?;
        let same =
            self.in_scope(&registration.scope).find(|r| r.name.eq_ignore_ascii_case(&registration.name));
        let replaced = match same.map(|r| r.id) {
            Some(_) if !registration.replace => return Err(Refusal::NameTaken(registration.name)),
            Some(id) => {
                self.end_session(id, now);
                Some(id)
            }
            None => None,
        };
        let id = replaced.unwrap_or_else(|| self.fresh_id());
        let labels = self.labels_of(&registration);
        let runner = RegisteredRunner {
            id,
            scope: registration.scope,
            name: registration.name,
            labels,
            group_id: registration.group_id,
            ephemeral: registration.ephemeral,
            scale_set: None,
            version: None,
            credential,
            session: None,
            job: None,
            assigned_at: None,
            former_labels: None,
            busy_until: None,
        };
        self.runners.insert(id, runner.clone());
        self.changed();
        Ok(runner)
    }

    fn labels_of(&mut self, registration: &Registration) -> Vec<Label> {
        let mut labels = Vec::new();
        if !registration.no_default_labels {
            labels.extend(DEFAULT_LABELS.map(|(id, name)| Label {
                id,
                name: name.to_owned(),
                custom: false,
            }));
        }
        self.with_custom(labels, &registration.labels)
    }

    /// Returns these labels and custom ones of these names, each name once.
    fn with_custom(&mut self, mut labels: Vec<Label>, names: &[String]) -> Vec<Label> {
        let runners = &self.runners;
        self.labels.retain(|name, _| {
            runners.values().any(|runner| all_among(&runner.labels, std::slice::from_ref(name)))
        });
        for name in names {
            if labels.iter().any(|own| own.name.eq_ignore_ascii_case(name)) {
                continue;
            }
            let known = self.labels.get(&name.to_ascii_lowercase()).copied();
            let id = known.unwrap_or_else(|| self.fresh_id());
            self.labels.insert(name.to_ascii_lowercase(), id);
            labels.push(Label { id, name: name.clone(), custom: true });
        }
        labels
    }

    /// Lists the runners of exactly this scope, by id.
    pub fn in_scope(&self, scope: &str) -> impl Iterator<Item = &RegisteredRunner> {
        self.runners.values().filter(move |r| r.scope.eq_ignore_ascii_case(scope))
    }

    /// Lists every runner, by id.
    pub fn all_runners(&self) -> impl Iterator<Item = &RegisteredRunner> {
        self.runners.values()
    }

    /// Returns GitHub's `busy`: late, early and too long, as [`Behaviour`](super::Behaviour) defines it.
    #[must_use]
    pub fn told_busy(&self, runner: &RegisteredRunner) -> bool {
        let lingers = runner.busy_until.is_some_and(|until| self.now < until);
        let since = |at: Timestamp| Duration::try_from(self.now.duration_since(at)).unwrap_or_default();
        let tells = runner.assigned_at.is_none_or(|at| self.behaviour.tells_busy(since(at)));
        lingers || runner.busy() && tells
    }

    /// Removes a runner on behalf of an administrator of the scope. A job that it has, and that GitHub does not know
    /// of, is settled as after its silence.
    ///
    /// # Errors
    /// The runner does not exist, or is reported as busy.
    pub fn remove_runner(&mut self, scope: &str, id: RunnerId, now: Timestamp) -> Result<(), Refusal> {
        self.tick(now);
        let runner = self.in_scope(scope).find(|r| r.id == id).ok_or(Refusal::NotFound)?;
        if self.told_busy(runner) {
            return Err(Refusal::Busy(runner.name.clone()));
        }
        self.end_session(id, now);
        self.runners.remove(&id);
        self.changed();
        Ok(())
    }

    /// Sets the custom labels of a runner, listening or not, in place of its former ones; read-only ones stay. A
    /// listening runner gets jobs by them from then on, or a while later. A current job continues.
    ///
    /// # Errors
    /// The runner does not exist, or GitHub would not accept the labels.
    pub fn set_labels(
        &mut self,
        scope: &str,
        id: RunnerId,
        names: &[String],
        now: Timestamp,
    ) -> Result<RegisteredRunner, Refusal> {
        self.tick(now);
        let runner = self.in_scope(scope).find(|r| r.id == id).ok_or(Refusal::NotFound)?;
        if names.len() > MOST_LABELS {
            return Err(Refusal::Invalid(format!("labels must hold at most {MOST_LABELS} names")));
        }
        check_labels(names)?;
        let (before, read_only): (Vec<Label>, Vec<Label>) =
            (runner.labels.clone(), runner.labels.iter().filter(|label| !label.custom).cloned().collect());
        let labels = self.with_custom(read_only, names);
        let until = now + self.behaviour.labels_late;
        let runner = self.runners.get_mut(&id).ok_or(Refusal::NotFound)?;
        if runner.labels != labels {
            runner.former_labels = Some((before, until));
            runner.labels = labels;
        }
        let runner = runner.clone();
        self.changed();
        Ok(runner)
    }

    /// Removes a runner on its own behalf, with a removal token of its scope.
    ///
    /// # Errors
    /// As [`Self::remove_runner`], and a token that is not valid here.
    pub fn deregister(
        &mut self,
        token: &str,
        scope: &str,
        id: RunnerId,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        self.tick(now);
        self.check_token(TokenKind::Removal, scope, token)?;
        self.remove_runner(scope, id, now)
    }
}

fn check_labels(names: &[String]) -> Result<(), Refusal> {
    if names.iter().any(|name| name.trim().is_empty() || name.contains(',')) {
        let why = format!("labels {names:?}: a label must not be empty or hold a comma");
        return Err(Refusal::Invalid(why));
    }
    Ok(())
}

fn validate(registration: &Registration) -> Result<(), Refusal> {
    let invalid = |text: String| Err(Refusal::Invalid(text));
    if registration.name.trim().is_empty() || registration.name.chars().count() > NAME_CHARS {
        return invalid(format!("name {:?} must have 1 to {NAME_CHARS} characters", registration.name));
    }
    check_labels(&registration.labels)?;
    if registration.no_default_labels && registration.labels.is_empty() {
        return invalid("labels: at least one is needed without the default ones".to_owned());
    }
    Ok(())
}
