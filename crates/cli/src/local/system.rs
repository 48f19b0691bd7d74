//! The engine of the whole machine, where all users meet.
//!
//! An administrator enables it, and then nobody starts an engine of their own. Its directory is
//! root's; the group and the mode of the directory say who may use the engine:
//!
//! | mode | who |
//! |---|---|
//! | 0700 | root alone |
//! | 0750 | root and the group |
//! | 0755 | everyone |
//!
//! The file `enabled` in it says that it is in use. Who enables it makes the file, and then looks
//! for engines of users; who starts an engine of a user makes the sockets, and then looks for the
//! file. So one of the two sees the other.

use std::env;
use std::fmt;
use std::fs::{self, Metadata, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use lockkeeper_engine::{StartError, StorageError};
use nix::unistd::{Gid, Group};

use super::control::{self, Asked};
use super::home::{FILES, Home, Scope, check_length};
use super::trust::{self, Missing, ROOT};
use super::{neighbours, start};
use crate::exit::{Exit, Failure};

/// The variable that says where; `none` is for users who want an engine of their own.
pub(super) const VARIABLE: &str = "LOCKKEEPER_SYSTEM_HOME";

const DEFAULT: &str = "/var/lib/lockkeeper-system";

const NONE: &str = "none";

/// What everybody may see while it is not enabled.
const OPEN_DIRECTORY: u32 = 0o755;

/// What gives several users one engine.
pub(super) const WAY_OUT: &str =
    "one engine for all users: sudo lockkeeper local enable --system --group GROUP";

/// Who may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Users {
    Root,
    Group(u32),
    Everyone,
}

impl Users {
    /// The members of a group.
    pub(super) fn group(name: &str) -> Result<Self, Failure> {
        match Group::from_name(name) {
            Ok(Some(group)) => Ok(Self::Group(group.gid.as_raw())),
            _ => Err(Failure::new(Exit::Usage, format!("there is no group {name:?}"))),
        }
    }

    fn of(directory: &Metadata) -> Self {
        match directory.mode() {
            mode if mode & 0o001 != 0 => Self::Everyone,
            mode if mode & 0o010 != 0 => Self::Group(directory.gid()),
            _ => Self::Root,
        }
    }

    fn mode(self) -> u32 {
        match self {
            Self::Root => 0o700,
            Self::Group(_) => 0o750,
            Self::Everyone => OPEN_DIRECTORY,
        }
    }

    fn gid(self) -> u32 {
        if let Self::Group(gid) = self { gid } else { ROOT }
    }
}

impl fmt::Display for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("root alone"),
            Self::Group(gid) => match Group::from_gid(Gid::from_raw(*gid)) {
                Ok(Some(group)) => write!(f, "root and the group {}", group.name),
                _ => write!(f, "root and the group {gid}"),
            },
            Self::Everyone => f.write_str("everyone"),
        }
    }
}

/// Its home, if it is enabled.
///
/// # Errors
/// If it is enabled, but not for this user; if another user could have put it there.
pub(super) fn find() -> Result<Option<Home>, Failure> {
    let Some(path) = named()? else { return Ok(None) };
    // Where nobody has enabled it, the way there is nobody's business.
    if trust::look(&path)?.is_none() {
        return Ok(None);
    }
    let Some(directory) = trust::follow(&path, Missing::Report)? else { return Ok(None) };
    let home = Home::at(directory, Scope::System);
    match home.enabled().symlink_metadata() {
        Ok(_) => home.check(ROOT).map(|()| Some(home)),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(closed(&home)?),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(trust::cannot_use(home.directory(), &error)),
    }
}

/// Whether this user has said that they want an engine of their own.
pub(super) fn is_declined() -> bool {
    matches!(named(), Ok(None))
}

/// Who may use it.
pub(super) fn users(home: &Home) -> Result<Users, Failure> {
    let meta = home.directory().metadata();
    meta.map(|meta| Users::of(&meta)).map_err(|error| trust::cannot_use(home.directory(), &error))
}

/// Another engine instead would give the same lock to two holders.
fn closed(home: &Home) -> Result<Failure, Failure> {
    let (directory, users) = (home.directory().display(), users(home)?);
    let me = trust::user(trust::me());
    let message = format!("this machine's engine ({directory}) is for {users}, and you are {me}");
    let advice = match users {
        Users::Group(_) => "an administrator can make you a member of the group".to_owned(),
        _ => "an administrator can let you in: sudo lockkeeper local enable --system --group GROUP"
            .to_owned(),
    };
    let alone = format!("{VARIABLE}={NONE} gives you an engine of your own, with other locks");
    Ok(Failure::new(Exit::NoPermission, message).advise(&advice).advise(&alone))
}

