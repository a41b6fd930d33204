//! How is a matrix run and held against its table? All cells at the same time: most of what they do is wait.

use futures::StreamExt as _;
use futures::stream;

use crate::matrix::Row;
use crate::proxy::Fault;

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
    let played = stream::iter(cells).map(|cell| async move {
        // Nobody can be refused once: who listens again is another peer.
        if (cell.fault, cell.lasting) == (Fault::Refused, Lasting::Once) {
            return Came { letter: '-', wrong: None };
        }
        play(cell).await
    });
    let came: Vec<Came> = played.buffered(120).collect().await;
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
