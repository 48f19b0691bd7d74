//! From the options to a session, and what a command does in one: it waits for locks, or follows them.

pub(crate) mod beside;
pub(crate) mod command_line;
pub(crate) mod connect;
pub(crate) mod follow;
pub(crate) mod lasting;
pub(crate) mod nested;
pub(crate) mod used;
pub(crate) mod waiting;
