//! From a connection string to the machine-local engine, if that is what it leads to.
//!
//! `run` hands the engine's socket to its command as `LOCKKEEPER_CONNECT`. The engine may end before a
//! command there uses it, and is then started again, as for a command that names no servers.

use std::ffi::OsStr;
use std::path::Path;

use lockkeeper::{ConnectString, Host};

use super::home::{Home, SOCKET, named};
use super::system;
use crate::shared::exit::Failure;
use crate::shared::trust::{self, Missing};

/// The home of the engine that a command without servers uses.
pub(crate) fn default() -> Result<Home, Failure> {
    system::in_charge()
}

/// The home of the engine behind these servers: that of the machine's engine, or one of this user's; `None`
/// for any other server.
///
/// # Errors
/// If it is a home that this user may not use.
pub(crate) fn home(servers: &ConnectString) -> Result<Option<Home>, Failure> {
    let [Host::Unix(socket)] = servers.hosts.as_slice() else { return Ok(None) };
    let Some(directory) =
        socket.parent().filter(|_| socket.file_name() == Some(OsStr::new(SOCKET)))
    else {
        return Ok(None);
    };

    if system::place().is_ok_and(|place| is_same(&place, directory)) {
        return system::find();
    }
    // An engine that was never started has no directory yet.
    if named().is_ok_and(|own| is_same(&own, directory)) {
        return Home::own().map(Some);
    }
    Ok(Home::used(directory))
}

/// Whether two names are of one directory: an address has no symbolic links, and the environment may.
fn is_same(named: &Path, directory: &Path) -> bool {
    let real = || trust::follow(named, Missing::Report).ok().flatten();
    named == directory || real().is_some_and(|real| real == directory)
}
