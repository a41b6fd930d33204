//! Output of the verbs: results to stdout in the chosen format, problems to stderr. A reader that closes the pipe
//! (`runyard get instances | head -1`) ends the output, never the work.

use std::io::{BufRead, BufReader, ErrorKind, IsTerminal, Write};

use serde_json::{Value, json};

use super::format::{Format, plain, visible};
use super::pick::{Output, Pick};
use crate::common::failure::{CliFailure, CliResult};
use runyard_core::model::FieldError;
use runyard_operator::telemetry::unprintable;

/// Standard output.
pub(crate) struct Screen {
    out: Box<dyn Write + Send + Sync>,
    /// The output format.
    pub(crate) format: Format,
    /// Whether the output is a terminal.
    pub(crate) live: bool,
    /// Width of the terminal in columns; `None` without a terminal.
    pub(crate) width: Option<usize>,
    /// Whether tables have headings.
    pub(crate) headed: bool,
    /// Whether only results are printed.
    pub(crate) quiet: bool,
    /// The selection from documents.
    pick: Option<Pick>,
    /// Input from the person who can be asked, if there is one.
    person: Option<Box<dyn BufRead + Send + Sync>>,
    closed: bool,
}

impl Screen {
    /// Creates a screen for the process's standard output.
    pub(crate) fn stdout(output: &Output) -> Self {
        let (format, pick) = (output.format, output.pick.clone());
        let out = std::io::stdout();
        let width = terminal_size::terminal_size_of(&out).map(|(width, _)| usize::from(width.0));
        let (live, stdin) = (out.is_terminal(), std::io::stdin());
        let there = live && !format.for_programs() && stdin.is_terminal();
        let person = there.then(|| Box::new(BufReader::new(stdin)) as _);
        Self { live, width, person, pick, out: Box::new(out), ..Self::nowhere(format) }
    }

    /// Creates a screen that discards its output.
    pub(crate) fn nowhere(format: Format) -> Self {
        Self {
            live: false,
            width: None,
            headed: true,
            quiet: false,
            pick: None,
            person: None,
            out: Box::new(std::io::sink()),
            format,
            closed: false,
        }
    }

    /// Creates a screen of this width that discards its output.
    #[cfg(test)]
    pub(crate) fn of_width(width: Option<usize>) -> Self {
        Self { width, ..Self::nowhere(Format::Text) }
    }

    /// Creates a screen of this width whose output a test can read.
    #[cfg(test)]
    pub(crate) fn kept_at(output: &Output, width: Option<usize>) -> (Self, impl Fn() -> String) {
        let (screen, read) = Self::kept(output.format);
        (Self { width, pick: output.pick.clone(), ..screen }, read)
    }

    /// Creates a screen whose output a test can read.
    #[cfg(test)]
    pub(crate) fn kept(format: Format) -> (Self, impl Fn() -> String) {
        #[derive(Clone, Default)]
        struct Kept(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);
        impl Write for Kept {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().expect("nobody panics with it").extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let kept = Kept::default();
        let screen = Self { out: Box::new(kept.clone()), ..Self::nowhere(format) };
        let read = move || {
            let bytes = kept.0.lock().expect("nobody panics with it").clone();
            String::from_utf8(bytes).expect("what we write is UTF-8")
        };
        (screen, read)
    }

    /// Adds a person at a terminal who types this answer.
    #[cfg(test)]
    pub(crate) fn typed(self, answer: &'static str) -> Self {
        Self { person: Some(Box::new(answer.as_bytes())), ..self }
    }

    /// Returns whether the reader has closed the pipe.
    pub(crate) const fn closed(&self) -> bool {
        self.closed
    }

    /// Writes text unchanged.
    pub(crate) fn text(&mut self, text: &str) {
        if self.closed {
            return;
        }
        if let Err(error) = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()) {
            self.closed = true;
            if error.kind() != ErrorKind::BrokenPipe {
                tracing::error!(%error, "standard output cannot be written");
            }
        }
    }

    /// Writes a line for people; it is omitted in formats for programs.
    pub(crate) fn say(&mut self, line: impl AsRef<str>) {
        if !self.format.for_programs() {
            self.text(&format!("{}\n", visible(line.as_ref())));
        }
    }

