//! How inputs are bent: as bytes, as lines, and, where they are JSON, as values.

use serde_json::{Map, Value, json};

pub(crate) type Bytes = Vec<u8>;

/// Longest input.
const LONGEST: usize = 64 * 1024;

/// Chance that is the same on every run (SplitMix64).
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(name: &str) -> Self {
        Self(name.bytes().fold(0x9e37_79b9, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into())))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 if there is none.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end.max(1) as u64)).expect("below a usize")
    }

    pub(crate) fn of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }
}

/// What numbers, times and names break on, whatever they are for.
const WORDS: &[&str] = &[
    "",
    "0",
    "-1",
    "1e126",
    "-0",
    "4294967296",
    "2147483647",
    "18446744073709551616",
    "9007199254740993",
    "NaN",
    "1970-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "-009999-01-02T01:59:59Z",
    "null",
    "true",
    "\u{feff}",
    "\u{202e}",
    "\n",
    "\0",
    "../..",
    "$(id)",
    "--",
    "#",
    "é",
    "𝔸",
    "{}",
    "[]",
    "\"",
    "\\",
];

/// An input made of the seeds: one of them, bent one to six times.
pub(crate) fn mutated(seeds: &[Bytes], words: &[&str], chance: &mut Chance) -> Bytes {
    let mut input = seeds[chance.below(seeds.len())].clone();
    for _ in 0..=chance.below(6) {
        let as_json = chance.below(2) == 0;
        match serde_json::from_slice::<Value>(&input) {
            Ok(mut value) if as_json => {
                bend(&mut value, words, chance);
                input = serde_json::to_vec(&value).expect("a value is JSON");
            }
            _ => bytes(&mut input, seeds, words, chance),
        }
    }
    input.truncate(LONGEST);
    input
}

fn word<'a>(words: &[&'a str], chance: &mut Chance) -> &'a str {
    if words.is_empty() || chance.below(2) == 0 { chance.of(WORDS) } else { chance.of(words) }
}

fn bytes(input: &mut Bytes, seeds: &[Bytes], words: &[&str], chance: &mut Chance) {
    let at = chance.below(input.len() + 1);
    let end = (at + 1 + chance.below(8)).min(input.len());
    match chance.below(9) {
        0 if at < input.len() => input[at] ^= 1 << chance.below(8),
        1 if at < input.len() => input[at] = chance.next().to_le_bytes()[0],
        2 => drop(input.drain(at.min(end)..end)),
        3 => {
            let word = word(words, chance);
            input.splice(at..at, word.bytes());
        }
        4 => {
            let word = word(words, chance);
            input.splice(at.min(end)..end, word.bytes());
        }
        5 => {
            let part = input[at.min(end)..end].repeat(1 + chance.below(64));
            input.splice(at..at, part);
        }
        6 => {
            let other = &seeds[chance.below(seeds.len())];
            let from = chance.below(other.len() + 1);
            input.truncate(at);
            input.extend(&other[from..]);
        }
        7 => lines(input, chance),
        _ => input.truncate(at),
    }
}

/// A line goes, comes twice, or changes its place.
fn lines(input: &mut Bytes, chance: &mut Chance) {
    let mut lines: Vec<Bytes> = input.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    let (one, two) = (chance.below(lines.len()), chance.below(lines.len()));
    match chance.below(3) {
        0 => drop(lines.remove(one)),
        1 => lines.insert(two, lines[one].clone()),
        _ => lines.swap(one, two),
    }
    *input = lines.join(&b'\n');
}

/// Somewhere in a value something becomes something else.
fn bend(value: &mut Value, words: &[&str], chance: &mut Chance) {
    let deeper = chance.below(5) > 0;
    match value {
        Value::Object(map) if deeper && !map.is_empty() => member(map, words, chance),
        Value::Array(all) if deeper && !all.is_empty() => {
            let at = chance.below(all.len());
            match chance.below(6) {
                0 => drop(all.remove(at)),
                1 => all.push(all[at].clone()),
                _ => bend(&mut all[at], words, chance),
            }
        }
        other => *other = leaf(other, words, chance),
    }
}

fn member(map: &mut Map<String, Value>, words: &[&str], chance: &mut Chance) {
    let name = map.keys().nth(chance.below(map.len())).expect("below its length").clone();
    match chance.below(8) {
        0 => drop(map.remove(&name)),
        1 => {
            let value = map[&name].clone();
            map.insert(word(words, chance).to_owned(), value);
        }
        2 => {
            let other = map.values().nth(chance.below(map.len())).expect("below its length").clone();
            map.insert(name, other);
        }
        _ => bend(map.get_mut(&name).expect("it is there"), words, chance),
    }
}

fn leaf(old: &Value, words: &[&str], chance: &mut Chance) -> Value {
    match (chance.below(9), old) {
        (0, _) => Value::Null,
        (1, _) => json!(chance.next()),
        (2, _) => json!(-1),
        (3, _) => json!([old]),
        (4, _) => json!({ word(words, chance): old }),
        // Three such in a row would be gigabytes.
        (5, Value::String(text)) => {
            json!(text.repeat((1 + chance.below(300)).min(1 + LONGEST / text.len().max(1))))
        }
        (6, Value::String(text)) => {
            let mut bytes = text.clone().into_bytes();
            let at = chance.below(bytes.len() + 1);
            bytes.splice(at..at, word(words, chance).bytes());
            json!(String::from_utf8_lossy(&bytes))
        }
        (7, _) => json!(true),
        _ => json!(word(words, chance)),
    }
}
