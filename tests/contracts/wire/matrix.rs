//! The matrix: every call of every adapter × every fault of the wire, once and for ever. One row a call, one letter a
//! fault, in this order:
//!
//! refused, reset before, reset after, truncated, 500, 503, throttled, silence, HTML, another service's words
//!
//! `.` it is asked again underneath and succeeds; `u` nobody knows (unknown, unreachable); `t` throttled; `d` denied;
//! `i` invalid; `0` a plain success that says nothing, where nothing is what a lost answer means; `-` cannot be. What
//! was to be done is done at most once in every cell, but for announcements, which may be doubled.

/// One row: the call, what comes of a fault that happens once, and of one that lasts.
pub(crate) type Row = (&'static str, &'static str, &'static str);

pub(crate) const DYNAMODB: [Row; 10] = [
    ("get", "-.......uu", "uuuuuutuuu"),
    ("list", "-.......uu", "uuuuuutuuu"),
    ("query", "-.......uu", "uuuuuutuuu"),
    ("write", "-.......uu", "uuuuuutuuu"),
    ("transact", "-.......uu", "uuuuuutuuu"),
    ("append", "-.......uu", "uuuuuu0uuu"),
    // The stream: opening a watch, and reading it.
    ("describe_table", "-.......uu", "uuuuuutuuu"),
    ("describe_stream", "-.......uu", "uuuuuutuuu"),
    ("shard_iterator", "-.......uu", "uuuuuutuuu"),
    ("records", "-.......uu", "uuuuuutuuu"),
];

pub(crate) const SQS: [Row; 10] = [
    ("announce", "-.......uu", "uuuuuutuuu"),
    ("receive", "-.......uu", "uuuuuutuuu"),
    ("delete", "-.......uu", "uuuuuutuuu"),
    ("bury", "-.......uu", "uuuuuutuuu"),
    ("address", "-.......uu", "uuuuuutuuu"),
    ("ensure", "-.......uu", "uuuuuutuuu"),
    // EC2's notices.
    ("notices", "-.......uu", "uuuuuutuuu"),
    ("acknowledge", "-.......uu", "uuuuuutuuu"),
    // GitHub's queued jobs; what was heard counts, whether or not it could be deleted.
    ("jobs", "-.......uu", "uuuuuutuuu"),
    ("forget", "-.........", "u........."),
];

/// 503 is how EC2 says that calls are too many.
pub(crate) const EC2: [Row; 5] = [
    ("launch", "-.......uu", "uuuuuttuuu"),
    // The same, where it is the question for the subnets' zones that goes wrong.
    ("zones", "-.......uu", "uuuuuttuuu"),
    ("terminate", "-.......uu", "uuuuuttuuu"),
    ("describe", "-.......uu", "uuuuuttuuu"),
    ("list", "-.......uu", "uuuuuttuuu"),
];

/// Nothing is asked again underneath; the next judgement asks. That nothing is left of a runner needs no body.
pub(crate) const GITHUB: [Row; 14] = [
    ("registration_token", "-uuuuutuuu", "uuuuuutuuu"),
    ("removal_token", "-uuuuutuuu", "uuuuuutuuu"),
    ("job_config", "-uuuuutuuu", "uuuuuutuuu"),
    ("runner_group", "-uuuuutuuu", "uuuuuutuuu"),
    ("runner", "-uuuuutuuu", "uuuuuutuuu"),
    ("runner_by_id", "-uuuuutuuu", "uuuuuutuuu"),
    ("runners", "-uuuuutuuu", "uuuuuutuuu"),
    ("end_of_life", "-uuuuutuuu", "uuuuuutuuu"),
    ("runner_applications", "-uuuuutuuu", "uuuuuutuuu"),
    ("remove_runner", "-uu.uutuuu", "uuu.uutuuu"),
    ("run", "-uuuuutuuu", "uuuuuutuuu"),
    ("open_runs", "-uuuuutuuu", "uuuuuutuuu"),
    ("run_jobs", "-uuuuutuuu", "uuuuuutuuu"),
    ("rerun_failed_jobs", "-uuuuutuuu", "uuuuuutuuu"),
];

/// The service of scale sets. Nothing is asked again underneath but a call whose token was refused.
pub(crate) const SCALE_SETS: [Row; 15] = [
    ("find", "-uuuuutuuu", "uuuuuutuuu"),
    ("create", "-uuuuutuuu", "uuuuuutuuu"),
    ("update", "-uuuuutuuu", "uuuuuutuuu"),
    ("delete", "-uu.uutuuu", "uuu.uutuuu"),
    ("group", "-uuuuutuuu", "uuuuuutuuu"),
    ("open", "-uuuuutuuu", "uuuuuutuuu"),
    ("renew", "-uuuuutuuu", "uuuuuutuuu"),
    ("close", "-uu.uutuuu", "uuu.uutuuu"),
    ("message", "-uuuuutuuu", "uuuuuutuuu"),
    ("delete_message", "-uu.uutuuu", "uuu.uutuuu"),
    ("acquire", "-uuuuutuuu", "uuuuuutuuu"),
    ("job_config", "-uuuuutuuu", "uuuuuutuuu"),
    ("runner", "-uuuuutuuu", "uuuuuutuuu"),
    ("runner_by_id", "-uuuuutuuu", "uuuuuutuuu"),
    ("remove_runner", "-uu.uutuuu", "uuu.uutuuu"),
];
