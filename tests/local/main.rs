//! Does local mode keep its word? The real programs, as a person runs them: the demonstration, and a yard that is
//! killed, stopped and started again.

#![expect(clippy::unwrap_used, reason = "a test may panic anywhere, in its helpers too")]

mod demo;
mod programs;
mod up;
