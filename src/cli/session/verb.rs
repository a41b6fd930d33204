//! What a verb is: it checks what it was asked before anything is reached, and then it runs.

use runyard_core::model::TableName;

use crate::common::environment::Environment;
use crate::common::failure::CliResult;
use crate::session::context::CliContext;

/// What a verb knows before anything is reached.
pub(crate) struct Start<'a> {
    /// The environment, with the yard that is meant.
    pub(crate) environment: &'a Environment,
    /// The table.
    pub(crate) table: &'a TableName,
}

/// A verb that works on the table and ends. It is implemented by its arguments.
pub(crate) trait Verb {
    /// What its arguments mean.
    type Input;

    /// Refuses what can be refused without the network.
    fn check(&self, start: &Start<'_>) -> CliResult<Self::Input>;

    /// Does it.
    async fn run(&self, context: &mut CliContext, input: Self::Input) -> CliResult;

    /// Both, where the table is reached already.
    async fn run_on(&self, context: &mut CliContext) -> CliResult {
        let input = self.check(&Start { environment: &context.environment, table: &context.table })?;
        self.run(context, input).await
    }
}
