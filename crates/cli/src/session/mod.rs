//! Opens sessions, and contains what commands do in them: wait for locks, or follow their changes.

pub(crate) mod beside;
pub(crate) mod command_line;
pub(crate) mod connect;
pub(crate) mod follow;
pub(crate) mod lasting;
pub(crate) mod nested;
pub(crate) mod used;
pub(crate) mod waiting;
