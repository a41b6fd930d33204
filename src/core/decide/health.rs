//! Which silence is a fault: of one machine, of many at once, of a first boot, or of a record that cannot be read?

pub(crate) mod beats;
pub(crate) mod boots;
pub(crate) mod runtime;
pub(crate) mod unread;
