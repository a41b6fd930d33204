//! How is a matrix run and held against its table? Many cells at the same time: most of what they do is wait.

use std::sync::atomic::{AtomicUsize, Ordering};

use aws_config::{Region, SdkConfig};
use futures::StreamExt as _;
use futures::stream;

use crate::ec2::benches::sdk_config;
use crate::wire::matrix::Row;
use crate::wire::proxy::Fault;

/// How many cells are played at the same time, beside those that wait in silence.
const AT_ONCE: usize = 5;

/// How often a fault happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lasting {
    Once,
    Always,
}

impl Lasting {
    pub(crate) fn times(self) -> usize {
        match self {
            Self::Once => 1,
            Self::Always => usize::MAX,
        }
    }
}

/// A client's configuration, in a region of its own: clients of one region share what they may spend on retries.
pub(crate) async fn config(endpoint: &str) -> SdkConfig {
    static REGIONS: AtomicUsize = AtomicUsize::new(0);
    let region = format!("eu-central-{}", REGIONS.fetch_add(1, Ordering::SeqCst));
    sdk_config(endpoint).await.to_builder().region(Region::new(region)).build()
}

/// One cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) call: &'static str,
    pub(crate) fault: Fault,
    pub(crate) lasting: Lasting,
}

/// What came of one: its letter, and what happened that never may.
pub(crate) struct Came {
    pub(crate) letter: char,
    pub(crate) wrong: Option<String>,
}

/// Runs every cell of a table and compares.
pub(crate) async fn judge(rows: &[Row], play: impl AsyncFn(Cell) -> Came) {
    let mut cells = Vec::new();
    for (call, _, _) in rows {
        for lasting in [Lasting::Once, Lasting::Always] {
            cells.extend(Fault::ALL.map(|fault| Cell { call, fault, lasting }));
        }
    }
    let play = &play;
    let played = |(at, cell): (usize, Cell)| async move {
        // Nobody can be refused once: who listens again is another peer.
        if (cell.fault, cell.lasting) == (Fault::Refused, Lasting::Once) {
            return (at, Came { letter: '-', wrong: None });
        }
        (at, play(cell).await)
    };
    // Silence is waited for by all at the same time; the others take turns, so that none waits for a processor.
    let numbered = cells.into_iter().enumerate();
    let (silent, others): (Vec<_>, Vec<_>) = numbered.partition(|(_, cell)| cell.fault == Fault::Hang);
    let silent = stream::iter(silent).map(played).buffer_unordered(usize::MAX).collect::<Vec<_>>();
    let others = stream::iter(others).map(played).buffer_unordered(AT_ONCE).collect::<Vec<_>>();
    let (mut all, others) = futures::future::join(silent, others).await;
    all.extend(others);
    all.sort_by_key(|(at, _)| *at);
    let came: Vec<Came> = all.into_iter().map(|(_, came)| came).collect();
    let (mut told, mut wanted, mut wrongs) = (String::new(), String::new(), Vec::new());
    for (row, came) in rows.iter().zip(came.chunks(2 * Fault::ALL.len())) {
        let letters: String = came.iter().map(|came| came.letter).collect();
        let (once, always) = letters.split_at(Fault::ALL.len());
        told.push_str(&format!("(\"{}\", \"{once}\", \"{always}\"),\n", row.0));
        wanted.push_str(&format!("(\"{}\", \"{}\", \"{}\"),\n", row.0, row.1, row.2));
        wrongs.extend(came.iter().filter_map(|came| came.wrong.clone()));
    }
    assert_eq!(wrongs, Vec::<String>::new());
    assert_eq!(told, wanted, "came:\n{told}wanted:\n{wanted}");
}
