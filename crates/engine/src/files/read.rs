//! Reads whole files.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Reads a regular file of at most `longest` bytes that a user names: a certificate, a configuration. Symbolic links
/// are followed, because such files are often replaced by them. Never waits for a writer.
///
/// # Errors
/// The file cannot be read, is longer, or is not a regular file: for example a pipe, which might never end, or a
/// device.
#[expect(clippy::disallowed_methods, reason = "the user names the file, with its links")]
pub fn read_regular_file(path: impl AsRef<Path>, longest: u64) -> io::Result<Vec<u8>> {
    // Otherwise, opening a pipe would wait for a writer.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    read_at_most(file, longest)
}

/// Reads a file of the kernel below `/proc` or `/sys`.
///
/// # Errors
/// The file does not exist.
#[expect(clippy::disallowed_methods, reason = "only the kernel creates files there")]
pub fn read_kernel_file(path: impl AsRef<Path>) -> io::Result<String> {
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

pub(super) fn read_at_most(file: impl Read, longest: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(longest.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 > longest {
        let what = format!("it is longer than {longest} bytes");
        return Err(io::Error::new(ErrorKind::InvalidData, what));
    }
    Ok(content)
}
