//! The launch templates of a yard's classes, if its machines run on EC2.

use crate::common::environment::Environment;
use crate::common::failure::{CliFailure, CliResult, Exit};
use crate::session::setup_step::{SetupStep, State};
use crate::session::{connect, network};
use runyard_core::model::{FieldError, PoolSpec};
use runyard_core::ports::ComputeError;
use runyard_operator::aws::ec2::{Ec2Compute, Ec2Options, TemplateChange};
use runyard_operator::config::Config;

/// Creates or corrects the template of each class, or returns what would be done. All classes are examined before the
/// first is changed, so that the refusals of all of them are reported together.
pub(crate) async fn all(
    environment: &Environment,
    config: &Config,
    pools: &[PoolSpec],
    dry_run: bool,
) -> CliResult<Vec<SetupStep>> {
    let options = Ec2Options::of(config).map_err(CliFailure::usage)?;
    if options.runner.is_empty() {
        advise(pools);
    }
    let sdk = connect::sdk(environment).await;
    let some = !options.runner.is_empty();
    let compute = Ec2Compute::connect(options, &sdk);
    for error in pools.iter().filter(|_| some).filter_map(|spec| compute.check_packages(spec).err()) {
        tracing::warn!("{error}");
    }
    let (mut steps, mut problems) = (Vec::new(), Vec::new());
    for spec in pools {
        match compute.examine_template(spec).await {
            Ok((change, differences)) => {
                tell_network(&compute, spec).await;
                steps.push((spec, step(config, spec, change, differences)));
            }
            Err(error) => problems.push(refused(spec, &error)),
        }
    }
    if !problems.is_empty() {
        return Err(CliFailure { exit: Exit::Error, problems });
    }
    for (spec, step) in &steps {
        match step.state {
            State::Made(_) | State::Mended(_) if !dry_run => {
                let made = compute.ensure_template(spec).await;
                made.map_err(|error| CliFailure {
                    exit: Exit::Error,
                    problems: vec![refused(spec, &error)],
                })?;
            }
            State::Made(_) | State::Mended(_) | State::Good | State::Given | State::Nowhere(_) => {}
        }
    }
    Ok(steps.into_iter().map(|(_, step)| step).collect())
}

/// Logs problems of a class's network. They are not errors, because they may be corrected before the first launch.
async fn tell_network(compute: &Ec2Compute, spec: &PoolSpec) {
    let class = &spec.resource_class;
    match compute.network(spec).await {
        Ok(network) => {
            let told = network::told(spec, &network);
            told.subnets.iter().for_each(|subnet| tracing::info!("network of {class}: {subnet}"));
            told.problems.iter().for_each(|(what, fix)| tracing::warn!("network of {class}: {what}: {fix}"));
        }
        Err(error) => tracing::warn!("the network of {class} cannot be checked: {error}"),
    }
}

/// Warns about classes without a runner. It is not an error: the operator may have its runner from its own environment,
/// which we cannot see.
fn advise(pools: &[PoolSpec]) {
    let bare = pools.iter().filter(|spec| spec.launch.launch_template_id.is_none());
    let bare: Vec<&str> = bare.map(|spec| spec.resource_class.as_str()).collect();
    if !bare.is_empty() {
        tracing::warn!(
            "no agent.runner_url: by an operator without one, machines of {} find no runner and end at their first boot",
            bare.join(", ")
        );
    }
}

fn step(
    config: &Config,
    spec: &PoolSpec,
    change: TemplateChange,
    differences: Vec<runyard_store::Difference>,
) -> SetupStep {
    let own = format!("{}-{}", config.table, spec.resource_class);
    let name = spec.launch.launch_template_id.clone().unwrap_or(own);
    let state = match change {
        TemplateChange::None => State::Good,
        TemplateChange::Provided => State::Given,
        TemplateChange::Create => State::Made(differences),
        TemplateChange::Update => State::Mended(differences),
    };
    SetupStep::new("template", name, state)
}

fn refused(spec: &PoolSpec, error: &ComputeError) -> FieldError {
    let fix = match error {
        ComputeError::Refused(_) => "mend what is said, or the permissions, then run init again",
        ComputeError::Throttled
        | ComputeError::NoCapacity(_)
        | ComputeError::Unknown(_)
        | ComputeError::TokenSpent(_) => "check the network and the endpoint of EC2, then run init again",
    };
    FieldError::new("template", spec.resource_class.as_str(), error.to_string(), fix)
}