    /// Reports the progress of a wait: to people next to the results, to programs on stderr in the form of their
    /// errors.
    pub(crate) fn progress(&mut self, line: &str) {
        match (self.quiet, self.format) {
            (true, _) => {}
            (false, Format::Text | Format::Wide) => self.say(line),
            (false, Format::Json) => {
                let _ = writeln!(std::io::stderr(), "{}", escaped(&json!({"progress": line}).to_string()));
            }
            (false, Format::Yaml | Format::Picked) => {
                let _ = writeln!(std::io::stderr(), "{}", plain(line));
            }
        }
    }

    /// Writes a line for people that is not part of the result; it goes to stderr, so a pipe does not receive it.
    pub(crate) fn remark(&mut self, line: impl AsRef<str>) {
        if !self.format.for_programs() && !self.quiet {
            let _ = writeln!(std::io::stderr(), "{}", visible(line.as_ref()));
        }
    }

    /// Returns whether the columns of FOCUS are selected.
    pub(crate) fn wants_focus(&self) -> bool {
        self.pick == Some(Pick::Focus)
    }

    /// Returns whether there is a person who can be asked.
    pub(crate) fn can_ask(&self) -> bool {
        self.person.is_some()
    }

    /// Asks a question; any answer but yes is no.
    pub(crate) fn ask(&mut self, question: &str) -> bool {
        self.text(&format!("{} [y/N] ", plain(question)));
        let mut answer = String::new();
        let read = self.person.as_mut().map(|person| person.read_line(&mut answer));
        matches!(read, Some(Ok(_))) && matches!(answer.trim(), "y" | "Y" | "yes")
    }

    /// Continues if the person answers yes or `--yes` is given; without a person, only with `--yes`.
    pub(crate) fn confirm(&mut self, yes: bool, field: &str, value: &str, question: &str) -> CliResult {
        if yes {
            return Ok(());
        }
        let (message, fix) = if !self.can_ask() {
            ("needs a yes, and nobody can be asked here", "add --yes, or look first with --dry-run")
        } else if self.ask(question) {
            return Ok(());
        } else {
            ("was not confirmed; nothing was changed", "say y, or add --yes")
        };
        Err(CliFailure::error(field, value, message, fix))
    }

    /// Separates two results of a watch: on a terminal the newer replaces the older, in a pipe it follows after an
    /// empty line.
    pub(crate) fn separate(&mut self) {
        self.text(if self.live { "\u{1b}[2J\u{1b}[H" } else { "\n" });
    }

    /// Writes a document for programs; it is omitted in formats for people.
    pub(crate) fn document(&mut self, value: &Value) {
        match self.format {
            Format::Json => self.text(&format!("{}\n", escaped(&format!("{value:#}")))),
            Format::Yaml => self.text(&yaml(value)),
            Format::Picked => self.picked(value),
            Format::Text | Format::Wide => {}
        }
    }

    /// Writes one of a stream of documents: JSON on one line, YAML after a separator.
    pub(crate) fn next_document(&mut self, value: &Value) {
        match self.format {
            Format::Json => self.text(&format!("{}\n", escaped(&value.to_string()))),
            Format::Yaml => self.text(&format!("---\n{}", yaml(value))),
            Format::Picked => self.picked(value),
            Format::Text | Format::Wide => {}
        }
    }

    fn picked(&mut self, value: &Value) {
        if let Some(text) = self.pick.as_ref().map(|pick| pick.of(value, self.headed)) {
            self.text(&text);
        }
    }
}

/// Formats a value as YAML. Control characters are replaced as in text, because YAML would contain them raw.
fn yaml(value: &Value) -> String {
    visible(&serde_norway::to_string(value).expect("any JSON value can be written as YAML"))
}

/// Escapes control characters in the strings of a JSON text; it parses to the same value.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c != '\n' && unprintable(c) {
            text.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            text.push(c);
        }
    }
    text
}

/// Reports on stderr why a verb failed.
pub(crate) fn report(failure: &CliFailure, format: Format) {
    if failure.problems.is_empty() {
        return;
    }
    let mut err = std::io::stderr().lock();
    // If stderr is closed, only the exit code reports the failure.
    let _ = err.write_all(told(&failure.problems, format).as_bytes());
}

/// Reports a failure with GitHub's workflow commands, so that the run's page shows it and not only the log.
pub(crate) fn annotate(failure: &CliFailure) {
    let mut err = std::io::stderr().lock();
    let _ = err.write_all(annotations(&failure.problems).as_bytes());
}

