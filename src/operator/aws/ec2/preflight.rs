//! Checks whether a class's machines could be launched, without launching any: EC2 evaluates a call with `DryRun`
//! against all policies, including an organisation's, and responds with an error, `DryRunOperation` if it would succeed
//! (EC2 API reference, "RunInstances"). It checks neither quotas nor capacity.

use aws_sdk_ec2::operation::run_instances::builders::RunInstancesFluentBuilder;
use aws_sdk_ec2::types::{
    ArchitectureValues, Image, InstanceInterruptionBehavior, InstanceMarketOptionsRequest, InstanceType,
    LaunchTemplateSpecification, MarketType, SpotInstanceType, SpotMarketOptions,
};
use jiff::Timestamp;

use super::errors::{CallError, remedy, would_succeed};
use super::template::{Template, TemplateChange};
use super::{Ec2Compute, fleet, terminate};
use crate::aws::ec2::template::spec::usual_type;
use crate::model::{InstanceId, InstanceTypes, Launch, LaunchId, LaunchPhase, PoolSpec, UsageClass};
use crate::ports::{ComputeError, LaunchOrder};
use crate::preflight::{Check, Outcome};

/// The alias of the key that EBS uses unless an account has another default (EC2 API reference,
/// "GetEbsDefaultKmsKeyId").
const AWS_KEY: &str = "alias/aws/ebs";

impl Ec2Compute {
    /// Runs all checks of a class's launches that EC2 supports in advance; nothing is launched or changed.
    pub async fn preflight(&self, spec: &PoolSpec) -> Vec<Check> {
        let mut checks = vec![self.template_check(spec).await];
        checks.extend(self.image_check(spec).await);
        checks.extend(profile_check(spec));
        match self.existing_template(spec).await {
            Ok(Some(template)) => {
                for usage in [UsageClass::OnDemand, UsageClass::Spot] {
                    let told = self.dry_runs(spec, &template, usage).await;
                    checks.extend(told.into_iter().map(|check| as_needed(spec, usage, check)));
                }
            }
            Ok(None) => checks.push(Check::unchecked(
                "dry run of a launch",
                "the class has no launch template yet",
                "run `runyard init --config FILE`, which makes it, and this again",
            )),
            // The check of the template reports it.
            Err(_) => {}
        }
        checks.push(self.encryption_check().await);
        checks
    }

    async fn template_check(&self, spec: &PoolSpec) -> Check {
        let what = "launch template";
        match self.examine_template(spec).await {
            Ok((TemplateChange::None, _)) => Check::good(what, "says what the class says"),
            Ok((TemplateChange::Provided, _)) => Check::good(what, "the class's own, fit for machines"),
            Ok((TemplateChange::Create, _)) => {
                Check::good(what, "none yet; the operator makes it with the first launch")
            }
            Ok((TemplateChange::Update, differences)) => {
                let fields: Vec<&str> = differences.iter().map(|one| one.what).collect();
                let fields = fields.join(", ");
                Check::good(
                    what,
                    format!("differs in {fields}; the operator brings it up to date with the next launch"),
                )
            }
            Err(ComputeError::Refused(why)) => Check::wrong(what, why, "mend what is named"),
            Err(error) => Check::unchecked(what, error.to_string(), "run this again"),
        }
    }

    /// Returns the template that launches use, if it exists.
    async fn existing_template(&self, spec: &PoolSpec) -> Result<Option<Template>, ComputeError> {
        self.templates().existing(spec).await
    }

    async fn image_check(&self, spec: &PoolSpec) -> Option<Check> {
        let what = "image";
        let ami = spec.launch.ami.as_deref()?;
        if !ami.starts_with("ami-") {
            return Some(Check::unchecked(
                what,
                format!("{ami} is looked up when a machine is launched"),
                "see the dry run",
            ));
        }
        let set = format!(
            "name an image of this region that this account may use in launch.ami of {}",
            spec.resource_class
        );
        let told = match self.client.describe_images().image_ids(ami).send().await {
            Ok(told) => told.images.unwrap_or_default(),
            Err(error) => {
                let error = CallError::of(&error);
                return Some(Check::wrong(what, error.text, set));
            }
        };
        Some(match told.first() {
            Some(image) => judge_image(spec, ami, image),
            None => Check::wrong(what, format!("{ami} is not there"), set),
        })
    }

