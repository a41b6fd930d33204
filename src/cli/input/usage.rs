//! Converts the argument parser's errors to problems with field, value and fix.

use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};

use runyard_core::model::FieldError;

/// Returns a parser of the words of a closed list, which help and completions then list.
pub(crate) fn one_of<T>(all: &'static [T], word: fn(T) -> &'static str) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + FromStr<Err = FieldError> + 'static,
{
    let words = PossibleValuesParser::new(all.iter().map(|one| word(*one)));
    words.try_map(|text| text.parse::<T>())
}

/// Converts the parser's error to a problem.
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
            let verb = of(ContextKind::InvalidSubcommand);
            let fix = meant(&verb).map_or(near, |meant| format!("did you mean {meant}?"));
            FieldError::new("verb", verb, "unknown verb", fix)
        }
        ErrorKind::MissingRequiredArgument => FieldError::new(field, "", "is required", help),
        ErrorKind::ArgumentConflict => {
            let other = of(ContextKind::PriorArg);
            FieldError::new(field, "", format!("cannot be used with {other}"), "leave one of them out")
        }
        // clap's `ErrorKind` is not exhaustive.
        _ => FieldError::new(field, value, error.kind().as_str().unwrap_or("wrong usage").to_owned(), help),
    }
}

/// Returns whether `problem` tells more than the parser does: our own checks of a value, the verbs of other programs, and
/// values that begin with a hyphen.
pub(crate) fn better_told(error: &clap::Error) -> bool {
    let kinds = [ErrorKind::InvalidSubcommand, ErrorKind::UnknownArgument];
    std::error::Error::source(error).is_some() || kinds.contains(&error.kind())
}

/// Returns the verb that another program's verb or a typing error stands for.
fn meant(verb: &str) -> Option<&'static str> {
    const KNOWN: &[(&[&str], &str)] = &[
        (&["list", "show", "gte", "egt", "instances", "machines"], "get instances"),
        (&["requests", "runs", "queue"], "get requests"),
        (&["pools", "classes"], "get pools"),
        (&["cancel", "stop", "give-back", "return"], "release"),
        (&["abort"], "fail"),
        (&["kill", "terminate", "end"], "expire INSTANCE"),
        (&["remove", "del"], "delete pool"),
        (&["create", "new", "update"], "apply -f FILE"),
        (&["provison", "provsion", "request", "acquire", "run"], "provision"),
        (&["status", "inspect"], "describe"),
        (&["why"], "explain"),
        (&["shell", "exec", "login"], "ssh"),
        (&["check", "health"], "doctor"),
        (&["price", "costs", "bill"], "cost"),
    ];
    KNOWN.iter().find(|(words, _)| words.contains(&verb)).map(|(_, ours)| *ours)
}

/// Shortens `--count <N>` to `--count`, `<CLASS>` to `CLASS`, and `<--desired <N>|--reset>` to `--desired|--reset`.
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

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::verbs::Cli;

    #[test]
    fn a_verb_of_other_programs_or_of_a_slip_leads_to_ours() {
        let fix = |verb: &str| problem(&Cli::try_parse_from(["runyard", verb]).unwrap_err()).fix;
        for (verb, ours) in [
            ("gte", "get instances"),
            ("list", "get instances"),
            ("cancel", "release"),
            ("remove", "delete pool"),
            ("kill", "expire INSTANCE"),
            ("create", "apply -f FILE"),
            ("provison", "provision"),
        ] {
            assert_eq!(fix(verb), format!("did you mean {ours}?"), "{verb}");
        }
        assert!(fix("explian").contains("explain"));
    }
}
