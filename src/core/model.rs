//! The domain model: records, states, signals and ids, how they are stored, and which changes of state are legal.
//! Nothing here reads a clock or does I/O. Values are parsed here once and are types everywhere else.

pub mod history;
mod launch;
mod machine;
mod pool;
mod record;
mod request;
mod scale_set;
mod timing;

pub use launch::{LAUNCH_LIMIT, Launch, LaunchPhase};
pub use machine::agent::claim_proof::{ClaimEnd, ClaimProof, ClaimRunner, CleaningItem, Finding};
pub use machine::agent::{
    Agent, Interruption, InterruptionAction, JobReport, Rebalance, RetireReport, RunnerTrouble, TroubleKind,
};
pub use machine::ahead::{Ahead, AheadReport};
pub(crate) use machine::console::says_why;
pub use machine::console::{console_lines, last_console_line};
pub use machine::hold::{Hold, MAX_HOLD_SECONDS};
pub use machine::instance::{Instance, InstanceFacts, Registration};
pub use machine::jobs::{Containers, Jobs};
pub use machine::keep::{
    HOME, Keep, KeepScope, Kept, KeptDirectories, MOST_KEPT, MOST_REPORTED, Promotion, WriteFrom,
    kept_attribute, kept_of,
};
pub use machine::life::{Claim, Life, Threshold};
pub use machine::message::PoolMessage;
pub use machine::notice::{News, Notice, read_notices};
pub use machine::registration::{AgentKey, RegistrationCredential, RemovalCredential, SealError, seal};
pub use machine::runner_package::{Adoption, HeldBack, RunnerPackage, RunnerTrial, origin_of};
pub use machine::transition::{Cause, Place, TRANSITIONS, Transition, legal};
pub use machine::variable::variable_refusal;
pub use pool::drift::{drift, launch_digest, pool_launch_digest};
pub use pool::launch_template::{LaunchTemplate, PinnedImage, Volume};
pub use pool::place::AheadPlace;
pub use pool::queue::{Queue, SetScope, of_run};
pub use pool::registered_ahead::{AheadOff, AheadStatus, RegisteredAhead};
pub use pool::replacement::{Hours, Replacement};
pub use pool::schedule::Schedule;
pub(crate) use pool::schedule::{Scheduled, Schedules};
pub use pool::selector::{InstanceTypes, matches};
pub use pool::sharing::{
    HalfLife, MOST_GLOBS, MOST_RESERVE, MOST_WEIGHT, Priority, Quota, SHARES_NAMED, ShareBy, Sharing, Usage,
    YardSharing, closest,
};
pub use pool::sizing::{
    Bins, DEMAND_STALE, Demand, HOURS, Level, MOST_NEED, Money, PACE_LEVELS, Pace, SizedDesired, Sizing,
    WaitTarget,
};
pub use pool::{
    Counts, IDLE_SECONDS, IdleMachines, LEAST_IDLE_SECONDS, LabelMode, Pool, PoolOverride, PoolSpec,
    PoolStatus,
};
pub use record::bounds::{MOST_MACHINES, MOST_RECORD_BYTES, bounded};
pub use record::condition::{Condition, ConditionType};
pub use record::event::{Event, EventType};
pub use record::field::FieldError;
pub use record::identity::{Key, Kind, RecordId, kind_of};
pub use record::ids::{
    ClaimId, ClassName, DOORBELL, INTERRUPTIONS, InstanceArn, InstanceId, JOBS, LabelSuffix, LaunchId,
    Repository, RequestKey, RequestName, RunId, TableName, Uid,
};
pub use record::item::{AttributeValue, Item, text_of, time_of};
pub use record::lease::Lease;
pub use record::ring::{ring_body, rung_about};
pub use record::set_place::SetPlace;
pub use record::slot::Slot;
#[doc(hidden)]
pub use record::state::words;
pub use record::state::{Reason, RegistrationMode, ReuseWithin, Signal, State, UsageClass};
pub use record::stored::{Guard, Operation, Write};
pub(crate) use record::time::after;
pub use record::time::{Seconds, millis};
pub use record::{Reading, Record, SCHEMA, Unreadable, Versioned, read};
pub use request::job_ring::{JobRing, LARGEST_JOB_RING, NotAJobRing, read_job_ring};
pub use request::{
    Asked, Desired, Intent, LONGEST_RUNTIME_MINUTES, LONGEST_TIMEOUT_SECONDS, NewIntent, Phase, ReadySource,
    ReleasedBy, Request, Status, TIMEOUT_SECONDS, UNWATCHED_RUNTIME_MINUTES, WATCHED_RUNTIME_MINUTES,
    claim_of_runner, label, machine_of_runner, release, runner_name,
};
pub use scale_set::{SetCounts, SetRecord, SetState, slot_number};
pub use timing::{ANNOUNCED, QUICK_WHILE_FREE, Timing};
