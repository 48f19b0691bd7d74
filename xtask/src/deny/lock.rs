//! What is read of `Cargo.lock`.

use serde::Deserialize;

/// A package of `Cargo.lock`, for whatever system.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Locked {
    pub(super) name: String,
    pub(super) version: String,
    /// None for the packages of this workspace, and for others that are read from a folder.
    pub(super) source: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Lock {
    pub(super) package: Vec<Locked>,
}
