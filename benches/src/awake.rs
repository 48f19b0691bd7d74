//! Keeps processors awake, so that a machine on which waking is slow stands in for one on which it is fast.

use std::fs::{File, OpenOptions};
use std::io::Write as _;

use anyhow::{Context, Result};

/// What the kernel is told that a wake-up may take, as long as the file is open.
const LATENCY: &str = "/dev/cpu_dma_latency";

/// Until this is dropped, processors that have nothing to do poll, and do not sleep.
///
/// Virtual machines do much the same with Linux's own defaults.
pub(crate) struct Awake {
    _request: File,
}

impl Awake {
    /// Asks the kernel for it.
    ///
    /// # Errors
    /// If only root may ask, or this is not Linux.
    pub(crate) fn start() -> Result<Self> {
        let ask = || {
            let mut request = OpenOptions::new().write(true).open(LATENCY)?;
            request.write_all(&0_i32.to_ne_bytes())?;
            Ok::<_, std::io::Error>(request)
        };
        let request = ask().with_context(|| format!("cannot write {LATENCY}; are you root?"))?;
        Ok(Self { _request: request })
    }
}
