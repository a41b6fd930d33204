//! What the outside must do for us, in our nouns.

pub mod github;
