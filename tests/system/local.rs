//! Does local mode keep its word? The real programs, as a person runs them: the demonstration, and a yard that is
//! killed, stopped and started again.

mod demo;
mod held;
mod programs;
mod trial;
mod up;
