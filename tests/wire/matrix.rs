//! The matrix: every call of every adapter × every fault of the wire, once and for ever. One row a call, one letter a
//! fault, in this order:
//!
//! refused, reset before, reset after, truncated, 500, 503, throttled, silence, HTML, another service's words
//!
//! `.` it is asked again underneath and succeeds; `u` nobody knows (unknown, unreachable); `t` throttled; `d` denied;
//! `i` invalid; `0` a plain success that says nothing, where nothing is what a lost answer means; `-` cannot be. What was
//! to be done is done at most once in every cell, but for announcements, which may be doubled.

/// One row: the call, what comes of a fault that happens once, and of one that lasts.
pub(crate) type Row = (&'static str, &'static str, &'static str);

pub(crate) const DYNAMODB: [Row; 6] = [
    ("get", "", ""),
    ("list", "", ""),
    ("query", "", ""),
    ("write", "", ""),
    ("transact", "", ""),
    ("append", "", ""),
];

pub(crate) const SQS: [Row; 5] =
    [("announce", "", ""), ("receive", "", ""), ("delete", "", ""), ("give_back", "", ""), ("bury", "", "")];

pub(crate) const EC2: [Row; 4] =
    [("launch", "", ""), ("terminate", "", ""), ("describe", "", ""), ("list", "", "")];

pub(crate) const GITHUB: [Row; 8] = [
    ("registration_token", "", ""),
    ("removal_token", "", ""),
    ("job_config", "", ""),
    ("runner_group", "", ""),
    ("runner", "", ""),
    ("runners", "", ""),
    ("remove_runner", "", ""),
    ("run", "", ""),
];
