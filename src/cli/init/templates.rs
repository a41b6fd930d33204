//! Does every class have its launch template? One that is missing or says something else is made or given a new version;
//! one that is not ours, or that its owner keeps otherwise than machines must be, is refused by its class's name.

use aws_config::SdkConfig;

use super::step;
use crate::aws::ec2::{Ec2Compute, TemplateChange};
use crate::cli::failure::{Exit, Failure, Outcome};
use crate::config::Config;
use crate::model::{FieldError, PoolSpec};
use crate::ports::ComputeError;
use crate::wire;

/// The templates of these classes, kept or with `dry_run` only looked at.
pub(super) async fn all(
    config: &Config,
    sdk: &SdkConfig,
    specs: &[PoolSpec],
    dry_run: bool,
) -> Outcome<Vec<[String; 3]>> {
    let compute = wire::ec2(config, sdk).map_err(Failure::usage)?;
    let mut done = Vec::new();
    let mut refused = Vec::new();
    for spec in specs {
        match one(&compute, spec, dry_run).await {
            Ok(said) => done.push(said),
            Err(error) => refused.push(problem(spec, &error)),
        }
    }
    // The good classes have theirs; what is wrong with the others is said of all of them at once.
    if refused.is_empty() { Ok(done) } else { Err(Failure::all_usage(refused).exiting(Exit::Error)) }
}

async fn one(compute: &Ec2Compute, spec: &PoolSpec, dry_run: bool) -> Result<[String; 3], ComputeError> {
    let examined = compute.examine_template(spec).await?;
    let differing = examined.differences.join("; ");
    let state = match (examined.change, dry_run) {
        (TemplateChange::None, _) => "as it should be".to_owned(),
        (TemplateChange::Given, _) => "its owner's, and good".to_owned(),
        (TemplateChange::Create, true) => "would be created".to_owned(),
        (TemplateChange::Update, true) => format!("would get a new default version: {differing}"),
        (TemplateChange::Create, false) => {
            compute.ensure_template(spec).await?;
            "created".to_owned()
        }
        (TemplateChange::Update, false) => {
            compute.ensure_template(spec).await?;
            format!("got a new default version: {differing}")
        }
    };
    Ok(step("launch template", &examined.name, &state))
}

fn problem(spec: &PoolSpec, error: &ComputeError) -> FieldError {
    let fix = "mend what is said and run init again; machines of this class cannot be launched until then";
    FieldError::new("launch template", spec.resource_class.as_str(), error.to_string(), fix)
}
