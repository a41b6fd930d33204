//! Was a machine launched in the way that its class wants now?

use std::collections::BTreeMap;

use super::launch_template::LaunchTemplate;
use crate::model::pool::{Pool, PoolSpec};

/// Computes the digest of a class's launch configuration: two FNV-1a digests (64 bits, hexadecimal), of `launch`, and
/// of `cpu`, `mmem` and `allowedInstanceTypes`, each of its JSON with sorted keys. They detect changes, not attacks.
/// `launch.maxPriceOver` is not part of it: it bounds a choice, and a machine that was chosen stays as it is.
pub fn launch_digest(spec: &PoolSpec) -> String {
    let shape = serde_json::json!({
        "cpu": spec.cpu, "mmem": spec.mmem, "allowedInstanceTypes": spec.allowed_instance_types,
    });
    let launch = LaunchTemplate { max_price_over: None, ..spec.launch.clone() };
    let launch = serde_json::to_value(launch).expect("a launch block has only plain values");
    format!("{:016x}-{:016x}", digest(launch), digest(shape))
}

/// Computes the same digest for a class with the pinned image where a parameter names it, so that a newer image is a
/// change like any other. None where an image is to be pinned and is not.
pub fn pool_launch_digest(pool: &Pool) -> Option<String> {
    if pool.spec.launch.parameter().is_none() {
        return Some(launch_digest(&pool.spec));
    }
    let mut spec = pool.spec.clone();
    spec.launch.ami = Some(pool.pinned()?.ami.clone());
    Some(launch_digest(&spec))
}

fn digest(value: serde_json::Value) -> u64 {
    let sorted: BTreeMap<String, serde_json::Value> = match value.as_object() {
        Some(fields) => fields.clone().into_iter().collect(),
        None => BTreeMap::from([(String::new(), value)]),
    };
    let text = serde_json::to_string(&sorted).expect("plain values can be written");
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Returns why a machine that was launched in one way is not what its class wants now; none where it is, where its
/// launch configuration is not known, or where the class does not define how its machines are launched.
pub fn drift(
    launched: Option<&str>,
    wanted: &str,
    fits: bool,
    launch: &LaunchTemplate,
) -> Option<&'static str> {
    let (was, is) = (launched?.split_once('-')?, wanted.split_once('-')?);
    if *launch == LaunchTemplate::default() {
        return None;
    }
    if was.0 != is.0 {
        return Some("its class is launched in another way now");
    }
    (was.1 != is.1 && !fits).then_some("its class wants larger machines or other types now")
}
