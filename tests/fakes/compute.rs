//! Machines that are only spoken of: launches with tokens, shortfalls, lists that lag behind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;

use super::script::{Fault, Script, locked};
use runyard_core::model::{InstanceArn, InstanceId, InstanceTypes, PoolSpec};
use runyard_core::ports::{
    Clock, Compute, ComputeError, Entropy, LaunchOrder, Launched, Machine, MachineState, Shortfall,
};

/// The code of what cannot be had (EC2).
const NO_CAPACITY: &str = "InsufficientInstanceCapacity";

/// Compute in memory. Clones share it.
#[derive(Clone)]
pub struct FakeCompute(Arc<Inner>);

struct Inner {
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    faults: Script<ComputeError>,
    yard: Mutex<Yard>,
}

struct Yard {
    machines: BTreeMap<InstanceId, (Machine, Duration)>,
    tokens: BTreeMap<String, (LaunchOrder, BTreeSet<InstanceId>)>,
    orders: Vec<LaunchOrder>,
    terminations: Vec<InstanceId>,
    capacity: Option<u32>,
    lag: Duration,
    inventory: bool,
    checked: Vec<PoolSpec>,
    images: BTreeMap<String, String>,
    resolved: Vec<PoolSpec>,
    consoles: BTreeMap<InstanceId, (String, Duration)>,
    consoles_read: Vec<InstanceId>,
    /// What it says to every order that names this glob.
    refused: BTreeMap<String, String>,
}

impl FakeCompute {
    /// No machines yet, and as much capacity as anyone wants.
    pub fn new(clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        let yard = Yard {
            machines: BTreeMap::new(),
            tokens: BTreeMap::new(),
            orders: Vec::new(),
            terminations: Vec::new(),
            capacity: None,
            lag: Duration::ZERO,
            inventory: true,
            checked: Vec::new(),
            images: BTreeMap::new(),
            resolved: Vec::new(),
            consoles: BTreeMap::new(),
            consoles_read: Vec::new(),
            refused: BTreeMap::new(),
        };
        Self(Arc::new(Inner { clock, entropy, faults: Script::default(), yard: Mutex::new(yard) }))
    }

    /// What the next call meets; several stand in line.
    pub fn next(&self, fault: Fault<ComputeError>) {
        self.0.faults.add(fault);
    }

    /// Forgets the faults that nothing has met yet.
    pub fn heal(&self) {
        self.0.faults.clear();
    }

    /// How many more machines can be had; none for no limit.
    pub fn capacity(&self, machines: Option<u32>) {
        locked(&self.0.yard).capacity = machines;
    }

    /// Refuses every order that names this glob of types, with these words.
    pub fn refuse(&self, glob: &str, words: &str) {
        locked(&self.0.yard).refused.insert(glob.to_owned(), words.to_owned());
    }

    /// How long a new machine is missing from lists and descriptions.
    pub fn lists_lag(&self, by: Duration) {
        locked(&self.0.yard).lag = by;
    }

    /// Whether lists are complete (`Compute::keeps_inventory`).
    pub fn inventory(&self, kept: bool) {
        locked(&self.0.yard).inventory = kept;
    }

    /// Puts a machine there that nobody asked for, or another one in its place.
    pub fn put(&self, machine: Machine) {
        let seen = self.0.clock.elapsed();
        locked(&self.0.yard).machines.insert(machine.id.clone(), (machine, seen));
    }

    /// Sets where a machine stands: a spot loss, a stop, a long shutting down.
    pub fn set_state(&self, id: &InstanceId, state: MachineState) {
        if let Some((machine, _)) = locked(&self.0.yard).machines.get_mut(id) {
            machine.state = state;
        }
    }

    /// Forgets a machine, as EC2 does an hour after its end.
    pub fn forget(&self, id: &InstanceId) {
        locked(&self.0.yard).machines.remove(id);
    }

    /// Every machine that is there, whatever lists say.
    pub fn machines(&self) -> Vec<Machine> {
        locked(&self.0.yard).machines.values().map(|(machine, _)| machine.clone()).collect()
    }

    /// Every launch that was asked for, repetitions included.
    pub fn orders(&self) -> Vec<LaunchOrder> {
        locked(&self.0.yard).orders.clone()
    }

    /// Every spec it was asked about before anything was launched of it.
    pub fn checked(&self) -> Vec<PoolSpec> {
        locked(&self.0.yard).checked.clone()
    }

    /// What a parameter names from now on.
    pub fn image(&self, parameter: &str, image: &str) {
        locked(&self.0.yard).images.insert(parameter.to_owned(), image.to_owned());
    }

    /// Every spec whose image was asked for.
    pub fn resolved(&self) -> Vec<PoolSpec> {
        locked(&self.0.yard).resolved.clone()
    }

    /// Every machine that was to be ended, repetitions included.
    pub fn terminations(&self) -> Vec<InstanceId> {
        locked(&self.0.yard).terminations.clone()
    }

    /// What a machine has on its console, as its provider has it only `late` from now.
    pub fn console_says(&self, id: &InstanceId, text: &str, late: Duration) {
        let from = self.0.clock.elapsed() + late;
        locked(&self.0.yard).consoles.insert(id.clone(), (text.to_owned(), from));
    }

    /// Every console that was read, repetitions included.
    pub fn consoles_read(&self) -> Vec<InstanceId> {
        locked(&self.0.yard).consoles_read.clone()
    }

