//! The nouns: records, states, signals and ids, how they are stored, and which changes of state are legal. Nothing here
//! reads a clock or does I/O. Values are parsed here once and are types everywhere else.

mod agent;
mod ahead;
mod ahead_lacks;
mod bounds;
mod condition;
mod console;
mod drift;
mod event;
mod field;
pub mod history;
mod hold;
mod identity;
mod ids;
mod instance;
mod item;
mod jobs;
mod keep;
mod launch;
mod launch_template;
mod lease;
mod life;
mod message;
mod notice;
mod place;
mod pool;
mod record;
mod registered_ahead;
mod registration;
mod replacement;
mod request;
mod reuse;
mod runner_package;
mod selector;
mod sharing;
mod sizing;
mod slot;
mod span;
mod state;
mod stored;
mod text;
mod time;
mod timing;
mod transition;
mod variable;

pub use agent::{Agent, Interruption, InterruptionAction, Rebalance, RunnerTrouble, TroubleKind};
pub use ahead::{Ahead, AheadReport};
pub use bounds::{MOST_RECORD_BYTES, bounded};
pub use condition::{Condition, ConditionType};
pub(crate) use console::says_why;
pub use console::{console_lines, last_console_line};
pub use drift::{drift, launch_digest, pool_launch_digest};
pub use event::{Event, EventType};
pub use field::FieldError;
pub use hold::{Hold, MAX_HOLD_SECONDS};
pub use identity::{Key, Kind, RecordId, kind_of};
pub use ids::{
    ClaimId, ClassName, DOORBELL, INTERRUPTIONS, InstanceArn, InstanceId, LabelSuffix, LaunchId, Repository,
    RequestKey, RequestName, RunId, TableName, Uid,
};
pub use instance::{Instance, InstanceFacts, Registration};
pub use item::{AttributeValue, Item, text_of, time_of};
pub use jobs::{Containers, Jobs};
pub use keep::{
    HOME, Keep, KeepScope, Kept, KeptDirectories, MOST_KEPT, MOST_REPORTED, Promotion, WriteFrom,
    kept_attribute, kept_of,
};
pub use launch::{LAUNCH_LIMIT, Launch, LaunchPhase};
pub use launch_template::{LaunchTemplate, PinnedImage, Volume};
pub use lease::Lease;
pub use life::{Claim, Life, Threshold};
pub use message::PoolMessage;
pub use notice::{News, Notice, read_notices};
pub use place::AheadPlace;
pub use pool::{
    Counts, IDLE_SECONDS, IdleMachines, LEAST_IDLE_SECONDS, LabelMode, Pool, PoolOverride, PoolSpec,
    PoolStatus, Schedule,
};
pub use record::{Reading, Record, SCHEMA, Unreadable, Versioned, read};
pub use registered_ahead::{AheadOff, AheadStatus, RegisteredAhead};
pub use registration::{AgentKey, RegistrationCredential, RemovalCredential, SealError, seal};
pub use replacement::{Hours, Replacement};
pub use request::{
    Desired, Intent, LONGEST_RUNTIME_MINUTES, LONGEST_TIMEOUT_SECONDS, MOST_MACHINES, NewIntent, Phase,
    ReleasedBy, Request, Status, TIMEOUT_SECONDS, UNWATCHED_RUNTIME_MINUTES, WATCHED_RUNTIME_MINUTES, label,
    release, runner_name,
};
pub use runner_package::{Adoption, HeldBack, RunnerPackage, RunnerTrial, origin_of};
pub use selector::{InstanceTypes, matches};
pub use sharing::{
    HalfLife, MOST_GLOBS, MOST_RESERVE, MOST_WEIGHT, Priority, Quota, SHARES_NAMED, ShareBy, Sharing, Usage,
    YardSharing, closest,
};
pub use sizing::{
    Bins, DEMAND_STALE, Demand, HOURS, Level, MOST_NEED, Money, PACE_LEVELS, Pace, SizedDesired, Sizing,
    WaitTarget,
};
pub use slot::Slot;
#[doc(hidden)]
pub use state::words;
pub use state::{Reason, RegistrationMode, ReuseWithin, Signal, State, UsageClass};
pub use stored::{Guard, Operation, Write};
pub(crate) use time::after;
pub use time::{Seconds, millis};
pub use timing::Timing;
pub use transition::{Cause, Place, TRANSITIONS, Transition, legal};
pub use variable::variable_refusal;
