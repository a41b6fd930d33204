//! The services that the core needs from outside, in the terms of the model. Each port has one small error enum whose
//! variants are the distinctions that callers act on; nothing here does any I/O.

pub mod clock;
pub mod compute;
pub mod doorbell;
pub mod github;
pub mod notices;
pub mod queue;
pub mod scale_sets;
pub mod signer;
pub mod store;

pub use clock::{Clock, Entropy};
pub use compute::{
    Compute, ComputeError, LaunchOrder, Launched, Machine, MachineState, Shortfall, StateReason,
};
pub use doorbell::{Doorbell, JobBell, JobRings, Ring, Ringer};
pub use github::{GitHub, GitHubError};
pub use notices::{Batch, Delivery, Notices};
pub use queue::{PoolQueue, QueueDepth, QueueError, Received};
pub use scale_sets::{ScaleSetError, ScaleSets};
pub use signer::Signer;
pub use store::{Change, Page, Refusal, Store, StoreError, Watch};
