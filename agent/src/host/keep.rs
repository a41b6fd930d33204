//! Kept directories: for each name and repository one generation on the disk, which a claim reads through an overlay and
//! writes above it into a layer of its own. After the claim its layers become the next generations if the operator says
//! so, and are removed otherwise. All of it lies in one directory of root's, which no job sees but through its own
//! overlays; the files in it belong to the job user, since it is to own them in there. What cannot be read or proved of
//! a generation costs the generation, never the machine.

mod merge;
mod room;
mod serve;
mod store;

pub use self::store::{KeptStore, Promoted};

#[cfg(test)]
mod histories;
#[cfg(test)]
mod tests;
