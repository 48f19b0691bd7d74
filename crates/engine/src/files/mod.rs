//! How files are opened: all those of a data directory, of a home, and what stands beside them.
//!
//! A program that runs as root can be led astray by another user: a symbolic link in the place of a file
//! makes it write elsewhere, a pipe makes it wait, a device has no end, and a file with another owner says
//! what its owner likes. So a file is opened relative to its directory, which stays open; it has to be a
//! regular file of a trusted owner; and no more of it is read than it may have. No other code of the
//! engine or the command opens such files: `clippy.toml` disallows it.

mod directory;
mod owners;
mod way;

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

pub use self::directory::{Access, Directory};
pub(crate) use self::owners::Distrust;
pub use self::owners::{Owners, is_unmapped};
pub use self::way::{Step, follow};

/// Reads a regular file of at most `longest` bytes that a user names: a certificate, a configuration.
/// Symbolic links are followed, as such files are often replaced by them. Never waits for a writer.
///
/// # Errors
/// If the file cannot be read, is longer, or is no regular file: a pipe, which might never end, or a device.
#[expect(clippy::disallowed_methods, reason = "the user names the file, with its links")]
pub fn read_regular_file(path: impl AsRef<Path>, longest: u64) -> io::Result<Vec<u8>> {
    // Otherwise, opening a pipe waits for a writer.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(Distrust::NoFile.into());
    }
    read_at_most(file, longest)
}

/// Reads a file of the kernel: below `/proc` or `/sys`.
///
/// # Errors
/// If the kernel has no such file.
#[expect(clippy::disallowed_methods, reason = "only the kernel has files there")]
pub fn read_kernel_file(path: impl AsRef<Path>) -> io::Result<String> {
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn read_at_most(file: impl Read, longest: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(longest.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 > longest {
        let what = format!("it is longer than {longest} bytes");
        return Err(io::Error::new(ErrorKind::FileTooLarge, what));
    }
    Ok(content)
}
