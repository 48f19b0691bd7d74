//! Reads what the user puts, sets or publishes: an argument or standard input.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::shared::exit::{Exit, Failure};
use crate::shared::output::tell;

/// The largest input. Larger data does not belong in a lock service.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// The bytes of the argument, or of standard input if the argument is missing.
pub(crate) fn content(given: Option<OsString>) -> Result<Vec<u8>, Failure> {
    match given {
        Some(text) => Ok(text.into_vec()),
        None => standard_input(),
    }
}

/// The lines of standard input, without line ends.
pub(crate) fn lines() -> Result<Vec<Vec<u8>>, Failure> {
    let text = standard_input()?;
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec);
    let mut lines: Vec<_> = lines.collect();
    // The part after the last line end is empty.
    lines.pop_if(|last| last.is_empty());
    Ok(lines)
}

fn standard_input() -> Result<Vec<u8>, Failure> {
    let input = io::stdin();
    if input.is_terminal() {
        tell("reading from standard input, until Ctrl-D");
    }
    let mut bytes = Vec::new();
    let read = input.lock().take(MAX_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| Failure::new(Exit::Disk, format!("cannot read standard input: {error}")))?;
    if bytes.len() as u64 > MAX_BYTES {
        let message = format!("standard input exceeds {MAX_BYTES} bytes");
        return Err(Failure::new(Exit::Data, message));
    }
    Ok(bytes)
}

/// Bytes as text, for people and for JSON; `None` if they are not UTF-8.
pub(crate) fn text(bytes: &[u8]) -> Option<&str> {
    OsStr::from_bytes(bytes).to_str()
}

/// Bytes that are not UTF-8, for JSON.
pub(crate) fn base64(bytes: &bytes::Bytes) -> String {
    STANDARD.encode(bytes)
}
