//! The launch templates of a yard's classes, if its machines run on EC2.

#[cfg(feature = "ec2")]
mod ec2;

use runyard_core::model::PoolSpec;
use runyard_operator::config::{ComputeKind, Config};

use super::setup_step::SetupStep;
use crate::common::environment::Environment;
#[cfg(not(feature = "ec2"))]
use crate::common::failure::CliFailure;
use crate::common::failure::CliResult;

/// Creates or corrects the launch templates of these classes if machines run on EC2.
#[cfg(feature = "ec2")]
pub(crate) async fn all(
    environment: &Environment,
    config: Option<&Config>,
    pools: &[PoolSpec],
    dry: bool,
) -> CliResult<Vec<SetupStep>> {
    match config {
        Some(config) if config.compute == ComputeKind::Ec2 => ec2::all(environment, config, pools, dry).await,
        Some(_) | None => Ok(Vec::new()),
    }
}

/// Creates or corrects the launch templates of these classes if machines run on EC2.
#[cfg(not(feature = "ec2"))]
pub(crate) async fn all(
    _environment: &Environment,
    config: Option<&Config>,
    _pools: &[PoolSpec],
    _dry: bool,
) -> CliResult<Vec<SetupStep>> {
    match config {
        Some(config) if config.compute == ComputeKind::Ec2 => Err(CliFailure::error(
            "compute.kind",
            config.compute.as_str(),
            "this build does not know EC2",
            "use a build with EC2, or leave --config out",
        )),
        Some(_) | None => Ok(Vec::new()),
    }
}

/// Does the same as [`all`] and formats the steps as lines for people.
pub(crate) async fn keep(
    environment: &Environment,
    config: Option<&Config>,
    pools: &[PoolSpec],
) -> CliResult<Vec<String>> {
    let steps = all(environment, config, pools, false).await?;
    Ok(steps.iter().flat_map(|step| step.lines(false)).collect())
}
