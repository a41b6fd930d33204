//! Checks of single fields: one function per form, each returning the value it read.

use std::fmt::Display;
use std::str::FromStr;

use serde_json::Value;

use crate::common::failure::Problems;
use runyard_core::model::FieldError;

/// A field of a spec that is to be checked.
pub(crate) struct Field<'a> {
    /// Its path from the top of the file, for example `pools[0].launch.ami`.
    pub(crate) path: String,
    /// Its value.
    pub(crate) value: &'a Value,
}

impl Field<'_> {
    /// Returns an error about this value.
    pub(crate) fn refuse(&self, message: impl Into<String>, fix: impl Into<String>) -> FieldError {
        let shown = match self.value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        FieldError::new(&self.path, shown, message, fix)
    }

    /// Returns the fields of an object, each with its own path; reports a problem and returns `None` if this is not an
    /// object.
    pub(crate) fn entries(&self, problems: &mut Problems, fix: &str) -> Option<Vec<(&str, Field<'_>)>> {
        let Value::Object(map) = self.value else {
            problems.add(self.refuse("must be an object", fix));
            return None;
        };
        Some(map.iter().map(|(name, value)| (name.as_str(), self.inner(name, value))).collect())
    }

    /// Returns a field of this one.
    pub(crate) fn inner<'b>(&self, name: &str, value: &'b Value) -> Field<'b> {
        Field { path: format!("{}.{name}", self.path), value }
    }

    /// Reports each of these fields that the object lacks.
    pub(crate) fn require(&self, names: &[&str], problems: &mut Problems, fix: &str) {
        for name in names.iter().filter(|name| self.value.get(name).is_none()) {
            problems.add(FieldError::new(format!("{}.{name}", self.path), "", "is missing", fix));
        }
    }

    /// Checks for a whole number within bounds.
    pub(crate) fn whole(&self, least: u64, most: u64) -> Result<(), FieldError> {
        match self.value.as_u64() {
            Some(number) if (least..=most).contains(&number) => Ok(()),
            _ => Err(self.refuse(
                format!("must be a whole number from {least} to {most}"),
                "write it without quotes or unit",
            )),
        }
    }

    /// Checks for `true` or `false`.
    pub(crate) fn flag(&self) -> Result<(), FieldError> {
        if self.value.is_boolean() {
            Ok(())
        } else {
            Err(self.refuse("must be true or false", "write it without quotes"))
        }
    }

    /// Returns text of at most `most` bytes.
    pub(crate) fn text(&self, most: usize) -> Result<&str, FieldError> {
        match self.value.as_str() {
            Some(text) if text.len() <= most && !text.contains('\0') => Ok(text),
            Some(_) => Err(self.refuse(format!("must be at most {most} bytes without NUL"), "shorten it")),
            None => Err(self.refuse("must be text", "put it in quotes")),
        }
    }

    /// Parses text as one of our types.
    pub(crate) fn parsed<T: FromStr<Err = FieldError>>(&self) -> Result<T, FieldError> {
        let text = self.text(1024)?;
        text.parse::<T>().map_err(|error| error.named(&self.path))
    }

    /// Checks text with the predicate `good`.
    pub(crate) fn shaped(&self, good: fn(&str) -> bool, fix: impl Display) -> Result<(), FieldError> {
        let text = self.text(1024)?;
        if good(text) { Ok(()) } else { Err(self.refuse("has the wrong form", fix.to_string())) }
    }

    /// Returns the elements of a non-empty list.
    pub(crate) fn elements(&self) -> Result<Vec<Field<'_>>, FieldError> {
        match self.value.as_array() {
            Some(list) if list.is_empty() => {
                Err(self.refuse("is an empty list", "leave it out, or name at least one"))
            }
            Some(list) => {
                let field = |(i, value)| Field { path: format!("{}[{i}]", self.path), value };
                Ok(list.iter().enumerate().map(field).collect())
            }
            None => Err(self.refuse("must be a list", "write it as [a, b]")),
        }
    }
}

/// Returns whether this is an EC2 instance type with `*` for any characters.
pub(crate) fn is_type_glob(text: &str) -> bool {
    (1..=60).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"*.-".contains(&b))
}

/// Returns whether this is a repository with `*` for any characters.
pub(crate) fn is_repository_glob(text: &str) -> bool {
    let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"*_.-/".contains(&b));
    let parts = text.split('/').collect::<Vec<_>>();
    plain && (text == "*" || (parts.len() == 2 && parts.iter().all(|part| !part.is_empty())))
}

/// Returns whether a label can be part of a runner's label without admitting another run's job.
pub(crate) fn is_label(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && !text.eq_ignore_ascii_case("self-hosted")
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
}

/// Returns whether this is an id of EC2 with this prefix: 8 or 17 hexadecimal digits.
pub(crate) fn is_ec2_id(text: &str, prefix: &str) -> bool {
    let hex = |digits: &str| {
        (digits.len() == 8 || digits.len() == 17)
            && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    text.strip_prefix(prefix).is_some_and(hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cannot_let_other_runs_in() {
        assert!(is_label("gpu_2.1-x"));
        for bad in ["", "a b", "a,b", "self-hosted", "Self-Hosted", "é", &"x".repeat(65)] {
            assert!(!is_label(bad), "{bad}");
        }
    }

    #[test]
    fn repositories_are_matched_by_owner_and_name() {
        for good in ["*", "acme/*", "acme/web", "*/web"] {
            assert!(is_repository_glob(good), "{good}");
        }
        for bad in ["", "acme", "acme/", "/web", "a/b/c", "a b/c", "acme/?", "acme/~"] {
            assert!(!is_repository_glob(bad), "{bad}");
        }
    }

    #[test]
    fn ids_of_ec2_have_8_or_17_digits() {
        assert!(is_ec2_id("ami-0123456789abcdef0", "ami-"));
        for bad in ["ami-", "ami-xyz", "ami-0123", "sg-01234567", "ami-0123456789ABCDEF0"] {
            assert!(!is_ec2_id(bad, "ami-"), "{bad}");
        }
    }
}
