//! How a verb looks at records: once or again and again, in one repository or in all.

use std::time::Duration;

use clap::Args;
use runyard_core::model::Repository;

/// How often `--watch` looks.
pub(crate) const WATCH: Duration = Duration::from_secs(1);

/// How to look.
#[derive(Debug, Args)]
pub(crate) struct LookArgs {
    /// Where the request is, if several repositories have that run [default: $GITHUB_REPOSITORY]
    #[arg(long, value_name = "OWNER/REPO")]
    pub(crate) repository: Option<Repository>,
    /// Look again and again, and show what changed
    #[arg(long, short)]
    pub(crate) watch: bool,
}
