//! What an engine is started with.

pub(crate) mod builder;
mod limits;
mod memory;
