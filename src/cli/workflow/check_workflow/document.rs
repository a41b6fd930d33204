//! Reads a YAML document with the line of each key and each value, as GitHub reads a workflow file: anchors and aliases
//! are followed, merge keys and repeated keys are refused.

use std::collections::BTreeMap;
use std::rc::Rc;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

/// Maximum nesting depth of lists and mappings.
const DEEPEST: usize = 64;
/// Maximum number of aliases in a file.
const MOST_ALIASES: usize = 1000;

/// The reason why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The line, from 1.
    pub(super) line: usize,
    /// The refused value, if it is one word.
    pub(super) value: String,
    /// The problem.
    pub(super) message: String,
    /// The fix.
    pub(super) fix: String,
}

impl Refusal {
    /// Creates a refusal of `value` in this line.
    pub(super) fn new(line: usize, value: &str, message: impl Into<String>, fix: &str) -> Self {
        Self { line, value: value.into(), message: message.into(), fix: fix.into() }
    }
}

/// A value and its position.
#[derive(Debug)]
pub(super) struct Node {
    /// Its first line, from 1.
    pub(super) line: usize,
    /// The value.
    pub(super) value: Value,
}

/// A YAML value.
#[derive(Debug)]
pub(super) enum Value {
    /// A scalar, with each of its lines as in the file.
    Text { text: String, lines: Vec<(usize, String)> },
    /// A list.
    List(Vec<Rc<Node>>),
    /// A mapping, in the file's order.
    Map(Vec<(Key, Rc<Node>)>),
}

/// A key of a mapping.
#[derive(Debug)]
pub(super) struct Key {
    /// The key.
    pub(super) name: String,
    /// Its line, from 1.
    pub(super) line: usize,
}

impl Node {
    /// Returns the text of a scalar.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text { text, .. } => Some(text),
            Value::List(_) | Value::Map(_) => None,
        }
    }

    /// Returns the lines of a scalar.
    pub(super) fn lines(&self) -> &[(usize, String)] {
        match &self.value {
            Value::Text { lines, .. } => lines,
            Value::List(_) | Value::Map(_) => &[],
        }
    }

    /// Returns the items of a list.
    pub(super) fn items(&self) -> Option<&[Rc<Self>]> {
        match &self.value {
            Value::List(items) => Some(items),
            Value::Text { .. } | Value::Map(_) => None,
        }
    }

    /// Returns the entries of a mapping.
    pub(super) fn entries(&self) -> Option<&[(Key, Rc<Self>)]> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            Value::Text { .. } | Value::List(_) => None,
        }
    }

    /// Returns a key of a mapping and its value.
    pub(super) fn entry(&self, name: &str) -> Option<(&Key, &Rc<Self>)> {
        self.entries()?.iter().find(|(key, _)| key.name == name).map(|(key, value)| (key, value))
    }

    /// Returns the value of a key.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        self.entry(name).map(|(_, value)| &**value)
    }

    /// Returns whether the value is empty or null.
    pub(super) fn is_null(&self) -> bool {
        self.text().is_some_and(|text| matches!(text, "" | "~" | "null"))
    }
}

/// A list or a mapping that is not closed yet.
struct Open {
    line: usize,
    anchor: usize,
    map: bool,
    items: Vec<Rc<Node>>,
    entries: Vec<(Key, Rc<Node>)>,
    key: Option<Key>,
}

struct Reader<'a> {
    source: Vec<&'a str>,
    open: Vec<Open>,
    anchors: BTreeMap<usize, Rc<Node>>,
    aliases: usize,
    documents: usize,
    root: Option<Rc<Node>>,
}

/// Reads the only document of a text.
pub(super) fn read(text: &str) -> Result<Rc<Node>, Refusal> {
    let mut reader = Reader {
        source: text.lines().collect(),
        open: Vec::new(),
        anchors: BTreeMap::new(),
        aliases: 0,
        documents: 0,
        root: None,
    };
    for event in Parser::new_from_str(text) {
        match event {
            Ok((event, span)) => reader.take(event, span)?,
            Err(error) => return Err(reader.unreadable(error.marker().line(), error.info())),
        }
    }
    let fix = "name a workflow file, such as .github/workflows/test.yml";
    reader.root.ok_or_else(|| Refusal::new(1, "", "holds no YAML document", fix))
}

