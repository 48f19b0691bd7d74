//! Keeps processors awake, so that a machine on which waking is slow stands in for one on which it is fast.

use std::path::Path;
use std::process::Command;

use anyhow::Result;
use lockkeeper_testkit::process::Process;

use crate::peers::{child, ready_line};
use crate::processors::Processors;

/// Programs that run on each processor while nothing else wants it, until this is dropped.
///
/// They are of the scheduler's idle class: whatever wakes takes the processor from them at once, and need
/// not wait for it to leave its sleep. What is left of a wake-up is what a processor that polls while it is
/// idle has, as in virtual machines with Linux's own defaults.
pub(crate) struct Awake {
    _programs: Vec<Process>,
}

impl Awake {
    /// Starts them.
    ///
    /// # Errors
    /// If `chrt` (of util-linux) is missing, or the idle class is not allowed here.
    pub(crate) async fn start(folder: &Path) -> Result<Self> {
        let mut programs = Vec::new();
        for processor in Processors::all()? {
            let own = child(&["awake", &processor.to_string()])?;
            let mut idle = Command::new("chrt");
            idle.args(["--idle", "0"]).arg(own.get_program()).args(own.get_args());

            let mut program = Process::spawn(&format!("awake-{processor}"), &idle, folder)?;
            ready_line(&mut program).await?;
            programs.push(program);
        }
        Ok(Self { _programs: programs })
    }
}
