//! What if the operator dies at this very call, or hears nothing, or hears what was true a moment ago? Reference
//! workloads are run once and every call is noted; then once more for each call and each way in which it can go wrong.
//! Every one of these runs must end as the reference did (after Sieve's differential oracle).
//!
//! A failing plan is repeated, with its calls and its last records, by `PLAN=workload:number:kind`; random pairs of
//! plans by `PAIRS=count SEED=n cargo test --test faults crash_plans:: -- --ignored --nocapture`.

mod down;
mod drive;
mod found;
mod history;
mod oracle;
mod outage;
mod pairs;
mod plan;
mod ports;
mod recorder;
mod sets_port;
mod singles;
mod workloads;
