//! (being written)

#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the listener that uses it is being written")
)]
mod storage;

pub use storage::{Durability, StorageError, UnknownDurability};
