//! What holds for every verb.

mod newer;
mod reference;
mod shown;
