//! A GitHub of one's own.
