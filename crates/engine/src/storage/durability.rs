//! The durability that a reply promises.

use crate::option_enum::option_enum;

/// The durability that a reply promises.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// On the disk: survives a power cut.
    #[default]
    Sync,
    /// In the operating system's memory: survives the end of the process, even by `kill -9`. After a power cut the
    /// engine usually finds the directory damaged and reports this, rather than continuing from an earlier state: use
    /// it where starting empty is acceptable in that case.
    Os,
    /// In this process only: lost when it ends. Needs no directory.
    Memory,
}

option_enum!(Durability, UnknownDurability: "durability `{0}` is unknown: choose sync, os or memory" {
    Sync = "sync",
    Os = "os",
    Memory = "memory",
});
