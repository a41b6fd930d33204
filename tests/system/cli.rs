//! Does the program keep its word? The real binary against a real engine on loopback: what it writes, what it says,
//! and with which code it ends.

mod check_workflow;
mod endpoints;
mod manage;
mod pools;
mod provision;
mod read;
mod release;
mod usage;
mod verbs;
mod yard;
