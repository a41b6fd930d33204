//! Spot prices over time (EC2 API reference, "DescribeSpotPriceHistory": steps of the price by type and zone, including
//! the one in force at the start of the range; kept for 90 days).

use std::collections::BTreeSet;

use aws_config::SdkConfig;
use aws_sdk_ec2::primitives::DateTime;
use aws_sdk_ec2::{Client, types};
use jiff::Timestamp;

use super::errors::CallError;
use crate::ledger::{Price, SpotPrice, SpotPrices};

/// Returns the prices of these types, each in its zone, over a time range.
///
/// # Errors
/// EC2's message.
pub async fn spot_prices(
    sdk: &SdkConfig,
    offers: &BTreeSet<(&str, &str)>,
    from: Timestamp,
    to: Timestamp,
) -> Result<SpotPrices, String> {
    let client = Client::new(sdk);
    let kinds: BTreeSet<&str> = offers.iter().map(|(_, kind)| *kind).collect();
    let mut pages = client
        .describe_spot_price_history()
        .set_instance_types(Some(kinds.into_iter().map(types::InstanceType::from).collect()))
        .product_descriptions("Linux/UNIX")
        .start_time(DateTime::from_secs(from.as_second()))
        .end_time(DateTime::from_secs(to.as_second()))
        .into_paginator()
        .send();
    let mut prices = SpotPrices::default();
    while let Some(page) = pages.next().await {
        let page = page.map_err(|error| CallError::of(&error).text)?;
        for step in page.spot_price_history() {
            let kind = step.instance_type().map(types::InstanceType::as_str).unwrap_or_default();
            let zone = step.availability_zone().unwrap_or_default();
            let price = step.spot_price().and_then(|price| Price::parse(price).ok());
            if let (true, Some(price), Some(at)) = (offers.contains(&(zone, kind)), price, step.timestamp()) {
                prices.add(zone, kind, SpotPrice { from: at.secs(), price });
            }
        }
    }
    Ok(prices)
}
