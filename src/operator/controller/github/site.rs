//! The two services at which runners are listed and removed.

use crate::ports::github::Scope;

/// Where runners are listed and removed.
#[derive(Clone, Debug)]
pub(super) enum Site {
    /// By GitHub's REST API.
    Rest(Scope),
    /// By the service of scale sets.
    Sets(Scope),
}

impl Site {
    /// Returns the scope of the runners.
    pub(super) const fn scope(&self) -> &Scope {
        match self {
            Self::Rest(scope) | Self::Sets(scope) => scope,
        }
    }
}
