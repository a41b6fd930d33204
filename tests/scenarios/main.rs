//! The operator in paused time, on fakes of every port, with agents that follow the contract: one file per question a
//! person on call might ask.

#![allow(clippy::unwrap_used, reason = "in a test an unwrap is an assertion")]

mod a_boot_hangs;
mod a_class_is_made_anew;
mod a_label_is_enough;
mod a_line_of_requests;
mod a_machine_falls_silent;
mod a_machine_is_interrupted;
mod a_machine_is_lost_at_its_provider;
mod a_machine_is_never_clean;
mod a_machine_never_registers;
mod a_record_cannot_be_read;
mod a_request_is_released_and_its_machine_reused;
mod a_request_waits;
mod a_run_needs_fewer_machines;
mod a_runner_ends;
mod a_runner_is_registered_ahead;
mod a_runner_version_ends;
mod a_scale_set_asks;
mod a_storm_of_launches;
mod a_zone_has_no_capacity;
mod an_ended_request_leaves_the_table;
mod an_intent_rings;
mod an_operator_ends;
mod an_upgrade;
mod github_is_away;
mod github_rings;
mod github_says;
mod jobs_are_run_again;
mod machines_are_measured;
mod messages_are_only_hints;
mod pools_keep_machines_warm;
mod programs_of_two_versions;
mod the_history_is_kept;
mod the_lease_changes_hands;
mod the_table_is_listed;
mod the_table_refuses_us;
mod thousands_are_free_at_once;
mod two_operators;
mod what_a_cycle_costs;
mod what_ec2_refuses;
