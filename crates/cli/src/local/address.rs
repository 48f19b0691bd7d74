//! Recognizes connection strings that lead to the machine-local engine.
//!
//! `run` passes the engine's socket to its command as `LOCKKEEPER_CONNECT`. If the engine has ended before the command
//! connects, it is started again, as for a command without servers.

use std::ffi::OsStr;
use std::path::Path;

use lockkeeper::{ConnectString, Host};

use super::home::{Home, SOCKET, named};
use super::system;
use crate::shared::exit::Failure;
use crate::shared::trust::{self, Missing};

/// The home of the engine for commands without servers.
pub(crate) fn default() -> Result<Home, Failure> {
    system::in_charge()
}

/// The home of the engine behind these servers, which is the machine's engine or this user's; `None` for any other
/// server.
///
/// # Errors
/// If this user may not use the home.
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
    // An engine that was never started does not have a directory yet.
    if named().is_ok_and(|own| is_same(&own, directory)) {
        return Home::own().map(Some);
    }
    Ok(Home::used(directory))
}

/// Whether two paths name the same directory. The environment may use symbolic links; an address does not.
fn is_same(named: &Path, directory: &Path) -> bool {
    let real = || trust::follow(named, Missing::Report).ok().flatten();
    named == directory || real().is_some_and(|real| real == directory)
}
