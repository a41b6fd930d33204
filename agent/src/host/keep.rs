//! Kept directories: for each name and repository there is one generation on the disk, which a claim reads through an
//! overlay, with a layer of its own for its writes. After the claim its layers become the next generations if the
//! operator allows it, and are removed otherwise. All of it is in one directory of root, which jobs see only through
//! their own overlays. The files in it belong to the job user, because it must own them in the overlay. A generation
//! that cannot be read or proved is removed; the machine remains in use.

mod merge;
mod room;
mod serve;
mod store;

pub use self::store::{KeptStore, Promoted};

#[cfg(test)]
mod histories;
#[cfg(test)]
mod tests;
