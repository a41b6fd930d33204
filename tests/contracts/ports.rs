//! Does what we built on behave as the ports promise? One suite for each port, run on the stand-in and on real engines:
//! a stand-in may be trusted because it passes what the real thing passes.

mod doorbell;
mod dynamo;
mod job_bell;
mod listed;
mod listing;
mod notices;
mod queue;
mod shards;
mod store;
mod wire;
