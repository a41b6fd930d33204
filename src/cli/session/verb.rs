//! The trait of verbs: a verb checks its arguments before it connects to anything, and then it runs.

use runyard_core::model::TableName;

use crate::common::environment::Environment;
use crate::common::failure::CliResult;
use crate::session::context::CliContext;

/// The context of a verb's check, before anything is connected.
pub(crate) struct Start<'a> {
    /// The environment, with the chosen yard.
    pub(crate) environment: &'a Environment,
    /// The table.
    pub(crate) table: &'a TableName,
}

/// A verb that works on the table and ends. Its arguments implement it.
pub(crate) trait Verb {
    /// The checked arguments.
    type Input;

    /// Checks all that can be checked without the network.
    fn check(&self, start: &Start<'_>) -> CliResult<Self::Input>;

    /// Runs the verb.
    async fn run(&self, context: &mut CliContext, input: Self::Input) -> CliResult;

    /// Checks and runs the verb on a table that is connected already.
    async fn run_on(&self, context: &mut CliContext) -> CliResult {
        let input = self.check(&Start { environment: &context.environment, table: &context.table })?;
        self.run(context, input).await
    }
}
