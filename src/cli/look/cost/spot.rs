//! Reads EC2's spot prices over time.

use jiff::Timestamp;

use crate::common::failure::{CliFailure, CliResult};
use crate::session::context::CliContext;
use runyard_core::ledger::{Entry, SpotPrices};

/// Asks EC2 for the prices of the spot machines among these entries.
#[cfg(feature = "ec2")]
pub(super) async fn ask(
    context: &CliContext,
    entries: &[Entry],
    from: Timestamp,
    to: Timestamp,
) -> CliResult<SpotPrices> {
    use std::collections::BTreeSet;

    use runyard_core::model::UsageClass;

    let spot = entries.iter().filter(|entry| entry.machine.usage_class == UsageClass::Spot);
    let offers: BTreeSet<(&str, &str)> =
        spot.map(|entry| (entry.machine.zone.as_str(), entry.machine.instance_type.as_str())).collect();
    if offers.is_empty() {
        return Ok(SpotPrices::default());
    }
    let sdk = crate::session::connect::sdk(&context.environment).await;
    runyard_operator::aws::ec2::spot_prices(&sdk, &offers, from, to).await.map_err(|why| {
        let fix =
            "allow ec2:DescribeSpotPriceHistory, or leave --spot out and give prices with --prices FILE";
        CliFailure::error("--spot", "", format!("EC2 did not tell its spot prices: {why}"), fix)
    })
}

/// Returns an error: this program is built without EC2.
#[cfg(not(feature = "ec2"))]
pub(super) async fn ask(_: &CliContext, _: &[Entry], _: Timestamp, _: Timestamp) -> CliResult<SpotPrices> {
    let fix = "give prices with --prices FILE, or use a program with the feature ec2";
    Err(CliFailure::error("--spot", "", "this program is built without EC2", fix))
}
