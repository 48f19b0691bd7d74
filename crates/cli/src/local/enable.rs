//! Enables and disables the engine for all users of the machine.
//!
//! A process that enables it creates the file `enabled`, and then looks for users' engines. A process that starts a
//! user's engine creates the sockets, and then looks for the file. So at least one of the two notices the other.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};

use lockkeeper_engine::{StartError, StorageError};

use super::control::{self, ControlRequest};
use super::home::{FILES, Home, Scope, check_length};
use super::system::{OPEN_DIRECTORY, Users, VARIABLE, find, place};
use super::{other_engines, start};
use crate::shared::exit::{Exit, Failure};
use crate::shared::trust::{self, Missing, ROOT};

/// Enables the engine and starts it. Without `users`, the previous users keep access; at first that is only root,
/// because any user of the engine can block root's jobs.
pub(super) fn enable(users: Option<Users>) -> Result<Home, Failure> {
    only_root("enable --system")?;
    let path = place()?;
    let directory = trust::follow(&path, Missing::Make(OPEN_DIRECTORY))?.unwrap_or(path);
    check_length(&directory, VARIABLE)?;
    let home = Home::at(directory, Scope::System);
    home.check(ROOT)?;

    let is_new = trust::look(&home.enabled())?.is_none();
    if is_new {
        check_unused(&home)?;
        mark(&home)?;
    }

    if let Some(users) = users.or(is_new.then_some(Users::Root)) {
        admit(&home, users)?;
    }
    drop(start::ensure(&home, None)?);
    Ok(home)
}

/// Enabling changes the directory's permissions, so it must not be in use for another purpose.
fn check_unused(home: &Home) -> Result<(), Failure> {
    let directory = home.directory();
    let entries = fs::read_dir(directory).map_err(|error| trust::cannot_use(directory, &error))?;
    for entry in entries {
        let name = entry.map_err(|error| trust::cannot_use(directory, &error))?.file_name();
        if !FILES.iter().any(|ours| name == *ours) {
            let message = format!("{} is in use for another purpose", directory.display());
            let advice = format!("it contains the file {}", name.display());
            return Err(Failure::new(Exit::CannotCreate, message).advise(&advice));
        }
    }
    Ok(())
}

/// Marks the engine as in use. Fails if a user's engine is running, because both would grant the same locks.
fn mark(home: &Home) -> Result<(), Failure> {
    let path = home.enabled();
    let failed = |error| trust::cannot_use(&path, &error);

    // All users must be able to see whether the engine is enabled.
    admit(home, Users::Everyone)?;
    home.make_enabled()?;

    let others = other_engines::of(home.directory());
    if others.is_empty() {
        return Ok(());
    }

    fs::remove_file(&path).map_err(failed)?;
    let others: Vec<_> = others.iter().map(ToString::to_string).collect();
    let message =
        format!("other engines are running and would grant the same locks: {}", others.join(", "));
    let advice =
        "when no program holds their locks, stop each one as its user: lockkeeper local stop";
    Err(Failure::new(Exit::Taken, message).advise(advice))
}

fn admit(home: &Home, users: Users) -> Result<(), Failure> {
    let directory = home.directory();
    let permissions = Permissions::from_mode(users.mode());
    let set = chown(directory, None, Some(users.gid()))
        .and_then(|()| fs::set_permissions(directory, permissions));
    set.map_err(|error| trust::cannot_use(directory, &error))
}

/// Stops the engine, and lets each user have a separate engine again. Fails while users have sessions: a lock that is
/// held here would be free in the other engines. Returns `false` if the engine was not enabled.
pub(super) fn disable() -> Result<bool, Failure> {
    only_root("disable --system")?;
    let Some(home) = find()? else { return Ok(false) };
    if let Some(answer) = control::ask(&home, ControlRequest::Status)? {
        check_deserted(answer.status.sessions)?;
    }

    // No process may start it again before the number of sessions at its end is known.
    let lock = home.start_lock()?;
    lock.lock().map_err(|error| trust::cannot_use(home.directory(), &error))?;
    let mut sessions = 0;
    if let Some(answer) = control::ask(&home, ControlRequest::Stop)? {
        sessions = answer.status.sessions;
        answer.wait_for_end()?;
    }
    if trust::look(&home.data().join("FORMAT"))?.is_some() {
        sessions = match lockkeeper_engine::check(home.data()) {
            Err(StartError::Storage(StorageError::NoData { .. })) => 0,
            report => report?.sessions,
        };
    }
    if let Err(failure) = check_deserted(sessions) {
        drop(lock);
        drop(start::ensure(&home, None)?);
        return Err(failure);
    }
    let enabled = home.enabled();
    // Users who may not look into the directory would assume that the engine is enabled.
    admit(&home, Users::Everyone)?;
    fs::remove_file(&enabled).map_err(|error| trust::cannot_use(&enabled, &error))?;
    Ok(true)
}

fn check_deserted(sessions: usize) -> Result<(), Failure> {
    if sessions == 0 {
        return Ok(());
    }
    let message = match sessions {
        1 => "a session of a user holds a lock there, or waits for one".to_owned(),
        _ => format!("{sessions} sessions of users hold locks there, or wait for them"),
    };
    Err(Failure::new(Exit::Taken, message).advise("try again after they have ended"))
}

fn only_root(task: &str) -> Result<(), Failure> {
    if trust::me() == ROOT {
        return Ok(());
    }
    let message = format!("this requires root: sudo lockkeeper local {task}");
    Err(Failure::new(Exit::NoPermission, message))
}
