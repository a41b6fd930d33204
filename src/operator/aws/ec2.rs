//! The EC2 adapter: one instant fleet per launch, one launch template per class. A resource is ours if it carries our
//! table's tag. EC2 is eventually consistent about its own instances: the adapter waits until a launched instance is
//! visible, and an instance that a list omits does not count as gone.

mod console;
mod errors;
mod fleet;
mod fleet_results;
mod machine;
mod options;
mod preflight;
mod shortages;
mod spot_prices;
mod subnets;
mod template;
mod terminate;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_ec2::types::Reservation;
use aws_sdk_ec2::{Client, config};
use tokio::time::Instant;

use self::errors::{CallError, Meaning};
use self::fleet_results::outcome_unknown;
use self::machine::{TABLE, Which};
use self::shortages::Shortages;
use self::subnets::Subnets;
use self::template::{Template, Templates};
use crate::model::{ClassName, InstanceId, LAUNCH_LIMIT, LaunchTemplate, PoolSpec};
use crate::ports::{Compute, ComputeError, LaunchOrder, Launched, Machine, MachineState, StateReason};
use crate::store::{Difference, retries};

pub use self::options::Ec2Options;
pub use self::spot_prices::spot_prices;
pub use self::subnets::{Network, Subnet};
pub use self::template::{TemplateChange, delete_template};

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(2);
/// Longest wait for one attempt of a call; an instant fleet responds when its machines exist.
const ATTEMPT_TIME: Duration = Duration::from_secs(20);
/// Longest wait for a call, all attempts together.
const CALL: Duration = Duration::from_secs(45);
/// Most instances of one page (EC2: 5 to 1000).
const PAGE: i32 = 500;
/// Most values of one filter (EC2).
const VALUES: usize = 200;
/// Number of machines whose end reason is cached.
const REASONS: usize = 10_000;
/// How long a checked template counts as good.
const KNOWN_GOOD: Duration = Duration::from_secs(60);

/// A template that was good when it was last checked.
#[derive(Debug)]
struct Good {
    /// The class's launch settings, and its image.
    wanted: (LaunchTemplate, Option<String>),
    template: Template,
    /// The end of its validity.
    until: Instant,
}

/// `compute.kind = "ec2"`.
#[derive(Debug)]
pub struct Ec2Compute {
    client: Client,
    region: String,
    options: Ec2Options,
    /// The templates that were good when they were last checked.
    good: Mutex<BTreeMap<ClassName, Good>>,
    /// The end reasons of machines from EC2's last response about them.
    reasons: Mutex<BTreeMap<InstanceId, StateReason>>,
    /// The recently described subnets.
    subnets: Subnets,
    /// The recent shortages of EC2.
    shortages: Shortages,
}

impl Ec2Compute {
    /// Connects to the machines of a table, configured by `config`. No call is made yet.
    pub fn connect(options: Ec2Options, config: &SdkConfig) -> Self {
        Self::within(options, config, ATTEMPT_TIME, CALL)
    }

    /// Connects with other timeouts: for an attempt (usually 20 s), and for a call with all its attempts (45 s).
    pub fn within(options: Ec2Options, config: &SdkConfig, attempt: Duration, call: Duration) -> Self {
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(CONNECT)
            .operation_attempt_timeout(attempt)
            .operation_timeout(call)
            .build();
        let region = config.region().map(ToString::to_string).unwrap_or_default();
        let config = config::Builder::from(config).retry_config(retries()).timeout_config(timeouts);
        let client = Client::from_conf(config.build());
        Self {
            client,
            region,
            options,
            good: Mutex::default(),
            reasons: Mutex::default(),
            subnets: Subnets::default(),
            shortages: Shortages::default(),
        }
    }

    /// Returns the change that would make a class's launch template equal to its spec, and the differing fields;
    /// nothing is changed.
    ///
    /// # Errors
    /// Its spec or its template cannot be used, or EC2 cannot be reached.
    pub async fn examine_template(
        &self,
        spec: &PoolSpec,
    ) -> Result<(TemplateChange, Vec<Difference>), ComputeError> {
        self.templates().examine(spec).await
    }

    /// Keeps a class's launch template equal to its spec.
    ///
    /// # Errors
    /// Its spec or its template cannot be used, or EC2 cannot be reached.
    pub async fn ensure_template(&self, spec: &PoolSpec) -> Result<TemplateChange, ComputeError> {
        self.templates().ensure(spec, None).await.map(|(_, change)| change)
    }

    /// Checks that there are a runner package and an agent for a class's machines.
    ///
    /// # Errors
    /// The key of the operator's file that lacks one.
    pub fn check_packages(&self, spec: &PoolSpec) -> Result<(), ComputeError> {
        self.templates().check_packages(spec)
    }

    /// Describes the subnets and security groups of a class at EC2.
    ///
    /// # Errors
    /// EC2 cannot be reached, or denies the call.
    pub async fn network(&self, spec: &PoolSpec) -> Result<Network, ComputeError> {
        subnets::network(&self.client, spec).await
    }

