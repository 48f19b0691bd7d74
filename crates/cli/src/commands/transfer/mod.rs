//! `lockkeeper export` and `lockkeeper import`: move persistent znodes from one service to another.
//!
//! ```text
//!   format    the lines of a file: read and written, no I/O
//!   walk      every znode below a path, parents first
//!   export    from a service to a file
//!   drain     waits until no session has a znode there
//!   source    a file that was checked completely, before anything is written
//!   import    from a file to a service
//! ```
//!
//! Invariant: a file without its last line is treated as incomplete.

mod drain;
pub(crate) mod export;
mod format;
pub(crate) mod import;
mod source;
mod walk;

pub(crate) use format::zxid;
pub(crate) use source::zxid_of_file;
