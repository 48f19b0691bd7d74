//! Opens files: those of a data directory and next to it, and those of the command's home directory.
//!
//! Another user can mislead a program that runs as root: a symbolic link in place of a file makes it write elsewhere, a
//! pipe makes it wait, a device never ends, and a file with another owner contains what its owner likes. So a file is
//! opened relative to its directory, which stays open; it must be a regular file of a trusted owner; and at most its
//! maximum length is read. Other code of the engine and the command must not open such files: `clippy.toml` disallows
//! it.

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