    fn bring(&self, order: &LaunchOrder) -> Result<Launched, ComputeError> {
        let mut yard = locked(&self.0.yard);
        yard.orders.push(order.clone());
        if let Some((first, ids)) = yard.tokens.get(&order.launch.client_token) {
            if !same_parameters(first, order) {
                let token = order.launch.client_token.clone();
                return Err(ComputeError::TokenSpent(token));
            }
            let machines =
                ids.iter().filter_map(|id| yard.machines.get(id)).map(|(m, _)| m.clone()).collect();
            return Ok(Launched { machines, shortfalls: Vec::new() });
        }
        if let Some(words) = order.types.0.iter().find_map(|glob| yard.refused.get(glob)) {
            return Err(ComputeError::Refused(words.clone()));
        }
        let wanted = order.launch.count;
        let had = yard.capacity.map_or(wanted, |capacity| capacity.min(wanted));
        yard.capacity = yard.capacity.map(|capacity| capacity - had);
        if had == 0 {
            return Err(ComputeError::NoCapacity(NO_CAPACITY.into()));
        }
        let machines: Vec<_> = (0..had).map(|_| self.machine(order)).collect();
        let ids = machines.iter().map(|machine| machine.id.clone()).collect();
        yard.tokens.insert(order.launch.client_token.clone(), (order.clone(), ids));
        let seen = self.0.clock.elapsed() + yard.lag;
        yard.machines.extend(machines.iter().map(|machine| (machine.id.clone(), (machine.clone(), seen))));
        let short = Shortfall { code: NO_CAPACITY.into(), message: format!("{had} of {wanted}") };
        Ok(Launched { machines, shortfalls: if had < wanted { vec![short] } else { Vec::new() } })
    }

    fn machine(&self, order: &LaunchOrder) -> Machine {
        let id =
            InstanceId::parse(&format!("i-0{}", self.0.entropy.hex())).expect("hexadecimal digits are an id");
        let plain = order.types.0.iter().find(|glob| !glob.contains('*'));
        Machine {
            arn: InstanceArn::local(&id),
            id,
            class: Some(order.launch.resource_class.clone()),
            launch: Some(order.launch.launch_id.clone()),
            attempt: order.launch.attempt,
            instance_type: plain.cloned().unwrap_or_else(|| fitting(&order.types)),
            usage_class: order.launch.usage_class,
            cpu: order.spec.cpu,
            mmem: order.spec.mmem,
            zone: "local-a".into(),
            state: MachineState::Running,
            launched_at: self.0.clock.now(),
        }
    }

    fn visible(&self) -> Vec<Machine> {
        let now = self.0.clock.elapsed();
        let yard = locked(&self.0.yard);
        yard.machines.values().filter(|(_, seen)| *seen <= now).map(|(machine, _)| machine.clone()).collect()
    }
}

/// A type that the order accepts.
fn fitting(types: &InstanceTypes) -> String {
    let usual = "m7i.large";
    let other = types.0.first().filter(|_| !types.accept(usual)).map(|glob| glob.replace('*', "large"));
    other.unwrap_or_else(|| usual.into())
}

/// Whether a token may be used again for this order: all that EC2 would be told is the same.
fn same_parameters(a: &LaunchOrder, b: &LaunchOrder) -> bool {
    let told = |order: &LaunchOrder| {
        let LaunchOrder { launch, spec, types, image } = order.clone();
        let (size, asked) =
            ((spec.cpu, spec.mmem), (launch.resource_class, launch.usage_class, launch.count));
        (asked, size, spec.launch, types, image)
    };
    told(a) == told(b)
}

#[async_trait]
impl Compute for FakeCompute {
    fn keeps_inventory(&self) -> bool {
        locked(&self.0.yard).inventory
    }

    async fn launch(&self, order: &LaunchOrder) -> Result<Launched, ComputeError> {
        let exit = self.0.faults.enter()?;
        exit.answer(self.bring(order))
    }

    async fn check(&self, spec: &PoolSpec) -> Result<(), ComputeError> {
        locked(&self.0.yard).checked.push(spec.clone());
        Ok(())
    }

    async fn resolve(&self, spec: &PoolSpec) -> Result<String, ComputeError> {
        let exit = self.0.faults.enter()?;
        let mut yard = locked(&self.0.yard);
        yard.resolved.push(spec.clone());
        let parameter = spec.launch.parameter().unwrap_or_default();
        let named = yard.images.get(parameter).cloned();
        exit.answer(named.ok_or_else(|| ComputeError::Refused(format!("no parameter {parameter}"))))
    }

    async fn terminate(&self, ids: &[InstanceId]) -> Result<(), ComputeError> {
        let exit = self.0.faults.enter()?;
        let mut yard = locked(&self.0.yard);
        for id in ids {
            yard.terminations.push(id.clone());
            if let Some((machine, _)) = yard.machines.get_mut(id) {
                machine.state = MachineState::Terminated;
            }
        }
        exit.answer(Ok(()))
    }

    async fn describe(&self, ids: &[InstanceId]) -> Result<BTreeMap<InstanceId, MachineState>, ComputeError> {
        let exit = self.0.faults.enter()?;
        let known = self.visible().into_iter().filter(|machine| ids.contains(&machine.id));
        exit.answer(Ok(known.map(|machine| (machine.id, machine.state)).collect()))
    }

    /// Empty until its provider has posted it, as EC2's is. Faults are for calls that decide something.
    async fn console(&self, id: &InstanceId) -> Result<Option<String>, ComputeError> {
        let now = self.0.clock.elapsed();
        let mut yard = locked(&self.0.yard);
        yard.consoles_read.push(id.clone());
        let posted = yard.consoles.get(id).filter(|(_, from)| *from <= now);
        Ok(posted.map(|(text, _)| text.clone()))
    }

    async fn list(&self) -> Result<Vec<Machine>, ComputeError> {
        let exit = self.0.faults.enter()?;
        exit.answer(Ok(self.visible()))
    }
}
