//! The demonstration: plays three workflow runs against the stand-in GitHub, and checks the claims about their
//! machines.

mod checks;
mod ending;
mod facts;
mod journal;
mod plan;
mod records;
mod results;
mod stage;
mod timeline;

use std::path::Path;
use std::time::Duration;

use self::plan::RUNS;
use crate::compute::LocalCompute;
use crate::say;
use runyard_core::model::InstanceId;
use runyard_core::ports::Compute as _;

pub use self::checks::Check;
pub use self::ending::processes;
pub use self::facts::Facts;
pub use self::journal::Journal;
pub use self::stage::{DemoError, DemoStage};
pub use crate::demo::records::everything;

/// Most counterexamples that are shown for one claim.
const SHOWN: usize = 10;
/// How long to wait for a step before giving up. It judges nothing: a machine that is busy with other work is slow.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// Plays the three runs, and ends every machine.
///
/// # Errors
/// The fault that stopped it.
pub async fn act(stage: &DemoStage<'_>, machines: &LocalCompute, facts: &mut Facts) -> Result<(), DemoError> {
    for plan in &RUNS {
        stage.run(plan, facts).await?;
    }
    facts.cold = stage.waited(&RUNS[0], facts).await?;
    facts.warm = stage.waited(&RUNS[1], facts).await?;
    facts.left = stage.end(&["small", "large"], &ids(machines).await).await?;
    Ok(())
}

/// Lists the machines that exist.
pub async fn ids(machines: &LocalCompute) -> Vec<InstanceId> {
    machines.list().await.unwrap_or_default().into_iter().map(|machine| machine.id).collect()
}

/// Adds the lines that the jobs wrote into a file.
///
/// # Errors
/// The file cannot be read.
pub fn read_results(path: &Path, facts: &mut Facts) -> Result<(), DemoError> {
    let text =
        std::fs::read_to_string(path).map_err(|error| DemoError::Io(path.display().to_string(), error))?;
    facts.lines = results::parse(&text)?;
    Ok(())
}

/// Checks the facts and prints each check.
pub fn verdict(facts: &Facts) -> Vec<Check> {
    let checks = checks::all(facts);
    say("\nWhat the jobs, the records, GitHub and the process table say:");
    for check in &checks {
        say(format_args!("  {} {}", if check.against.is_empty() { "✓" } else { "✗" }, check.claim));
        for reason in check.against.iter().take(SHOWN) {
            say(format_args!("      {reason}"));
        }
        if let Some(more @ 1..) = check.against.len().checked_sub(SHOWN) {
            say(format_args!("      and {more} more"));
        }
    }
    checks
}