    /// Checks the permission for a fleet, and for a machine in each zone.
    async fn dry_runs(&self, spec: &PoolSpec, template: &Template, usage: UsageClass) -> Vec<Check> {
        let subnets = match self.subnets.of(&self.client, spec).await {
            Ok(subnets) => subnets.into_iter().map(|(id, _)| id).collect::<Vec<_>>(),
            Err(error) => {
                return vec![Check::unchecked(
                    format!("dry run, {usage}"),
                    error.to_string(),
                    "run this again",
                )];
            }
        };
        let order = order(spec, usage);
        let fleet =
            fleet::request(&self.options.table, &order, template, &order.types.0, &subnets).dry_run(true);
        let what = format!("dry run of a fleet, {usage}");
        let mut checks = vec![match fleet.send_with(&self.client).await {
            Ok(answer) => {
                let named = fleet::named(&answer).into_iter().map(|machine| machine.id).collect();
                self.launched_all_the_same(&what, named).await
            }
            Err(error) => judged(&what, &CallError::of(&error)),
        }];
        let zones: Vec<Option<&String>> =
            if subnets.is_empty() { vec![None] } else { subnets.iter().map(Some).collect() };
        for subnet in zones {
            let place = subnet.map_or_else(|| "the default subnet".to_owned(), Clone::clone);
            let what = format!("dry run of a machine, {usage}, {place}");
            checks.push(match self.run_one(&order, template, subnet).send().await {
                Ok(answer) => {
                    let named = answer.instances().iter().filter_map(|one| one.instance_id.clone()).collect();
                    self.launched_all_the_same(&what, named).await
                }
                Err(error) => judged(&what, &CallError::of(&error)),
            });
        }
        checks
    }

    /// Builds the call for one machine as a fleet would launch it.
    fn run_one(
        &self,
        order: &LaunchOrder,
        template: &Template,
        subnet: Option<&String>,
    ) -> RunInstancesFluentBuilder {
        let named = LaunchTemplateSpecification::builder().version("$Default");
        let (named, sized) = match template {
            Template::Managed { name } => (named.launch_template_name(name), true),
            Template::Provided { id, sized } => (named.launch_template_id(id), *sized),
        };
        let spot = SpotMarketOptions::builder()
            .spot_instance_type(SpotInstanceType::OneTime)
            .instance_interruption_behavior(InstanceInterruptionBehavior::Terminate);
        let market = match order.launch.usage_class {
            UsageClass::Spot => Some(
                InstanceMarketOptionsRequest::builder()
                    .market_type(MarketType::Spot)
                    .spot_options(spot.build())
                    .build(),
            ),
            UsageClass::OnDemand => None,
        };
        let call = self.client.run_instances().dry_run(true).min_count(1).max_count(1);
        let call = call.launch_template(named.build()).set_subnet_id(subnet.cloned());
        let call = call.set_instance_market_options(market);
        let call =
            call.set_instance_type((!sized).then(|| InstanceType::from(usual_type(&order.spec).as_str())));
        let tags = fleet::tags(&self.options.table, order).into_iter();
        // This call creates no fleet.
        let tags = tags.filter(|on| on.resource_type() != Some(&aws_sdk_ec2::types::ResourceType::Fleet));
        call.set_tag_specifications(Some(tags.collect()))
    }

    /// Terminates machines that a dry run launched. EC2 launches none, but an imitation that ignores `DryRun` must not
    /// cost anybody a machine.
    async fn launched_all_the_same(&self, what: &str, named: Vec<String>) -> Check {
        let ids: Vec<InstanceId> = named.iter().filter_map(|id| InstanceId::parse(id).ok()).collect();
        let told = match terminate::terminate(&self.client, &ids).await {
            Ok(()) => "they were ended".to_owned(),
            Err(error) => format!("they could not be ended: {error}"),
        };
        let problem = format!("DryRun was ignored and machines were launched ({}); {told}", named.join(" "));
        Check::wrong(what, problem, "use an EC2 that knows DryRun; see that these machines are gone")
    }

