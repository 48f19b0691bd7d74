//! How much a reply promises.

use std::fmt;
use std::str::FromStr;

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

impl Durability {
    fn name(self) -> &'static str {
        match self {
            Durability::Sync => "sync",
            Durability::Os => "os",
            Durability::Memory => "memory",
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no [`Durability`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("durability `{0}` is unknown: choose sync, os or memory")]
pub struct UnknownDurability(String);

impl FromStr for Durability {
    type Err = UnknownDurability;

    fn from_str(word: &str) -> Result<Durability, UnknownDurability> {
        [Durability::Sync, Durability::Os, Durability::Memory]
            .into_iter()
            .find(|durability| durability.name() == word)
            .ok_or_else(|| UnknownDurability(word.to_owned()))
    }
}
