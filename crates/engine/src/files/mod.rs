//! How files are opened: all those of a data directory, of a home, and what stands beside them.
//!
//! A program that runs as root can be led astray by another user: a symbolic link in the place of a file
//! makes it write elsewhere, a pipe makes it wait, a device has no end, and a file with another owner says
//! what its owner likes. So a file is opened relative to its directory, which stays open; it has to be a
//! regular file of a trusted owner; and no more of it is read than it may have. No other code of the
//! engine or the command opens such files: `clippy.toml` disallows it.

mod directory;
mod owners;
mod read;
mod way;

pub use self::directory::{Access, Directory};
pub(crate) use self::directory::{parent, real_way};
pub(crate) use self::owners::Distrust;
pub use self::owners::{is_owner, is_unmapped};
pub use self::read::{read_kernel_file, read_regular_file};
pub use self::way::{Step, follow};
