//! Parses the filter of log lines.

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::EnvFilter;

use crate::model::FieldError;

/// The embedded engine warns about every refused condition and missing table, which are normal responses.
const QUIET: &str = "dynoxide::server=error";

/// Checks directives such as `info,runyard::controller=debug`.
///
/// # Errors
/// The directive that cannot be parsed.
pub(crate) fn check_filter(text: &str) -> Result<(), FieldError> {
    parse(text).map(drop).map_err(|message| {
        let fix =
            "use error, warn, info, debug or trace, or directives such as info,runyard::controller=debug";
        FieldError::new("filter", text, message, fix)
    })
}

/// Parses these directives into a filter. The operator's modules have the name of the program, `runyard::`.
///
/// # Errors
/// The directive that cannot be parsed.
pub(crate) fn parse(text: &str) -> Result<EnvFilter, String> {
    if text.is_empty() {
        return Err("is empty".to_owned());
    }
    // A bare word is parsed as a target, so a mistyped level would silently log everything of a nonexistent crate.
    let word = !text.contains(['=', ',', '[']);
    if word && text.parse::<LevelFilter>().is_err() {
        return Err("is not a level".to_owned());
    }
    EnvFilter::builder()
        .with_default_directive(LevelFilter::OFF.into())
        .parse(text.replace("runyard::", "runyard_operator::"))
        .map(|filter| filter.add_directive(QUIET.parse().expect("a plain directive")))
        .map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_of_the_operator_are_named_as_those_of_the_program() {
        let filter = parse("warn,runyard::controller=debug").unwrap().to_string();
        assert!(filter.contains("runyard_operator::controller=debug"), "{filter}");
    }

    #[test]
    fn a_filter_that_means_nothing_is_refused() {
        for good in ["info", "OFF", "debug", "info,runyard=trace", "runyard::controller=debug"] {
            check_filter(good).unwrap();
        }
        for bad in ["", "inof", "info,runyard=loud", "runyard=[", "=="] {
            let error = check_filter(bad).unwrap_err();
            assert!(!error.fix.is_empty(), "{bad}");
        }
    }
}