impl Reader<'_> {
    fn unreadable(&self, line: usize, why: &str) -> Refusal {
        let from = self.source.iter().enumerate().skip(line.saturating_sub(1));
        let mut near = from.take(if why.contains("tab") { usize::MAX } else { 1 });
        let is_indented_by_tab = |text: &str| text[..text.len() - text.trim_start().len()].contains('\t');
        if let Some((at, _)) = near.find(|(_, text)| is_indented_by_tab(text)) {
            return Refusal::new(
                at + 1,
                "",
                "is indented by a tab",
                "indent with spaces; YAML takes no tabs",
            );
        }
        Refusal::new(line, "", format!("is not YAML: {why}"), "write YAML that GitHub accepts too")
    }

    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Refusal> {
        let line = span.start.line();
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => {
                self.documents += 1;
                let fix = "write one workflow a file, without a second `---`";
                let second = || Refusal::new(line, "---", "begins a second document", fix);
                if self.documents > 1 { Err(second()) } else { Ok(()) }
            }
            Event::Alias(id) => self.alias(id, line),
            Event::Scalar(text, style, anchor, _) => {
                let lines = self.lines(&text, style, span);
                let text = Value::Text { text: text.into_owned(), lines };
                self.put(Node { line, value: text }, anchor)
            }
            Event::SequenceStart(anchor, _) => self.begin(line, anchor, false),
            Event::MappingStart(anchor, _) => self.begin(line, anchor, true),
            Event::SequenceEnd | Event::MappingEnd => self.end(),
        }
    }

    fn alias(&mut self, id: usize, line: usize) -> Result<(), Refusal> {
        self.aliases += 1;
        if self.aliases > MOST_ALIASES {
            let message = format!("has more than {MOST_ALIASES} aliases");
            return Err(Refusal::new(line, "", message, "write out what the aliases stand for"));
        }
        let fix = "write out what the alias stands for";
        let node = self.anchors.get(&id).cloned();
        let node = node.ok_or_else(|| Refusal::new(line, "", "is an alias of what it is in", fix))?;
        self.add(node)
    }

    fn begin(&mut self, line: usize, anchor: usize, map: bool) -> Result<(), Refusal> {
        if self.open.len() == DEEPEST {
            let message = format!("is nested more than {DEEPEST} levels deep");
            return Err(Refusal::new(line, "", message, "nest less"));
        }
        let (items, entries) = Default::default();
        self.open.push(Open { line, anchor, map, items, entries, key: None });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Refusal> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let value = if open.map { Value::Map(open.entries) } else { Value::List(open.items) };
        self.put(Node { line: open.line, value }, open.anchor)
    }

    fn put(&mut self, node: Node, anchor: usize) -> Result<(), Refusal> {
        let node = Rc::new(node);
        if anchor > 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        self.add(node)
    }

    /// Adds a complete value to its parent.
    fn add(&mut self, node: Rc<Node>) -> Result<(), Refusal> {
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        if !open.map {
            open.items.push(node);
        } else if let Some(key) = open.key.take() {
            open.entries.push((key, node));
        } else {
            open.key = Some(key(&node, &open.entries)?);
        }
        Ok(())
    }

    /// Returns the lines of a scalar that is a block or spans several lines, as in the file.
    fn lines(&self, text: &str, style: ScalarStyle, span: Span) -> Vec<(usize, String)> {
        let (first, last) = (span.start.line(), span.end.line());
        let block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
        if !block && first == last {
            return vec![(first, text.to_owned())];
        }
        let source = || self.source.iter().enumerate().map(|(at, line)| (at + 1, *line));
        let indent = |line: &str| line.len() - line.trim_start_matches(' ').len();
        let (mut begin, mut column) = (first, span.start.col());
        // The span of a block with an anchor begins at the anchor, in the line before it.
        let head = source().find(|(at, _)| *at == first).map_or("", |(_, line)| line);
        if block && indent(head) < column {
            begin += 1;
            let text = source().skip(first).find(|(_, line)| !line.trim().is_empty());
            column = text.map_or(0, |(_, line)| indent(line));
        }
        let inside = |line: &str| !block || line.trim().is_empty() || indent(line) >= column;
        let lines = source().skip(begin.saturating_sub(1)).take((last + 1).saturating_sub(begin));
        let lines = lines.take_while(|(_, line)| inside(line));
        lines.map(|(at, line)| (at, line.trim().trim_matches(['"', '\'']).to_owned())).collect()
    }
}

