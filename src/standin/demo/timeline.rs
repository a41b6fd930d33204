//! Formats events for people: one line per event with the time since the start, its subject and its reason, folded at
//! 80 columns. Machines are numbered in order of appearance.

use std::collections::BTreeMap;

use jiff::Timestamp;

use runyard_core::model::Event;

const WIDTH: usize = 80;
const INDENT: usize = 24;

/// Formats events as lines.
pub(super) struct Timeline {
    start: Timestamp,
    /// Machine ids and their numbers.
    machines: BTreeMap<String, usize>,
}

impl Timeline {
    pub(super) fn starting(start: Timestamp) -> Self {
        Self { start, machines: BTreeMap::new() }
    }

    /// Formats an event.
    pub(super) fn event(&mut self, event: &Event) -> String {
        let (kind, rest) = event.subject.split_once('#').unwrap_or(("", &event.subject));
        let who = match kind {
            "instance" | "agent" => self.machine(rest.rsplit('/').next().unwrap_or(rest)),
            "request" => format!("run {}", rest.rsplit('#').next().unwrap_or(rest)),
            "pool" => format!("class {rest}"),
            other => other.to_owned(),
        };
        let change = match (&event.from, &event.to) {
            (Some(from), Some(to)) if from != to => format!("{from} → {to}: "),
            (None, Some(to)) => format!("{to}: "),
            (Some(_) | None, _) => String::new(),
        };
        let message = if event.message.is_empty() { &event.reason } else { &event.message };
        self.line(event.at, &who, &format!("{change}{}", self.short(message)))
    }

    /// Formats a line of the demonstration.
    pub(super) fn said(&self, at: Timestamp, text: &str) -> String {
        self.line(at, "", &self.short(text))
    }

    fn machine(&mut self, id: &str) -> String {
        let next = self.machines.len() + 1;
        format!("machine {}", self.machines.entry(id.to_owned()).or_insert(next))
    }

    /// Replaces ids by numbers.
    fn short(&self, text: &str) -> String {
        let named =
            |text: String, (id, number): (&String, &usize)| text.replace(id, &format!("machine {number}"));
        self.machines.iter().fold(text.to_owned(), named)
    }

    fn line(&self, at: Timestamp, who: &str, text: &str) -> String {
        let passed = at.duration_since(self.start).as_secs_f64().max(0.0);
        fold(&format!("{passed:>7.2} s  {who:<12}"), text)
    }
}

/// Formats text in a column behind a head, broken between words.
fn fold(head: &str, text: &str) -> String {
    let mut lines = vec![format!("{head:<INDENT$}").chars().take(INDENT).collect::<String>()];
    let mut room = WIDTH - INDENT;
    for word in text.split_whitespace() {
        let length = word.chars().count() + 1;
        if length > room && room < WIDTH - INDENT {
            lines.push(" ".repeat(INDENT));
            room = WIDTH - INDENT;
        }
        let last = lines.last_mut().expect("there is always a line");
        last.push_str(word);
        last.push(' ');
        room = room.saturating_sub(length);
    }
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(subject: &str, message: &str) -> Event {
        let at = Timestamp::UNIX_EPOCH + std::time::Duration::from_millis(1230);
        let record = runyard_core::model::RecordId::new(subject, "record");
        let mut event = Event::new(&record, "e".into(), at, "operator");
        event.message = message.into();
        (event.from, event.to) = (Some("created".into()), Some("running".into()));
        event
    }

    #[test]
    fn a_line_tells_when_who_what_and_why() {
        let mut timeline = Timeline::starting(Timestamp::UNIX_EPOCH);
        let line = timeline.event(&event("instance#arn:aws:ec2:local:0:instance/i-1", "its runner listens"));
        assert_eq!(line, "   1.23 s  machine 1    created → running: its runner listens");
        let again = timeline.event(&event("request#demo/app#7", "holds i-1"));
        assert!(again.ends_with("run 7        created → running: holds machine 1"), "{again}");
    }

    #[test]
    fn long_texts_are_folded_within_80_columns() {
        let mut timeline = Timeline::starting(Timestamp::UNIX_EPOCH);
        let text = timeline.event(&event("pool#small", &"some words and more ".repeat(12)));
        assert!(text.lines().count() > 2);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with(&" ".repeat(INDENT))), "{text}");
    }
}
