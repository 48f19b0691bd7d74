//! Our Python programs that use kazoo, run by the system's Python.

use std::path::Path;
use std::process::Command;

use crate::peers;

/// A command that runs `script`; the caller adds arguments.
pub fn command(script: &Path) -> Command {
    let mut command = Command::new(peers::SYSTEM_PYTHON);
    // Byte code must not be written into the repository.
    command.env("PYTHONDONTWRITEBYTECODE", "1").arg(script);
    command
}
