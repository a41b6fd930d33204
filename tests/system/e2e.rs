//! Does it hold with real processes? The programs as they are shipped, a real engine behind HTTP, and `kill -9`: one
//! file per promise, and at the end of each the whole history of the table is held against the contract.

mod by_label;
mod by_scale_set;
mod demo;
mod fallback;
pub(crate) mod history;
pub(crate) mod home;
mod jobs_run_again;
mod kill_nine;
mod killed_under_load;
mod operators;
pub(crate) mod own_github;
pub(crate) mod program;
mod registered_ahead;
mod reuse;
mod runner_adopted;
mod simulator;
mod standin;
mod two_operators;
mod up_as_a_new_user;
pub(crate) mod waiting;
mod workflow;
