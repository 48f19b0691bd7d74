//! The layer check: which crate may depend on which, and that the modules of a crate do not depend on each
//! other in cycles.

mod crates;
mod modules;
pub(crate) mod paths;

use anyhow::{Result, bail};

use crate::cargo::workspace;

/// Checks this workspace.
///
/// # Errors
///
/// One line for each dependency and each import in the wrong direction.
pub(crate) fn run() -> Result<()> {
    let metadata = workspace()?;
    let mut offences = crates::check(&metadata);
    offences.extend(modules::check(&metadata)?);
    if !offences.is_empty() {
        bail!(
            "{} in the wrong direction (see ARCHITECTURE.md for the picture, xtask/src/layers for the \
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
