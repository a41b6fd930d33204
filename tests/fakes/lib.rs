//! Stand-ins for the outside, in memory, for tests and simulations: each behaves like the real thing as far as the
//! contract suites can tell, and can be made to fail in the ways the real thing does.

mod clock;
mod compute;
mod entropy;
mod github;
mod job_bell;
mod notices;
mod policy;
mod queue;
mod scale_sets;
mod script;
mod signer;
mod store;

pub use clock::{ManualClock, TokioClock};
pub use compute::FakeCompute;
pub use entropy::SeededEntropy;
pub use github::{FakeGitHub, queued_job};
pub use job_bell::MemoryJobBell;
pub use notices::MemoryNotices;
pub use policy::{a_minute_each, as_shipped};
pub use queue::MemoryQueue;
pub use scale_sets::FakeScaleSets;
pub use script::Fault;
pub use signer::PaperKey;
pub use store::MemoryStore;
