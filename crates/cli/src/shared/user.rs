//! The user for whom the command runs, as shown to other users.

use std::env;
use std::path::PathBuf;

use nix::unistd::{User, geteuid};

/// The user's name: `USER` of the environment, which also names the original user below `su`, or else the name of the
/// process's user.
pub(crate) fn name() -> String {
    // Reading the password database takes as long as a few round trips to a local engine.
    if let Some(name) = env::var("USER").ok().filter(|name| !name.is_empty()) {
        return name;
    }
    let uid = geteuid();
    match User::from_uid(uid) {
        Ok(Some(user)) => user.name,
        _ => format!("user {uid}"),
    }
}

/// The home directory: `HOME` of the environment, or else (`env -i`, a service) the entry in the password database.
pub(crate) fn home() -> Option<PathBuf> {
    let set = env::var_os("HOME").filter(|value| !value.is_empty()).map(PathBuf::from);
    set.or_else(|| Some(User::from_uid(geteuid()).ok()??.dir))
}

/// The host name and the process id: `db1-4711`.
pub(crate) fn host_and_process() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}-{}", std::process::id())
}

/// The user and the host name: `ann on db1`.
pub(crate) fn user_and_host() -> String {
    format!("{} on {}", name(), rustix::system::uname().nodename().to_string_lossy())
}
