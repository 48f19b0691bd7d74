//! The layer check: which crate may depend on which, and in what order the modules of each crate
//! stand on each other.

mod crates;
mod modules;
pub(crate) mod paths;

use anyhow::{Result, bail};

use crate::cargo::workspace;

/// Checks this workspace.
///
/// # Errors
///
/// One line for each dependency and each import that points the wrong way.
pub(crate) fn run() -> Result<()> {
    let metadata = workspace()?;
    let mut offences = crates::check(&metadata);
    offences.extend(modules::check(&metadata)?);
    if !offences.is_empty() {
        bail!(
            "{} in the wrong direction (ARCHITECTURE.md has the picture, xtask/src/layers the \
             rules):\n  {}",
            match offences.len() {
                1 => "a dependency points".to_owned(),
                many => format!("{many} dependencies point"),
            },
            offences.join("\n  ")
        );
    }
    println!("{} packages, all in order", metadata.packages.len());
    Ok(())
}
