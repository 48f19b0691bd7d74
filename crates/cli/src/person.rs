//! The person for whom the command runs, for others to read.

use nix::unistd::{User, geteuid};

/// The name of the user.
pub(crate) fn user() -> String {
    let uid = geteuid();
    match User::from_uid(uid) {
        Ok(Some(user)) => user.name,
        _ => format!("user {uid}"),
    }
}

/// The user and the host: `ann on db1`.
pub(crate) fn user_and_host() -> String {
    format!("{} on {}", user(), rustix::system::uname().nodename().to_string_lossy())
}
