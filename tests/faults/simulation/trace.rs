//! What happened, in order? Every call and every blow, as a hash over all of them and in words for the last ones.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::Mutex;

use tokio::time::Instant;

/// How many events a failing run shows.
const SHOWN: usize = 80;

/// The events of one run.
pub(crate) struct Trace {
    start: Instant,
    told: bool,
    kept: Mutex<Kept>,
}

struct Kept {
    hash: u64,
    calls: u64,
    last: VecDeque<String>,
    /// Where every event goes that is hashed, a line each, when somebody wants to compare traces.
    file: Option<BufWriter<File>>,
}

impl Trace {
    /// `told`: print every event as it happens. `file`: write each there, quiet ones too.
    pub(crate) fn new(told: bool, file: Option<&Path>) -> Self {
        let file = file.map(|path| BufWriter::new(File::create(path).expect("the trace's file can be made")));
        let kept = Kept { hash: 0xcbf2_9ce4_8422_2325, calls: 0, last: VecDeque::new(), file };
        Self { start: Instant::now(), told, kept: Mutex::new(kept) }
    }

    /// A call of a port, at its end. `quiet`: counted and hashed, not told.
    pub(crate) fn call(&self, actor: &str, name: &str, about: &str, outcome: &str, quiet: bool) {
        let mut kept = self.kept.lock().unwrap();
        kept.calls += 1;
        let millis = self.start.elapsed().as_millis() as u64;
        for part in [actor, name, about, outcome] {
            kept.hash = hashed(kept.hash, part.as_bytes());
        }
        kept.hash = hashed(kept.hash, &millis.to_le_bytes());
        if quiet {
            kept.write(&format!(
                "{:>9.3} {actor:<8} {name:<10} {outcome:<9} {about}",
                millis as f64 / 1000.0
            ));
        }
        drop(kept);
        if !quiet {
            self.tell(&format!("{actor:<8} {name:<10} {outcome:<9} {about}"));
        }
    }

    /// Anything else.
    pub(crate) fn tell(&self, what: &str) {
        let line = format!("{:>9.3} {what}", self.start.elapsed().as_secs_f64());
        let mut kept = self.kept.lock().unwrap();
        kept.hash = hashed(kept.hash, line.as_bytes());
        kept.write(&line);
        if self.told {
            println!("{line}");
        }
        kept.last.push_back(line);
        if kept.last.len() > SHOWN {
            kept.last.pop_front();
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.kept.lock().unwrap().hash
    }

    pub(crate) fn calls(&self) -> u64 {
        self.kept.lock().unwrap().calls
    }

    pub(crate) fn last(&self) -> String {
        self.kept.lock().unwrap().last.iter().map(|line| format!("{line}\n")).collect()
    }
}

impl Kept {
    fn write(&mut self, line: &str) {
        if let Some(file) = &mut self.file {
            writeln!(file, "{line}").expect("the trace's file can be written");
        }
    }
}

/// FNV-1a.
fn hashed(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
