//! Converts the argument parser's errors to problems with field, value and fix.

use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::model::FieldError;

/// A parser of the words of a closed list, which help and completions then name.
pub(crate) fn one_of<T>(all: &'static [T], word: fn(T) -> &'static str) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + FromStr<Err = FieldError> + 'static,
{
    let words = PossibleValuesParser::new(all.iter().map(|one| word(*one)));
    words.try_map(|text| text.parse::<T>())
}

/// The complaint as a problem.
pub(crate) fn problem(error: &clap::Error) -> FieldError {
    let of = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        Some(ContextValue::StyledStrs(texts)) => {
            texts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        }
        Some(ContextValue::StyledStr(text)) => text.to_string(),
        Some(_) | None => String::new(),
    };
    let field = option_of(&of(ContextKind::InvalidArg));
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<FieldError>());
    if let Some(source) = source {
        return source.clone().named(field);
    }
    let value = of(ContextKind::InvalidValue);
    let known = of(ContextKind::ValidValue);
    let near = [ContextKind::SuggestedValue, ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand]
        .map(of)
        .into_iter()
        .find(|near| !near.is_empty());
    let help = "see --help".to_owned();
    let near = near.map_or_else(|| help.clone(), |near| format!("did you mean {near}?"));
    match error.kind() {
        ErrorKind::InvalidValue if value.is_empty() => FieldError::new(
            field,
            "",
            "needs a value",
            "write the value after it; one that begins with - after =",
        ),
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let fix = if known.is_empty() { help } else { format!("use one of {known}") };
            FieldError::new(field, value, "not a known value", fix)
        }
        ErrorKind::UnknownArgument => {
            let fix = format!("{near}; a value that begins with - is written --option=VALUE");
            FieldError::new(field.clone(), field, "unknown option or argument", fix)
        }
        ErrorKind::InvalidSubcommand => {
            FieldError::new("verb", of(ContextKind::InvalidSubcommand), "unknown verb", near)
        }
        ErrorKind::MissingRequiredArgument => FieldError::new(field, "", "is required", help),
        ErrorKind::ArgumentConflict => {
            let other = of(ContextKind::PriorArg);
            FieldError::new(field, "", format!("cannot be used with {other}"), "leave one of them out")
        }
        // clap's own list, which it may lengthen.
        _ => FieldError::new(field, value, error.kind().as_str().unwrap_or("wrong usage").to_owned(), help),
    }
}

/// `--count <N>` as `--count`, `<CLASS>` as `CLASS`, `<--desired <N>|--reset>` as `--desired|--reset`.
fn option_of(shown: &str) -> String {
    let one = |arg: &str| {
        let word = arg.split_whitespace().next().unwrap_or_default();
        word.trim_end_matches("...").trim_start_matches(['<', '[']).trim_end_matches(['>', ']']).to_owned()
    };
    let each = |args: &str| match args.split_once('|') {
        Some(_) if args.contains("--") => args.split('|').map(one).collect::<Vec<_>>().join("|"),
        Some(_) | None => one(args),
    };
    shown.split(", ").map(each).collect::<Vec<_>>().join(", ")
}
