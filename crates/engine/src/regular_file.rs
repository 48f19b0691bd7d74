//! Files that whoever starts an engine names: certificates, configuration.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Reads a regular file of at most `longest` bytes. Never waits for anybody who writes to it.
///
/// # Errors
/// If the file cannot be read, is longer, or is none: a pipe, which might never end, or a device.
pub fn read_regular_file(path: impl AsRef<Path>, longest: u64) -> io::Result<Vec<u8>> {
    // Or to open a pipe waits for somebody who writes to it.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut content = Vec::new();
    file.take(longest.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 > longest {
        let what = format!("it is longer than {longest} bytes");
        return Err(io::Error::new(ErrorKind::FileTooLarge, what));
    }
    Ok(content)
}
