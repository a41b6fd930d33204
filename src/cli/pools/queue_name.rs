//! Can the queue of a class have its name?

use runyard_core::model::{ClassName, FieldError, TableName};

/// Maximum length of the table's name and the class together: the name of the class's queue contains both.
const QUEUE_NAME: usize = 74;

/// Checks that the name of the class's queue is valid.
pub(crate) fn fits_queue_name(table: &TableName, class: &ClassName) -> Result<(), FieldError> {
    if class.is_reserved() {
        let message = format!("is reserved: {table}-{class} is the name of another queue of the yard");
        return Err(FieldError::new("resourceClass", class.as_str(), message, "use another name"));
    }
    if table.as_str().len() + class.as_str().len() <= QUEUE_NAME {
        return Ok(());
    }
    let message =
        format!("is too long beside the table's name {table}: together at most {QUEUE_NAME} characters");
    Err(FieldError::new("resourceClass", class.as_str(), message, "shorten the class or the table's name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_whose_queue_could_not_be_named_is_refused() {
        let table = TableName::parse(&"t".repeat(40)).unwrap();
        assert!(fits_queue_name(&table, &ClassName::parse(&"c".repeat(34)).unwrap()).is_ok());
        assert!(fits_queue_name(&table, &ClassName::parse(&"c".repeat(35)).unwrap()).is_err());
    }

    #[test]
    fn the_names_of_the_yards_other_queues_are_no_classes() {
        let table = TableName::parse("yard").unwrap();
        for reserved in ["doorbell", "interruptions", "jobs"] {
            let refused = fits_queue_name(&table, &ClassName::parse(reserved).unwrap()).unwrap_err();
            assert_eq!((refused.field.as_str(), refused.value.as_str()), ("resourceClass", reserved));
            let text = refused.to_string();
            assert!(
                text.contains(&format!("yard-{reserved}")) && text.contains("use another name"),
                "{text}"
            );
        }
        for other in ["doorbells", "job", "jobs-1"] {
            assert!(fits_queue_name(&table, &ClassName::parse(other).unwrap()).is_ok(), "{other}");
        }
    }
}