/// Checks a key against the keys that the mapping has already.
fn key(node: &Node, beside: &[(Key, Rc<Node>)]) -> Result<Key, Refusal> {
    let line = node.line;
    let Some(name) = node.text() else {
        return Err(Refusal::new(line, "", "has a key that is no text", "write a word before the colon"));
    };
    if name == "<<" {
        let fix = "GitHub takes anchors and aliases, but no merge keys: write the keys out";
        return Err(Refusal::new(line, name, "is a merge key", fix));
    }
    if let Some((first, _)) = beside.iter().find(|(key, _)| key.name == name) {
        let message = format!("is there already, in line {}", first.line);
        return Err(Refusal::new(line, name, message, "write each key once"));
    }
    Ok(Key { name: name.to_owned(), line })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> (usize, String) {
        let refusal = read(text).unwrap_err();
        assert!(!refusal.fix.is_empty(), "{text:?}");
        (refusal.line, refusal.message)
    }

    #[test]
    fn every_line_of_a_script_has_its_number_in_the_file() {
        for (text, expected) in [
            ("a: |\n\n  x\n  # y\n\n  z\nb: 1\n", vec![(3, "x"), (4, "# y"), (5, ""), (6, "z")]),
            ("a: >-\n  x\n  y\nb: 1\n", vec![(2, "x"), (3, "y")]),
            ("a: |\r\n  x\r\n  y", vec![(2, "x"), (3, "y")]),
            ("a: |2\n    x\n  y\n", vec![(2, "x"), (3, "y")]),
            ("a: &s |\n  x\nb: 2\n", vec![(2, "x")]),
            ("a: &s x\n", vec![(1, "x")]),
            ("a:\n  'x''y'\n", vec![(2, "x'y")]),
            ("a: \"x\n  y\"\n", vec![(1, "a: \"x"), (2, "y")]),
            ("a:\n", vec![(1, "")]),
        ] {
            let root = read(text).unwrap();
            let lines = root.get("a").unwrap().lines();
            let lines: Vec<_> = lines.iter().map(|(at, line)| (*at, line.as_str())).collect();
            assert_eq!(lines, expected, "{text:?}");
        }
    }

    #[test]
    fn keys_and_items_have_their_lines_also_behind_aliases() {
        let root = read("a: &x\n  b: 1\nc:\n  - *x\n  - [2,\n     3]\n").unwrap();
        assert_eq!(root.entry("c").map(|(key, _)| key.line), Some(3));
        let items = root.get("c").unwrap().items().unwrap();
        assert_eq!(items[0].entry("b").map(|(key, node)| (key.line, node.text())), Some((2, Some("1"))));
        assert_eq!(items[1].items().unwrap()[1].line, 6);
    }

    #[test]
    fn what_is_no_yaml_of_githubs_is_refused_by_its_line() {
        for (text, line, words) in [
            ("", 1, "no YAML document"),
            ("# nothing\n", 1, "no YAML document"),
            ("a:\n\tb: 1\n", 2, "tab"),
            ("a:\n  b: 1\n\tc: 1\n", 3, "tab"),
            ("a: 1\n---\nb: 1\n", 2, "second document"),
            ("a: [1\n", 2, "is not YAML"),
            ("a: 'x\n", 1, "is not YAML"),
            ("a: *x\n", 1, "is not YAML"),
            ("a: &x [*x]\n", 1, "alias"),
            ("a: &x {b: 1}\nc:\n  <<: *x\n", 3, "merge key"),
            ("a: 1\nb: 1\na: 2\n", 3, "in line 1"),
            ("? [a]\n: b\n", 1, "no text"),
        ] {
            let (at, message) = refused(text);
            assert!(message.contains(words), "{text:?}: {message}");
            assert_eq!(at, line, "{text:?}: {message}");
        }
    }

    #[test]
    fn no_depth_and_no_number_of_aliases_is_too_much() {
        let aliases = format!("a: &x 1\nb:\n{}", "  - *x\n".repeat(MOST_ALIASES + 1));
        let flow = "[".repeat(100_000);
        let block = "- ".repeat(2000);
        for text in [&aliases, &flow, &block, &"{a: ".repeat(5000), &"\u{0}".repeat(9), &"? ".repeat(2000)] {
            assert!(read(text).is_err(), "{}", &text[..20.min(text.len())]);
        }
    }
}