/// Reports a warning with GitHub's workflow commands.
pub(crate) fn warn_workflow(message: &str) {
    let mut err = std::io::stderr().lock();
    let _ = err.write_all(annotation("warning", message).as_bytes());
}

fn annotations(problems: &[FieldError]) -> String {
    let line = |p: &FieldError| {
        let value = if p.value.is_empty() { String::new() } else { format!(" {}", p.value) };
        annotation("error", &format!("{}{value}: {} ({})", p.field, p.message, p.fix))
    };
    problems.iter().map(line).collect()
}

fn annotation(level: &str, text: &str) -> String {
    // GitHub's workflow commands require this: these three characters would end the command or begin another.
    let encoded = visible(text).replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    format!("::{level} title=Runyard::{encoded}\n")
}

fn told(problems: &[FieldError], format: Format) -> String {
    if format == Format::Json {
        let mut document = json!({"error": problems.first()});
        if problems.len() > 1 {
            document["errors"] = json!(problems);
        }
        return format!("{}\n", escaped(&document.to_string()));
    }
    // A line break in foreign text must not begin a workflow command (`::error::`) in a workflow's log.
    let inset = |text: &str| visible(text).replace('\n', "\n  ");
    let line = |p: &FieldError| {
        let got = if p.value.is_empty() { String::new() } else { format!(" {:?}", p.value) };
        format!(
            "error: {}{}: {}\n  fix: {}\n",
            plain(&p.field),
            visible(&got),
            inset(&p.message),
            inset(&p.fix)
        )
    };
    problems.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_for_programs_name_field_value_message_and_fix() {
        let problem = FieldError::new("--count", "0", "must be 1 to 500", "ask for 1 to 500 machines");
        let document: Value =
            serde_json::from_str(&told(std::slice::from_ref(&problem), Format::Json)).unwrap();
        assert_eq!(
            document,
            json!({"error": {"field": "--count", "value": "0", "message": "must be 1 to 500",
                             "fix": "ask for 1 to 500 machines"}})
        );
        let two: Value = serde_json::from_str(&told(&[problem.clone(), problem], Format::Json)).unwrap();
        assert_eq!(two["errors"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_workflows_annotation_is_one_line_whatever_it_says() {
        let problem = FieldError::new("request", "1", "failed: 100 %\nof it", "mend it");
        let expected = "::error title=Runyard::request 1: failed: 100 %25%0Aof it (mend it)\n";
        assert_eq!(annotations(&[problem]), expected);
    }

    #[test]
    fn what_records_say_cannot_move_the_cursor() {
        assert_eq!(plain("a\u{1b}[2Jb\u{202e}c\n"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}");
        assert_eq!(plain("\u{2028}\u{200e}\u{200f}\u{feff}"), "\u{fffd}".repeat(4));
    }

    #[test]
    fn no_form_of_output_has_a_byte_that_a_terminal_obeys_and_json_keeps_its_meaning() {
        let hostile = "a\u{1b}[2J\u{7}\u{7f}\u{9b}\u{202e}\u{200f}\r::error::x";
        let document = json!({"items": [{"kind": "pool", "resourceClass": hostile}]});
        for form in [
            "json",
            "yaml",
            "name",
            "csv",
            "jsonpath={.items[*].resourceClass}",
            "custom-columns=A:.resourceClass",
        ] {
            let output = Output::parse(form).unwrap();
            let (mut screen, written) = Screen::kept_at(&output, None);
            screen.document(&document);
            screen.next_document(&document);
            let raw = written();
            assert!(raw.chars().all(|c| c == '\n' || !unprintable(c)), "{form}: {raw:?}");
            assert!(raw.contains("::error::x"), "{form}: {raw:?}");
        }
        let read: Value = serde_json::from_str(&escaped(&document.to_string())).unwrap();
        assert_eq!(read, document);
        let (mut screen, written) = Screen::kept(Format::Text);
        screen.say(hostile);
        assert!(written().chars().all(|c| c == '\n' || !unprintable(c)));
    }

    #[test]
    fn an_error_with_words_of_others_begins_no_line_and_moves_no_cursor() {
        let problem = FieldError::new("f\n::a::", "v", "said \u{1b}[1m\n::error::x", "mend\r::b::");
        let text = told(&[problem], Format::Text);
        assert!(text.lines().all(|line| line.starts_with("error: ") || line.starts_with("  ")), "{text:?}");
        assert!(text.chars().all(|c| c == '\n' || !unprintable(c)), "{text:?}");
    }
}
