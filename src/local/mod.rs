//! One machine as the whole yard: an embedded DynamoDB engine, machines as child processes, a stand-in GitHub. For
//! trying, developing, and the one build machine in a cupboard; the operator and the agent are the same as on AWS.

pub mod compute;
pub mod demo;
pub mod engine;
pub mod process;
pub mod pulse;
pub mod setup;
pub mod site;
pub mod standin;
pub mod up;

mod door;
mod files;
pub(crate) mod options;
mod port;
