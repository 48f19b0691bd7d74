//! Opens sessions, and contains what commands do in them: wait for locks, or follow their changes.

pub(crate) mod command_line;
pub(crate) mod connect;
pub(crate) mod follow;
pub(crate) mod limited;
pub(crate) mod nested;
pub(crate) mod path_use;
pub(crate) mod user_command;
pub(crate) mod waiting;
