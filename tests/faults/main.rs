//! What if anything goes wrong at any moment? The operator, the agent and the commands of production in simulated time,
//! with every fault at every call; and whatever comes from outside, bent out of shape.

#![allow(clippy::unwrap_used, reason = "what a test needs and does not get fails it")]

mod crash_plans;
mod fuzz;
mod simulation;
