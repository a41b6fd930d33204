//! How a verb reads records: once or repeatedly, in one repository or in all.

use std::time::Duration;

use clap::Args;
use runyard_core::model::Repository;

/// The interval of `--watch`.
pub(crate) const WATCH: Duration = Duration::from_secs(1);

/// How to look.
#[derive(Debug, Args)]
pub(crate) struct LookArgs {
    /// Repository of the request, if several have that run [default: $GITHUB_REPOSITORY]
    #[arg(long, value_name = "OWNER/REPO", value_parser = Repository::parse_at_github)]
    pub(crate) repository: Option<Repository>,
    /// Keep watching, and print changes
    #[arg(long, short)]
    pub(crate) watch: bool,
}
