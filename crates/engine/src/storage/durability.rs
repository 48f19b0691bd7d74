//! How much a reply promises.

use crate::option_enum::option_enum;

/// How much a reply promises.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// On the disk: survives a power cut.
    #[default]
    Sync,
    /// With the operating system: survives the end of the process, even by `kill -9`. After a
    /// power cut the engine most often finds the directory damaged, and says so, rather than an
    /// earlier state: for use where starting empty is then acceptable.
    Os,
    /// In this process only: gone when it ends. Needs no directory.
    Memory,
}

option_enum!(Durability, UnknownDurability: "durability `{0}` is unknown: choose sync, os or memory" {
    Sync = "sync",
    Os = "os",
    Memory = "memory",
});