    async fn encryption_check(&self) -> Check {
        let what = "encryption of volumes";
        let by_default = match self.client.get_ebs_encryption_by_default().send().await {
            Ok(told) => told.ebs_encryption_by_default().unwrap_or_default(),
            Err(error) => return not_asked(what, &CallError::of(&error)),
        };
        if !by_default {
            return Check::good(what, "not by default");
        }
        let key = match self.client.get_ebs_default_kms_key_id().send().await {
            Ok(told) => told.kms_key_id.unwrap_or_default(),
            Err(error) => return not_asked(what, &CallError::of(&error)),
        };
        if key.is_empty() || key.ends_with(AWS_KEY) {
            return Check::good(what, "by default, with AWS's own key");
        }
        Check::unchecked(
            what,
            format!(
                "by default with the key {key}, and whether the operator may use it shows at a launch alone: a machine ends at once with Client.InternalError"
            ),
            "deploy with VolumeKeyArn (or attach config/iam/operator-volume-key.json), and grant the key to EC2's roles (config/iam/README.md)",
        )
    }
}

/// Softens a failed check of spot machines for an on-demand class, which needs them only for requests that ask for
/// them.
fn as_needed(spec: &PoolSpec, usage: UsageClass, check: Check) -> Check {
    match (spec.usage_class, usage, check.outcome) {
        (UsageClass::OnDemand, UsageClass::Spot, Outcome::Wrong { problem, fix }) => {
            let why = format!("only requests with --usage-class spot need it: {problem}");
            Check::unchecked(check.what, why, fix)
        }
        (_, _, outcome) => Check { what: check.what, outcome },
    }
}

/// Returns an order that is never executed.
fn order(spec: &PoolSpec, usage_class: UsageClass) -> LaunchOrder {
    let launch_id = LaunchId::parse("preflight").expect("a valid id");
    let launch = Launch {
        // EC2 stores no token of a dry run.
        client_token: format!("preflight-{usage_class}"),
        launch_id,
        attempt: 1,
        resource_class: spec.resource_class.clone(),
        usage_class,
        count: 1,
        request: None,
        launch_digest: None,
        phase: LaunchPhase::Intent,
        instances: Vec::new(),
        message: String::new(),
        created_at: Timestamp::UNIX_EPOCH,
        expires_at: None,
        uid: None,
        version: 1,
        updated_at: Timestamp::UNIX_EPOCH,
    };
    let types = InstanceTypes(spec.allowed_instance_types.0.clone());
    LaunchOrder { launch, spec: spec.clone(), types, image: None }
}

/// Converts a dry run's error to a check.
fn judged(what: &str, error: &CallError) -> Check {
    // The reason of a refusal, without the encoded message behind it, which fills a screen.
    let text = error.text.split(" Encoded authorization failure message").next().unwrap_or_default();
    if would_succeed(&error.code) {
        return Check::good(what, "would be launched");
    }
    match remedy(&error.code) {
        Some(fix) => Check::wrong(what, text, fix),
        None => Check::unchecked(what, text, "run this again"),
    }
}

fn not_asked(what: &str, error: &CallError) -> Check {
    let fix =
        "allow ec2:GetEbsEncryptionByDefault and ec2:GetEbsDefaultKmsKeyId, as config/iam/operator.json does";
    Check::unchecked(what, error.text.clone(), fix)
}

fn profile_check(spec: &PoolSpec) -> Option<Check> {
    let launch = &spec.launch;
    if launch.launch_template_id.is_some() || launch.instance_profile.is_some() {
        // The dry run shows whether it exists.
        return None;
    }
    let fix = format!("`runyard set pool {} launch.instanceProfile=TABLE-machine`", spec.resource_class);
    Some(Check::wrong(
        "instance profile",
        "the class names none, and its machines cannot read their records",
        fix,
    ))
}

