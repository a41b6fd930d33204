//! The options that every verb takes.

use clap::Args;
use runyard_core::model::TableName;

use super::completion;
use crate::output::pick::Output;

/// What every verb takes.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// The DynamoDB table [default: $RUNYARD_TABLE, else runyard]
    #[arg(long, global = true, value_name = "NAME", help_heading = "Global options")]
    pub(crate) table: Option<TableName>,
    /// A yard by its name in `runyard config`, or a local one by its directory (./DIR) [default: $RUNYARD_YARD]
    #[arg(long, global = true, value_name = "NAME|DIR", add = completion::yards(), help_heading = "Global options")]
    pub(crate) yard: Option<String>,
    /// Output format: text, wide, json (errors too), yaml, name, csv, jsonpath=TEMPLATE or custom-columns=HEAD:PATH,…
    #[arg(
        long,
        short,
        global = true,
        value_name = "FORMAT",
        default_value = "text",
        value_parser = Output::parse,
        add = completion::forms(),
        help_heading = "Global options"
    )]
    pub(crate) output: Output,
    /// Say the answer alone: no progress, no remarks
    #[arg(long, short, global = true, help_heading = "Global options")]
    pub(crate) quiet: bool,
    /// Log more to stderr; twice for everything
    # [arg(long, short, global = true, action = clap::ArgAction::Count, help_heading = "Global options")]
    pub(crate) verbose: u8,
}
