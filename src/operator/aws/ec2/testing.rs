//! Options, a class and an order for tests.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use runyard_fakes::as_shipped;
use serde_json::json;

use super::Ec2Options;
use crate::config::Architectures;
use crate::model::{InstanceTypes, Launch, LaunchId, LaunchPhase, PoolSpec, TableName, UsageClass};
use crate::ports::LaunchOrder;

pub(in crate::aws) fn options() -> Ec2Options {
    Ec2Options {
        table: TableName::parse("yard").expect("a valid name"),
        timing: as_shipped(),
        runner: Architectures::default(),
        program: Architectures::default(),
        environment: BTreeMap::new(),
        pre_runner_script: None,
        pre_runner_timeout: Duration::from_secs(600),
        stop: Duration::from_secs(60),
        spare: Vec::new(),
        runner_hosts: Vec::new(),
        patience: Duration::from_millis(500),
    }
}

pub(super) fn spec() -> PoolSpec {
    let spec = json!({
        "resourceClass": "linux", "cpu": 4, "mmem": 8192,
        "launch": { "ami": "ami-0123456789abcdef0", "subnetIds": ["subnet-1", "subnet-2"] },
    });
    serde_json::from_value(spec).expect("a valid spec")
}

pub(super) fn order(usage_class: UsageClass, types: &[&str]) -> LaunchOrder {
    let launch_id = LaunchId::parse("l-1").expect("a valid id");
    let launch = Launch {
        attempt: 2,
        client_token: Launch::token_of(&launch_id, 2),
        launch_id,
        resource_class: spec().resource_class,
        usage_class,
        count: 3,
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
    let types = InstanceTypes(types.iter().map(ToString::to_string).collect());
    LaunchOrder { launch, spec: spec(), types, image: None }
}
