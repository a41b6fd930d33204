//! Three workflow runs through the whole life of their machines.

mod checks;
mod ending;
mod facts;
mod journal;
mod plan;
mod results;
mod stage;
mod timeline;
