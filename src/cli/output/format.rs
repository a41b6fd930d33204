//! The forms of output, and text as a terminal may have it.

use runyard_operator::telemetry::unprintable;

/// The form of what is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    /// Tables and sentences for people.
    #[default]
    Text,
    /// The same with more columns.
    Wide,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
    /// What is picked out of the document.
    Picked,
}

impl Format {
    /// Whether a program reads the answer.
    pub(crate) const fn for_programs(self) -> bool {
        match self {
            Self::Json | Self::Yaml | Self::Picked => true,
            Self::Text | Self::Wide => false,
        }
    }
}

/// Lines of ours, with words of others in them, fit for a terminal.
pub(crate) fn visible(text: &str) -> String {
    text.chars().map(|c| if c != '\n' && unprintable(c) { '\u{fffd}' } else { c }).collect()
}

/// Text from a record, fit for a terminal: control characters and direction overrides become visible.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if unprintable(c) { '\u{fffd}' } else { c }).collect()
}
