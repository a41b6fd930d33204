//! The place of a runner scale set, as keys have it.

use std::fmt;

use super::field::FieldError;
use super::ids::Repository;

/// Where a scale set is: an organisation, or one repository.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetPlace(Repository);

impl SetPlace {
    /// Returns the place of an organisation's sets.
    ///
    /// # Errors
    /// It is no name of an organisation.
    pub fn organization(owner: &str) -> Result<Self, FieldError> {
        Ok(Self(Repository::of_organization(&owner.to_ascii_lowercase())?))
    }

    /// Returns the place of a repository's sets.
    #[must_use]
    pub fn repository(repository: &Repository) -> Self {
        Self(repository.folded())
    }

    /// Parses `owner` or `owner/name`.
    ///
    /// # Errors
    /// It is neither.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        match text.contains('/') {
            true => Ok(Self::repository(&Repository::parse_at_github(text)?)),
            false => Self::organization(text),
        }
    }

    /// Returns the repository in the key of its slots: that of an organisation is called `~`.
    #[must_use]
    pub const fn of_slots(&self) -> &Repository {
        &self.0
    }
}

impl fmt::Display for SetPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.is_organization() {
            true => f.write_str(self.0.owner()),
            false => fmt::Display::fmt(&self.0, f),
        }
    }
}

impl fmt::Debug for SetPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
