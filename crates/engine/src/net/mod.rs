//! Clients on their way in and out: new connections, and the task of each.

pub(crate) mod admission;
pub(crate) mod conversation;
pub(crate) mod listener;
