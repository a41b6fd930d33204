//! Logging to stderr, for people or as JSON. No value, from whatever source, can begin a line of its own or move a
//! terminal's cursor; libraries are not logged below `info`, because their finer lines may contain credentials.

use std::fmt;
use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
use tracing::{Metadata, Subscriber};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::{EnvFilter, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt as lines};

use crate::config::{Log, LogFormat, log_filter};

/// The error for a second subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("logging was set up twice in this process")]
pub struct AlreadySet;

/// Sets up logging to stderr for this process.
///
/// # Errors
/// It was set up before.
pub fn init(log: &Log) -> Result<(), AlreadySet> {
    subscriber(log, std::io::stderr, std::io::stderr().is_terminal()).try_init().map_err(|_| AlreadySet)
}

fn subscriber<W>(log: &Log, writer: W, terminal: bool) -> impl Subscriber + Send + Sync + use<W>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = log_filter::parse(&log.filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let line: Box<dyn Layer<Registry> + Send + Sync> = match log.format {
        LogFormat::Json => {
            lines::layer().json().flatten_event(true).with_writer(writer).log_internal_errors(false).boxed()
        }
        LogFormat::Human => {
            let fields = lines::format::debug_fn(escaped).delimited(" ");
            let line = lines::layer().fmt_fields(fields).with_writer(writer).log_internal_errors(false);
            // Colours are the default, unless NO_COLOR is set.
            if terminal { line.boxed() } else { line.with_ansi(false).boxed() }
        }
    };
    tracing_subscriber::registry().with(line.with_filter(filter).with_filter(filter_fn(discreet)))
}

/// Returns whether a line cannot contain the data that a library handles.
fn discreet(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with("runyard") || *metadata.level() <= LevelFilter::INFO
}

/// Formats a field as `name=value`, on one line whatever the value is.
fn escaped(
    writer: &mut lines::format::Writer<'_>,
    field: &tracing::field::Field,
    value: &dyn fmt::Debug,
) -> fmt::Result {
    let text = format!("{value:?}");
    if field.name() != "message" {
        write!(writer, "{}=", field.name())?;
    }
    text.chars().try_for_each(|char| {
        if unprintable(char) { write!(writer, "{}", char.escape_default()) } else { writer.write_char(char) }
    })
}

/// Returns whether a character ends a line, controls a terminal or changes the direction of reading.
pub fn unprintable(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat, filter: &str, terminal: bool, speak: impl FnOnce()) -> String {
        let captured = Captured::default();
        let writer = captured.clone();
        let log = Log { format, filter: filter.to_owned() };
        tracing::subscriber::with_default(subscriber(&log, move || writer.clone(), terminal), speak);
        let bytes = captured.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    const NASTY: &str = "x\n2026-01-01 INFO forged\r\x1b[2J\u{202e}\u{2028}end";

    #[test]
    fn no_value_can_begin_a_line_or_steer_the_terminal() {
        for format in [LogFormat::Human, LogFormat::Json] {
            let text = logged(format, "info", false, || {
                let span = tracing::info_span!("pass", run = %NASTY);
                let _entered = span.enter();
                tracing::info!(class = %NASTY, quoted = NASTY, "took {NASTY}");
            });
            assert_eq!(text.matches('\n').count(), 1, "{text}");
            assert!(text.ends_with('\n') && !text.contains('\x1b') && !text.contains('\r'), "{text}");
        }
    }

    #[test]
    fn a_human_line_names_its_fields() {
        let text =
            logged(LogFormat::Human, "info", false, || tracing::info!(listen = %"127.0.0.1:9", "open"));
        assert!(text.contains(" INFO ") && text.contains("open listen=127.0.0.1:9"), "{text}");
    }

    #[test]
    fn a_json_line_is_an_object_with_its_fields_at_the_top() {
        let text = logged(LogFormat::Json, "info", false, || tracing::info!(listen = %"127.0.0.1:9", "open"));
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((line["message"].as_str(), line["listen"].as_str()), (Some("open"), Some("127.0.0.1:9")));
        assert_eq!(line["level"], "INFO");
    }

    #[test]
    fn there_is_no_colour_where_there_is_no_terminal() {
        assert!(!logged(LogFormat::Human, "info", false, || tracing::warn!("x")).contains('\x1b'));
    }

    #[test]
    fn the_filter_decides_about_our_own_lines() {
        let speak = || tracing::debug!("fine");
        assert_eq!(logged(LogFormat::Human, "info", false, speak), "");
        assert!(logged(LogFormat::Human, "runyard=debug", false, speak).contains("fine"));
        assert_eq!(logged(LogFormat::Human, "off", false, || tracing::error!("x")), "");
    }

    #[test]
    fn libraries_are_never_logged_below_info() {
        let text = logged(LogFormat::Human, "trace", false, || {
            tracing::trace!(target: "hyper::proto", "authorization: secret");
            tracing::info!(target: "hyper::proto", "hello");
        });
        assert!(!text.contains("secret") && text.contains("hello"), "{text}");
    }
}
