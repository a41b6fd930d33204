//! How results are printed: tables, documents, and values selected from documents.

pub(crate) mod columns;
pub(crate) mod format;
pub(crate) mod json;
pub(crate) mod path;
pub(crate) mod pick;
pub(crate) mod progress;
pub(crate) mod screen;
pub(crate) mod table;
