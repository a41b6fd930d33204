//! The specs of pools: the files that people write, and their validation.

pub(crate) mod checks;
mod file;
mod keep;
mod launch;
pub(crate) mod queue_name;
pub(crate) mod sets;
pub(crate) mod sharing;
mod sizing;
pub(crate) mod spec;

use std::path::Path;

use runyard_core::model::{PoolSpec, TableName};
use serde_json::Value;

use crate::common::failure::{CliFailure, CliResult, Problems};
use crate::session::stack::StackArgs;

/// Reads the specs of a file, each with the file's entry for it. A file with any invalid entry is refused as a whole.
pub(crate) fn entries(
    file: &Path,
    stack: &StackArgs,
    table: &TableName,
) -> CliResult<Vec<(PoolSpec, Value)>> {
    let mut problems = Problems::default();
    let outputs = stack.outputs(table)?;
    let mut entries = file::read(file).map_err(CliFailure::usage)?;
    entries.iter_mut().for_each(|entry| outputs.complete(entry));
    let specs = spec::all(&entries, table, &mut problems);
    problems.check()?;
    // The lists are equally long: each omitted spec has left a problem, which returns above.
    Ok(specs.into_iter().zip(entries).collect())
}

/// Reads the specs of a file.
pub(crate) fn specs(file: &Path, stack: &StackArgs, table: &TableName) -> CliResult<Vec<PoolSpec>> {
    Ok(entries(file, stack, table)?.into_iter().map(|(spec, _)| spec).collect())
}
