//! The options of every verb.

use clap::Args;
use runyard_core::model::TableName;

use super::completion;
use crate::output::pick::Output;

/// What every verb takes.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// The DynamoDB table [default: $RUNYARD_TABLE, else runyard]
    #[arg(long, global = true, hide_short_help = true, value_name = "NAME", help_heading = "Global options")]
    pub(crate) table: Option<TableName>,
    /// A yard's name in `runyard config`, or the directory of a local yard (./DIR) [default: $RUNYARD_YARD]
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        value_name = "NAME|DIR",
        add = completion::yards(),
        help_heading = "Global options"
    )]
    pub(crate) yard: Option<String>,
    /// Output format: text, wide, json (errors too), yaml, name, csv, jsonpath=TEMPLATE or custom-columns=HEAD:PATH,…
    #[arg(
        long,
        short,
        global = true,
        hide_short_help = true,
        value_name = "FORMAT",
        default_value = "text",
        value_parser = Output::parse,
        add = completion::forms(),
        help_heading = "Global options"
    )]
    pub(crate) output: Output,
    /// Print results only: no progress, no remarks
    #[arg(long, short, global = true, hide_short_help = true, help_heading = "Global options")]
    pub(crate) quiet: bool,
    /// Log more to stderr; repeat for debug output
    #[arg(
        long,
        short,
        global = true,
        hide_short_help = true,
        action = clap::ArgAction::Count,
        help_heading = "Global options"
    )]
    pub(crate) verbose: u8,
}
