//! Checks a launch template that somebody else wrote. It refuses templates whose machines would survive their own
//! shutdown, expose their role, be reachable from outside, or be restarted after their end.

use aws_sdk_ec2::types::{
    InstanceInterruptionBehavior, LaunchTemplateHttpTokensState, LaunchTemplateInstanceMetadataEndpointState,
    LaunchTemplateInstanceMetadataProtocolIpv6, MarketType, ResponseLaunchTemplateData, ShutdownBehavior,
    SpotInstanceType,
};

/// A fault of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The setting, by EC2's name.
    pub(crate) setting: &'static str,
    /// Its value.
    pub(crate) value: String,
    /// The required value.
    pub(crate) fix: &'static str,
}

/// Returns the first fault.
pub(crate) fn problem(data: &ResponseLaunchTemplateData) -> Option<Problem> {
    shutdown(data).or_else(|| metadata(data)).or_else(|| address(data)).or_else(|| market(data))
}

/// Returns whether the template selects instance types itself.
pub(crate) fn sized(data: &ResponseLaunchTemplateData) -> bool {
    data.instance_type.is_some() || data.instance_requirements.is_some()
}

fn problem_with(setting: &'static str, value: Option<&str>, fix: &'static str) -> Option<Problem> {
    Some(Problem { setting, value: value.unwrap_or("not set").to_owned(), fix })
}

fn shutdown(data: &ResponseLaunchTemplateData) -> Option<Problem> {
    match data.instance_initiated_shutdown_behavior() {
        Some(ShutdownBehavior::Terminate) => None,
        other => problem_with(
            "InstanceInitiatedShutdownBehavior",
            other.map(ShutdownBehavior::as_str),
            "set it to terminate: a machine ends by switching itself off",
        ),
    }
}

fn metadata(data: &ResponseLaunchTemplateData) -> Option<Problem> {
    let options = data.metadata_options();
    match options.and_then(|options| options.http_tokens()) {
        Some(LaunchTemplateHttpTokensState::Required) => {}
        other => {
            return problem_with(
                "MetadataOptions.HttpTokens",
                other.map(LaunchTemplateHttpTokensState::as_str),
                "set it to required: IMDSv1 gives the machine's role to any job that can make a web request",
            );
        }
    }
    match options.and_then(|options| options.http_put_response_hop_limit()) {
        Some(1) => {}
        other => {
            return problem_with(
                "MetadataOptions.HttpPutResponseHopLimit",
                other.map(|hops| hops.to_string()).as_deref(),
                "set it to 1 (left out, the image or the account may say 2): containers must not reach the machine's role",
            );
        }
    }
    if let Some(LaunchTemplateInstanceMetadataProtocolIpv6::Enabled) =
        options.and_then(|options| options.http_protocol_ipv6())
    {
        return problem_with(
            "MetadataOptions.HttpProtocolIpv6",
            Some("enabled"),
            "disable it: the agent asks by IPv4, and jobs need no second way to the machine's role",
        );
    }
    match options.and_then(|options| options.http_endpoint()) {
        Some(LaunchTemplateInstanceMetadataEndpointState::Disabled) => problem_with(
            "MetadataOptions.HttpEndpoint",
            Some("disabled"),
            "enable it: the agent has its credentials from there",
        ),
        _ => None,
    }
}

fn address(data: &ResponseLaunchTemplateData) -> Option<Problem> {
    let public = |interface: &aws_sdk_ec2::types::LaunchTemplateInstanceNetworkInterfaceSpecification| {
        interface.associate_public_ip_address() == Some(true)
    };
    if !data.network_interfaces().iter().any(public) {
        return None;
    }
    problem_with(
        "NetworkInterfaces.AssociatePublicIpAddress",
        Some("true"),
        "set it to false or leave it to the subnet: nothing needs to reach a machine from outside",
    )
}

