//! Client connections: the listeners, and the task of each connection.

mod conversation;
pub(crate) mod listener;
