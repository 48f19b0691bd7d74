//! The settings of an engine: set in `builder`, read from a `plan`.

pub(crate) mod builder;
pub(crate) mod four_letter;
pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod plan;
