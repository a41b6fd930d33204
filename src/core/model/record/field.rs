//! The error for bad input: it names the field, the value and the fix.

use serde::Serialize;

/// A value that cannot be used. The command line, the configuration and the records report it in the same form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{field}: {message} (got {value:?}); {fix}")]
pub struct FieldError {
    /// The name of the option, configuration key or attribute.
    pub field: String,
    /// The given value, cut to a length that a terminal can show.
    pub value: String,
    /// The fault of the value.
    pub message: String,
    /// The value to write instead.
    pub fix: String,
}

/// The attribute whose value must not be shown, even where it cannot be used.
const SECRET: &str = "labelSuffix";
/// The replacement that is shown.
const HIDDEN: &str = "********";

/// Longest part of a refused value that is repeated to people, in characters.
const SHOWN: usize = 120;

impl FieldError {
    /// Creates a refusal of `value` for `field`.
    pub fn new(
        field: impl Into<String>,
        value: impl Into<String>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        let (field, value) = (field.into(), value.into());
        let value = if field == SECRET { HIDDEN.to_owned() } else { value };
        let value = if value.chars().count() > SHOWN {
            value.chars().take(SHOWN).chain("…".chars()).collect()
        } else {
            value
        };
        Self { field, value, message: message.into(), fix: fix.into() }
    }

    /// Returns the same refusal under another field's name, for example the option that carried the value.
    #[must_use]
    pub fn named(mut self, field: impl Into<String>) -> Self {
        self.field = field.into();
        self
    }
}