fn named() -> Result<Option<PathBuf>, Failure> {
    let set = env::var_os(VARIABLE).filter(|value| !value.is_empty());
    let path = match set {
        Some(word) if word == NONE => return Ok(None),
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(DEFAULT),
    };
    if path.is_relative() {
        let path = path.display();
        let mistake =
            format!("{VARIABLE} is relative ({path}); set it to a full path, or to {NONE}");
        return Err(Failure::new(Exit::Usage, mistake));
    }
    Ok(Some(path))
}

/// Makes it the engine of everyone, and starts it. Without `users`, those of before; at first root
/// alone, since whoever may use it can keep root's jobs waiting.
pub(super) fn enable(users: Option<Users>) -> Result<Home, Failure> {
    only_root("enable --system")?;
    let path = named()?.ok_or_else(declined)?;
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

/// Its permissions will be changed, so it must not be a directory that is there for something else.
fn check_unused(home: &Home) -> Result<(), Failure> {
    let directory = home.directory();
    let entries = fs::read_dir(directory).map_err(|error| trust::cannot_use(directory, &error))?;
    for entry in entries {
        let name = entry.map_err(|error| trust::cannot_use(directory, &error))?.file_name();
        if !FILES.iter().any(|ours| name == *ours) {
            let message = format!("{} is in use for something else", directory.display());
            let advice = format!("it has a file {}", name.display());
            return Err(Failure::new(Exit::CannotCreate, message).advise(&advice));
        }
    }
    Ok(())
}

/// Says that it is in use, unless an engine of a user is up: the locks of that would be in two
/// places.
fn mark(home: &Home) -> Result<(), Failure> {
    let path = home.enabled();
    let failed = |error| trust::cannot_use(&path, &error);
    // If it is not to be, everyone must be able to see that.
    admit(home, Users::Everyone)?;
    fs::File::create_new(&path).map_err(failed)?;
    let others = neighbours::of(home.directory());
    if others.is_empty() {
        return Ok(());
    }
    fs::remove_file(&path).map_err(failed)?;
    let others: Vec<_> = others.iter().map(ToString::to_string).collect();
    let message = format!(
        "other engines are up, and their locks would be in two places: {}",
        others.join(", ")
    );
    let advice = "stop each as its user, when nobody holds its locks: lockkeeper local stop";
    Err(Failure::new(Exit::Taken, message).advise(advice))
}

fn admit(home: &Home, users: Users) -> Result<(), Failure> {
    let directory = home.directory();
    let permissions = Permissions::from_mode(users.mode());
    let set = chown(directory, None, Some(users.gid()))
        .and_then(|()| fs::set_permissions(directory, permissions));
    set.map_err(|error| trust::cannot_use(directory, &error))
}

/// Stops it, and lets every user have an engine of their own again. Refuses while somebody has a
/// session: the lock of a holder would be free in the other engines. `false` if it was not enabled.
pub(super) fn disable() -> Result<bool, Failure> {
    only_root("disable --system")?;
    let Some(home) = find()? else { return Ok(false) };
    if let Some(answer) = control::ask(&home, Asked::Status)? {
        check_deserted(answer.status.sessions)?;
    }

    // Nobody starts it again before it is known which sessions it had at its end.
    let lock = home.start_lock()?;
    lock.lock().map_err(|error| trust::cannot_use(home.directory(), &error))?;
    let mut sessions = 0;
    if let Some(answer) = control::ask(&home, Asked::Stop)? {
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
    // Who may not look into the directory takes it for enabled.
    admit(&home, Users::Everyone)?;
    fs::remove_file(&enabled).map_err(|error| trust::cannot_use(&enabled, &error))?;
    Ok(true)
}

fn check_deserted(sessions: usize) -> Result<(), Failure> {
    if sessions == 0 {
        return Ok(());
    }
    let message = format!("{sessions} sessions of users hold locks there, or wait for them");
    Err(Failure::new(Exit::Taken, message).advise("try again when they have ended"))
}

fn only_root(task: &str) -> Result<(), Failure> {
    if trust::me() == ROOT {
        return Ok(());
    }
    let message = format!("only root can do that: sudo lockkeeper local {task}");
    Err(Failure::new(Exit::NoPermission, message))
}

/// What has systemd start it with the machine.
pub(super) fn unit(program: &Path) -> Result<String, Failure> {
    let directory = named()?.ok_or_else(declined)?;
    let (program, directory) = (program.display(), directory.display());
    Ok(format!(
        "\
[Unit]
Description=Lockkeeper, the engine of this machine

[Service]
Type=forking
Environment={VARIABLE}={directory}
ExecStart={program} local start
ExecStop={program} local stop
Restart=on-failure
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ReadWritePaths={directory}
RestrictAddressFamilies=AF_UNIX

[Install]
WantedBy=multi-user.target
"
    ))
}

fn declined() -> Failure {
    Failure::new(Exit::Usage, format!("{VARIABLE} is {NONE}; unset it, or set it to a full path"))
}
