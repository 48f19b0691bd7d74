//! Standard output, and the log on standard error.

use std::io::{self, ErrorKind, IsTerminal, Write};

use serde::Serialize;
use tracing_subscriber::EnvFilter;

use crate::exit::{Exit, Failure};

/// Tells the user one line on standard error. If nobody reads it, nobody misses it.
pub(crate) fn tell(message: &str) {
    let _ = writeln!(io::stderr().lock(), "lockkeeper: {message}");
}

/// Writes to standard output. A reader that has gone (`| head`) is no error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Disk, format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a value as JSON, for programs.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::new(Exit::Bug, format!("cannot write JSON: {error}")))?;
    print(&format!("{text}\n"))
}

/// Whether colours would be seen: a terminal, and nobody has asked for none.
pub(crate) fn colours() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty())
}

/// Starts the log on standard error. `LOCKKEEPER_LOG` has the last word, in the syntax of
/// tracing's `EnvFilter`.
pub(crate) fn start_log(verbose: u8, server: bool) {
    let default = match verbose + u8::from(server) {
        // What a lost connection means for a lock is told in so many words.
        0 => "warn,lockkeeper_client=off",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let wanted = std::env::var("LOCKKEEPER_LOG").ok().filter(|filter| !filter.is_empty());
    let filter = EnvFilter::new(wanted.as_deref().unwrap_or(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .init();
}
