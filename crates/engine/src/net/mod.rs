//! Clients on their way in and out: new connections, and the task of each.

mod conversation;
pub(crate) mod listener;
