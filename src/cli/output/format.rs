//! The output formats, and the escaping of text for a terminal.

use runyard_operator::telemetry::unprintable;

/// The output format of verbs that read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    /// Tables and sentences for people.
    #[default]
    Text,
    /// Like `Text`, with more columns.
    Wide,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
    /// Values selected from the document.
    Picked,
}

impl Format {
    /// Returns whether the reader of the output is a program.
    pub(crate) const fn for_programs(self) -> bool {
        match self {
            Self::Json | Self::Yaml | Self::Picked => true,
            Self::Text | Self::Wide => false,
        }
    }
}

/// Makes control characters visible in our own lines, which may contain text from others; line breaks remain.
pub(crate) fn visible(text: &str) -> String {
    text.chars().map(|c| if c != '\n' && unprintable(c) { '\u{fffd}' } else { c }).collect()
}

/// Makes control characters and direction overrides visible in text from a record.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if unprintable(c) { '\u{fffd}' } else { c }).collect()
}
