//! Properties of every verb.

mod newer;
mod reference;
mod shown;
