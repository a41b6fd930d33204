//! The specs of pools: the files that people write, and what in them is refused.

pub(crate) mod checks;
mod file;
mod keep;
mod launch;
pub(crate) mod queue_name;
pub(crate) mod sharing;
mod sizing;
pub(crate) mod spec;

use std::path::Path;

use runyard_core::model::{PoolSpec, TableName};
use serde_json::Value;

use crate::common::failure::{CliFailure, CliResult, Problems};
use crate::session::stack::StackArgs;

/// The specs of a file, each beside what the file says of it. The file is refused as a whole where any of it makes no
/// sense.
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
    // As many specs as entries: each that was left out left a problem behind.
    Ok(specs.into_iter().zip(entries).collect())
}

/// The specs of a file.
pub(crate) fn specs(file: &Path, stack: &StackArgs, table: &TableName) -> CliResult<Vec<PoolSpec>> {
    Ok(entries(file, stack, table)?.into_iter().map(|(spec, _)| spec).collect())
}