fn market(data: &ResponseLaunchTemplateData) -> Option<Problem> {
    let market = data.instance_market_options()?;
    let spot = market.spot_options();
    if let Some(kind @ SpotInstanceType::Persistent) = spot.and_then(|spot| spot.spot_instance_type()) {
        return problem_with(
            "InstanceMarketOptions.SpotOptions.SpotInstanceType",
            Some(kind.as_str()),
            "use one-time: a persistent request brings back a machine that was ended",
        );
    }
    match spot.and_then(|spot| spot.instance_interruption_behavior()) {
        None | Some(InstanceInterruptionBehavior::Terminate) => {}
        Some(other) => {
            return problem_with(
                "InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior",
                Some(other.as_str()),
                "use terminate",
            );
        }
    }
    match market.market_type() {
        Some(MarketType::Spot) | None => None,
        other => problem_with(
            "InstanceMarketOptions.MarketType",
            other.map(MarketType::as_str),
            "leave it out: the class says how its machines are paid for",
        ),
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_ec2::types::{
        LaunchTemplateInstanceMarketOptions, LaunchTemplateInstanceMetadataOptions,
        LaunchTemplateInstanceNetworkInterfaceSpecification, LaunchTemplateSpotMarketOptions,
        builders::{LaunchTemplateInstanceMetadataOptionsBuilder, ResponseLaunchTemplateDataBuilder},
    };

    use super::*;

    fn good() -> ResponseLaunchTemplateDataBuilder {
        let tokens = LaunchTemplateHttpTokensState::Required;
        ResponseLaunchTemplateData::builder()
            .instance_initiated_shutdown_behavior(ShutdownBehavior::Terminate)
            .metadata_options(metadata().http_tokens(tokens).build())
    }

    fn metadata() -> LaunchTemplateInstanceMetadataOptionsBuilder {
        LaunchTemplateInstanceMetadataOptions::builder().http_put_response_hop_limit(1)
    }

    fn setting(data: ResponseLaunchTemplateDataBuilder) -> Option<&'static str> {
        problem(&data.build()).map(|problem| problem.setting)
    }

    fn spot(spot: LaunchTemplateSpotMarketOptions) -> LaunchTemplateInstanceMarketOptions {
        let market = LaunchTemplateInstanceMarketOptions::builder().market_type(MarketType::Spot);
        market.spot_options(spot).build()
    }

    #[test]
    fn a_template_whose_machines_end_for_good_and_keep_to_themselves_is_taken() {
        assert_eq!(setting(good()), None);
        let once = LaunchTemplateSpotMarketOptions::builder().spot_instance_type(SpotInstanceType::OneTime);
        assert_eq!(setting(good().instance_market_options(spot(once.build()))), None);
    }

    #[test]
    fn each_dangerous_setting_is_refused_by_its_name() {
        let stop = good().instance_initiated_shutdown_behavior(ShutdownBehavior::Stop);
        assert_eq!(setting(stop), Some("InstanceInitiatedShutdownBehavior"));
        let unset = good().set_instance_initiated_shutdown_behavior(None);
        assert_eq!(setting(unset), Some("InstanceInitiatedShutdownBehavior"));
        let optional = LaunchTemplateInstanceMetadataOptions::builder()
            .http_tokens(LaunchTemplateHttpTokensState::Optional)
            .build();
        assert_eq!(setting(good().metadata_options(optional)), Some("MetadataOptions.HttpTokens"));
        assert_eq!(setting(good().set_metadata_options(None)), Some("MetadataOptions.HttpTokens"));
        for hops in [None, Some(2)] {
            let required = metadata().http_tokens(LaunchTemplateHttpTokensState::Required);
            let far = required.set_http_put_response_hop_limit(hops).build();
            assert_eq!(
                setting(good().metadata_options(far)),
                Some("MetadataOptions.HttpPutResponseHopLimit"),
                "{hops:?}"
            );
        }
        let both = metadata()
            .http_tokens(LaunchTemplateHttpTokensState::Required)
            .http_protocol_ipv6(LaunchTemplateInstanceMetadataProtocolIpv6::Enabled);
        assert_eq!(setting(good().metadata_options(both.build())), Some("MetadataOptions.HttpProtocolIpv6"));
        let public = LaunchTemplateInstanceNetworkInterfaceSpecification::builder();
        let public = good().network_interfaces(public.associate_public_ip_address(true).build());
        assert_eq!(setting(public), Some("NetworkInterfaces.AssociatePublicIpAddress"));
        let again =
            LaunchTemplateSpotMarketOptions::builder().spot_instance_type(SpotInstanceType::Persistent);
        assert_eq!(
            setting(good().instance_market_options(spot(again.build()))),
            Some("InstanceMarketOptions.SpotOptions.SpotInstanceType")
        );
        let sleeping = LaunchTemplateSpotMarketOptions::builder()
            .instance_interruption_behavior(InstanceInterruptionBehavior::Hibernate);
        assert_eq!(
            setting(good().instance_market_options(spot(sleeping.build()))),
            Some("InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior")
        );
    }
}