    fn templates(&self) -> Templates<'_> {
        Templates { client: &self.client, options: &self.options }
    }

    fn good(&self) -> MutexGuard<'_, BTreeMap<ClassName, Good>> {
        self.good.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn template(&self, order: &LaunchOrder) -> Result<Template, ComputeError> {
        let spec = &order.spec;
        let wanted = (spec.launch.clone(), order.image.clone());
        if let Some(good) = self.good().get(&spec.resource_class)
            && good.wanted == wanted
            && Instant::now() < good.until
        {
            return Ok(good.template.clone());
        }
        let (template, _) = self.templates().ensure(spec, order.image.as_deref()).await?;
        let until = Instant::now() + KNOWN_GOOD;
        let good = Good { wanted, template: template.clone(), until };
        self.good().insert(spec.resource_class.clone(), good);
        Ok(template)
    }

    /// Returns every matching instance, over all pages, without duplicates.
    async fn instances(&self, which: &Which) -> Result<Vec<Machine>, CallError> {
        let asked = self.client.describe_instances().set_filters(Some(which.filters())).into_paginator();
        let mut pages = asked.page_size(PAGE).send();
        let mut found = BTreeMap::new();
        while let Some(page) = pages.next().await {
            let reservations = page.map_err(|error| CallError::of(&error))?.reservations.unwrap_or_default();
            self.remember(&reservations);
            let machines = machine::machines(&self.region, which, reservations);
            found.extend(machines.into_iter().map(|machine| (machine.id.clone(), machine)));
        }
        Ok(found.into_values().collect())
    }

    /// Caches the end reasons of machines; EC2 itself drops them within the hour.
    fn remember(&self, reservations: &[Reservation]) {
        let instances = reservations.iter().flat_map(|reservation| reservation.instances());
        let mut reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        reasons.extend(instances.filter_map(machine::state_reason));
        while reasons.len() > REASONS {
            reasons.pop_first();
        }
    }

    /// Describes machines with a filter, which omits unknown ones; a request by id would be refused as a whole.
    async fn known<'a>(&self, ids: impl Iterator<Item = &'a str>) -> Result<Vec<Machine>, CallError> {
        let ids: Vec<String> = ids.map(str::to_owned).collect();
        let mut found = Vec::new();
        for some in ids.chunks(VALUES) {
            found.extend(self.instances(&Which::Ids(some.to_vec())).await?);
        }
        Ok(found)
    }
}

#[async_trait]
impl Compute for Ec2Compute {
    fn keeps_inventory(&self) -> bool {
        true
    }

    fn why_ended(&self, id: &InstanceId) -> Option<StateReason> {
        self.reasons.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    async fn launch(&self, order: &LaunchOrder) -> Result<Launched, ComputeError> {
        let count = order.launch.count;
        if !(1..=LAUNCH_LIMIT).contains(&count) {
            let why = format!("{count} machines in one launch, 1 to {LAUNCH_LIMIT} are possible");
            return Err(ComputeError::Refused(why));
        }
        let template = self.template(order).await?;
        let (usage, types) = (order.launch.usage_class, &order.types.0);
        let subnets = self.subnets.of(&self.client, &order.spec).await?;
        let subnets = self.shortages.subnets(usage, types, subnets);
        let zones = subnets.iter().filter_map(|(_, zone)| zone.clone()).collect();
        let asked = self.shortages.types(usage, types, &zones);
        let subnets: Vec<String> = subnets.into_iter().map(|(id, _)| id).collect();
        let call = fleet::request(&self.options.table, order, &template, &asked, &subnets);
        let error = match call.send_with(&self.client).await {
            Ok(answer) => {
                let lacks = fleet::lacks(answer.errors(), |subnet| self.subnets.zone(subnet));
                let came = fleet::named(&answer).into_iter().map(|named| (named.instance_type, named.zone));
                self.shortages.note(usage, types, &lacks, &came.collect::<Vec<_>>());
                return self.read(order, &answer).await;
            }
            Err(error) => CallError::of(&error),
        };
        match error.meaning {
            Meaning::TokenSpent => {
                let found = self.find_by_tags(&order.launch).await.map_err(outcome_unknown)?;
                fleet_results::whole(order, found, error.text).map_err(ComputeError::TokenSpent)
            }
            Meaning::NoSuchTemplate => {
                self.good().remove(&order.spec.resource_class);
                Err(error.into())
            }
            Meaning::NoCapacity
            | Meaning::Throttled
            | Meaning::Refused
            | Meaning::NoSuchInstance
            | Meaning::Protected
            | Meaning::TemplateExists
            | Meaning::Unknown => Err(error.into()),
        }
    }

    async fn check(&self, spec: &PoolSpec) -> Result<(), ComputeError> {
        self.templates().check_packages(spec)?;
        self.templates().examine(spec).await.map(|_| ())
    }

    async fn resolve(&self, spec: &PoolSpec) -> Result<String, ComputeError> {
        self.templates().resolve(spec).await
    }

    async fn terminate(&self, ids: &[InstanceId]) -> Result<(), ComputeError> {
        terminate::terminate(&self.client, ids).await
    }

    async fn describe(&self, ids: &[InstanceId]) -> Result<BTreeMap<InstanceId, MachineState>, ComputeError> {
        let known = self.known(ids.iter().map(InstanceId::as_str)).await?;
        Ok(known.into_iter().map(|machine| (machine.id, machine.state)).collect())
    }

    async fn console(&self, id: &InstanceId) -> Result<Option<String>, ComputeError> {
        console::read(&self.client, id).await
    }

    async fn list(&self) -> Result<Vec<Machine>, ComputeError> {
        let ours = Which::Tagged(vec![(TABLE, self.options.table.to_string())]);
        Ok(self.instances(&ours).await?)
    }
}

#[cfg(test)]
pub(super) mod testing;
