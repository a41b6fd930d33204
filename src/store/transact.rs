//! Several conditional writes, all or none. The SDK sends one request token with all its attempts, so its retry gets
//! the response of the first attempt. If an engine does not remember tokens, the refused retry is recognised by its
//! result.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{
    ConditionCheck, Delete, ReturnValuesOnConditionCheckFailure::AllOld, TransactWriteItem, Update,
};

use super::errors::{cancelled, classify};
use super::expression::Expressions;
use super::items::key_to_sdk;
use super::outcome::already_done;
use crate::model::{Guard, Operation, TableName, Write};
use crate::ports::{Refusal, StoreError};

/// Sends conditional writes of different records as one transaction.
///
/// # Guarantees
/// - All writes are applied, or none.
/// - `Ok` means that every record is as its write makes it. A refusal that contains exactly this result is an earlier
///   attempt of this call whose response was lost, and counts as success ([`all_done`]).
/// - An empty list of writes succeeds without a call.
///
/// # Assumes
/// - At most 100 writes and one write for a record, else DynamoDB refuses the call.
/// - Two writers do not write the same result under the same guard; if they do, the call of each succeeds.
///
/// # Errors
/// - [`StoreError::Refused`]: nothing was written, and the refusals contain the records whose guards failed.
/// - [`StoreError::Contended`], [`StoreError::Throttled`], [`StoreError::Unknown`]: the writes may have been applied.
///   Read the records before deciding again.
/// - [`StoreError::Invalid`]: a write that cannot be expressed, or that DynamoDB does not accept.
/// - [`StoreError::Denied`], [`StoreError::NoTable`]: a person must act.
pub(super) async fn transact(client: &Client, table: &TableName, writes: &[Write]) -> Result<(), StoreError> {
    if writes.is_empty() {
        return Ok(());
    }
    let items: Result<Vec<_>, BuildError> = writes.iter().map(|write| part(table, write)).collect();
    let items = items.map_err(|error| StoreError::Invalid(error.to_string()))?;
    let Err(error) = client.transact_write_items().set_transact_items(Some(items)).send().await else {
        return Ok(());
    };
    let cancellation = match error.as_service_error() {
        Some(TransactWriteItemsError::TransactionCanceledException(cancellation)) => cancellation,
        _ => return Err(classify(&error)),
    };
    match cancelled(writes, cancellation.cancellation_reasons().to_vec()) {
        StoreError::Refused { refusals } if all_done(writes, &refusals) => Ok(()),
        other => Err(other),
    }
}

fn part(table: &TableName, write: &Write) -> Result<TransactWriteItem, BuildError> {
    let table = table.as_str();
    let key = Some(key_to_sdk(&write.key));
    let told = Expressions::of(&write.operation);
    let (names, values) = (told.names(), told.values());
    let item = TransactWriteItem::builder();
    Ok(match &write.operation {
        Operation::Create(_) | Operation::Update { .. } => {
            // A transaction's update, unlike a single one, must contain a change: an empty one changes nothing and is a
            // check.
            let Some(update) = told.update else {
                return check(table, write);
            };
            let part = Update::builder().table_name(table).set_key(key).update_expression(update);
            let part =
                part.condition_expression(told.condition).return_values_on_condition_check_failure(AllOld);
            let part = part.set_expression_attribute_names(names).set_expression_attribute_values(values);
            item.update(part.build()?).build()
        }
        Operation::Delete(_) => {
            let part = Delete::builder().table_name(table).set_key(key).condition_expression(told.condition);
            let part = part.return_values_on_condition_check_failure(AllOld);
            let part = part.set_expression_attribute_names(names).set_expression_attribute_values(values);
            item.delete(part.build()?).build()
        }
        Operation::Check(_) => return check(table, write),
    })
}

fn check(table: &str, write: &Write) -> Result<TransactWriteItem, BuildError> {
    let told = Expressions::of(&write.operation);
    let part = ConditionCheck::builder().table_name(table).set_key(Some(key_to_sdk(&write.key)));
    let part = part
        .set_expression_attribute_names(told.names())
        .set_expression_attribute_values(told.values())
        .condition_expression(told.condition)
        .return_values_on_condition_check_failure(AllOld);
    Ok(TransactWriteItem::builder().condition_check(part.build()?).build())
}

/// Returns whether everything that the transaction would write is stored already. As it is all or none, it was applied
/// then.
pub fn all_done(writes: &[Write], refusals: &[Refusal]) -> bool {
    let mut seen = false;
    writes.iter().all(|write| {
        let refusal = refusals.iter().find(|refusal| refusal.key == write.key);
        match (&write.operation, refusal) {
            (Operation::Check(_) | Operation::Delete(Guard::Anything), _) => true,
            (Operation::Create(_) | Operation::Update { .. } | Operation::Delete(_), None) => false,
            (Operation::Create(_) | Operation::Update { .. } | Operation::Delete(_), Some(refusal)) => {
                seen = true;
                already_done(write, refusal.current.as_ref())
            }
        }
    }) && seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{AttributeValue, Item, RecordId};

    fn state(word: &str, version: u64) -> Item {
        [
            ("state".to_owned(), AttributeValue::S(word.into())),
            ("version".to_owned(), AttributeValue::N(version.to_string())),
        ]
        .into()
    }

    fn claim(pk: &str) -> Write {
        Write::update(RecordId::new(pk, "s"), Guard::Version(1), state("claimed", 2), [].into())
    }

    fn refusal(pk: &str, current: Option<Item>) -> Refusal {
        Refusal { key: RecordId::new(pk, "s"), current }
    }

    #[test]
    fn a_transaction_recognises_its_own_result_only_when_all_of_it_is_there() {
        let writes = [claim("a"), claim("b"), Write::check(RecordId::new("l", "s"), Guard::Lease(1))];
        let ours = || Some(state("claimed", 2));
        assert!(all_done(&writes, &[refusal("a", ours()), refusal("b", ours())]));
        assert!(!all_done(&writes, &[refusal("a", ours())]), "the other guard held, so nothing was written");
        assert!(!all_done(&writes, &[refusal("a", ours()), refusal("b", Some(state("idle", 2)))]));
        assert!(!all_done(&writes[2..], &[refusal("l", None)]), "a check alone leaves no result");
    }
}
