//! The person for whom the command runs, for others to read.

use std::env;
use std::path::PathBuf;

use nix::unistd::{User, geteuid};

/// The name of the user: as the session that started the command has it, which is that of the person also below
/// `su`, or else that of the process.
pub(crate) fn user() -> String {
    // A look into the password database takes as long as a few round trips to a local engine.
    if let Some(name) = env::var("USER").ok().filter(|name| !name.is_empty()) {
        return name;
    }
    let uid = geteuid();
    match User::from_uid(uid) {
        Ok(Some(user)) => user.name,
        _ => format!("user {uid}"),
    }
}

/// The home directory: that of the environment or, where it names none (`env -i`, a service), that of the
/// password database.
pub(crate) fn home() -> Option<PathBuf> {
    let set = env::var_os("HOME").filter(|value| !value.is_empty()).map(PathBuf::from);
    set.or_else(|| Some(User::from_uid(geteuid()).ok()??.dir))
}

/// The host and this process: `db1-4711`.
pub(crate) fn host_and_process() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}-{}", std::process::id())
}

/// The user and the host: `ann on db1`.
pub(crate) fn user_and_host() -> String {
    format!("{} on {}", user(), rustix::system::uname().nodename().to_string_lossy())
}