fn judge_image(spec: &PoolSpec, ami: &str, image: &Image) -> Check {
    let (what, class) = ("image", &spec.resource_class);
    if let Some(state) = image.state().filter(|state| state.as_str() != "available") {
        return Check::wrong(
            what,
            format!("{ami} is {}", state.as_str()),
            "wait until it is available, or name another in launch.ami",
        );
    }
    let built = image.architecture().map(ArchitectureValues::as_str).unwrap_or_default();
    let wanted = spec.launch.architecture.as_deref();
    if let Some(wanted) = wanted.filter(|wanted| !built.is_empty() && *wanted != built) {
        let fix = format!(
            "`runyard set pool {class} launch.architecture={built}`, or name an image of {wanted} in launch.ami"
        );
        return Check::wrong(what, format!("{ami} is of {built}, and the class of {wanted}"), fix);
    }
    let root = image.root_device_name().unwrap_or_default();
    let mapped = image.block_device_mappings().iter().find(|one| one.device_name() == Some(root));
    let gib = mapped
        .and_then(|one| one.ebs())
        .and_then(|ebs| ebs.volume_size())
        .and_then(|gib| u32::try_from(gib).ok());
    if let (Some(needed), Some(configured)) = (gib, spec.launch.root_volume().gib)
        && needed > configured
    {
        let field = if spec.launch.volume.gib.is_some() { "volume.gib" } else { "volumeGiB" };
        let fix = format!("`runyard set pool {class} launch.{field}={needed}`, or leave it out");
        return Check::wrong(
            what,
            format!("{ami} has a root volume of {needed} GiB, and the class gives {configured} GiB"),
            fix,
        );
    }
    let size = gib.map(|gib| format!(", {gib} GiB")).unwrap_or_default();
    Check::good(what, format!("{ami}, {built}{size}"))
}

#[cfg(test)]
mod tests {
    use aws_sdk_ec2::types::{BlockDeviceMapping, EbsBlockDevice, ImageState};

    use super::*;
    use crate::aws::ec2::testing::spec;

    fn image(architecture: &str, gib: i32) -> Image {
        let ebs = EbsBlockDevice::builder().volume_size(gib).build();
        let root = BlockDeviceMapping::builder().device_name("/dev/sda1").ebs(ebs).build();
        Image::builder()
            .state(ImageState::Available)
            .architecture(architecture.into())
            .root_device_name("/dev/sda1")
            .block_device_mappings(root)
            .build()
    }

    fn problem(check: &Check) -> Option<&str> {
        match &check.outcome {
            Outcome::Wrong { problem, .. } => Some(problem),
            Outcome::Good(_) | Outcome::Unchecked { .. } => None,
        }
    }

    #[test]
    fn an_image_of_another_architecture_or_too_large_is_told_with_the_setting() {
        let mut spec = spec();
        spec.launch.architecture = Some("x86_64".into());
        spec.launch.volume_gib = Some(20);
        assert_eq!(problem(&judge_image(&spec, "ami-1", &image("x86_64", 20))), None);
        let other = judge_image(&spec, "ami-1", &image("arm64", 8));
        assert_eq!(problem(&other), Some("ami-1 is of arm64, and the class of x86_64"));
        let large = judge_image(&spec, "ami-1", &image("x86_64", 30));
        assert_eq!(problem(&large), Some("ami-1 has a root volume of 30 GiB, and the class gives 20 GiB"));
        assert!(format!("{large:?}").contains("launch.volumeGiB=30"), "{large:?}");
        spec.launch.volume.gib = spec.launch.volume_gib.take();
        let large = judge_image(&spec, "ami-1", &image("x86_64", 30));
        assert!(format!("{large:?}").contains("launch.volume.gib=30"), "{large:?}");
        let pending = Image::builder().state(ImageState::Pending).build();
        assert_eq!(problem(&judge_image(&spec, "ami-1", &pending)), Some("ami-1 is pending"));
    }

    #[test]
    fn a_refusal_is_told_without_its_sealed_reason() {
        let error = CallError {
            meaning: crate::aws::ec2::errors::Meaning::Refused,
            code: "UnauthorizedOperation".into(),
            text: "UnauthorizedOperation: You are not authorized. Encoded authorization failure message: AbC"
                .into(),
        };
        let check = judged("dry run", &error);
        assert_eq!(problem(&check), Some("UnauthorizedOperation: You are not authorized."));
    }
}
