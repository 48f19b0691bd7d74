//! The machine's engine, which all users share.
//!
//! After an administrator has enabled it, users' commands do not start separate engines. Its directory belongs to root.
//! The group and the mode of the directory determine who may use the engine:
//!
//! | mode | users |
//! |---|---|
//! | 0700 | root alone |
//! | 0750 | root and the group |
//! | 0755 | everyone |
//!
//! The file `enabled` in it marks it as in use (`enable`).

use std::env;
use std::fmt;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Group};

use super::home::{Home, Scope};
use crate::shared::exit::{Exit, Failure};
use crate::shared::trust::{self, Missing, ROOT};

/// The environment variable with its directory; `none` is for users who want a separate engine.
pub(super) const VARIABLE: &str = "LOCKKEEPER_SYSTEM_HOME";

const DEFAULT: &str = "/var/lib/lockkeeper-system";

const NONE: &str = "none";

/// The mode while the engine is not enabled, so that all users can see that.
pub(super) const OPEN_DIRECTORY: u32 = 0o755;

/// Advice for users who want to share an engine.
pub(super) const WAY_OUT: &str =
    "one engine for all users: sudo lockkeeper local enable --system --group GROUP";

/// The users with access.
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

    pub(super) fn mode(self) -> u32 {
        match self {
            Self::Root => 0o700,
            Self::Group(_) => 0o750,
            Self::Everyone => OPEN_DIRECTORY,
        }
    }

    pub(super) fn gid(self) -> u32 {
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

/// The home of the engine for this user's commands: the machine's engine if it is enabled, or else this user's own.
pub(super) fn in_charge() -> Result<Home, Failure> {
    match find()? {
        Some(home) => Ok(home),
        None => Home::own(),
    }
}

/// The home of the machine's engine, if it is enabled.
///
/// # Errors
/// If the engine is enabled but this user has no access, or if another user could have created the directory.
pub(super) fn find() -> Result<Option<Home>, Failure> {
    let Some(path) = named()? else { return Ok(None) };
    // If the engine is not enabled, the path to its directory does not matter.
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

/// Whether this user has chosen a separate engine.
pub(super) fn is_declined() -> bool {
    matches!(named(), Ok(None))
}

/// The users with access.
pub(super) fn users(home: &Home) -> Result<Users, Failure> {
    let meta = home.directory().metadata();
    meta.map(|meta| Users::of(&meta)).map_err(|error| trust::cannot_use(home.directory(), &error))
}

/// The failure for a user without access. Using another engine instead would grant the same lock to two holders.
fn closed(home: &Home) -> Result<Failure, Failure> {
    let (directory, users) = (home.directory().display(), users(home)?);
    let me = trust::user(trust::me());
    let message = format!("this machine's engine ({directory}) is for {users}, and you are {me}");
    let advice = match users {
        Users::Group(_) => "an administrator can make you a member of the group".to_owned(),
        _ => "an administrator can give you access: sudo lockkeeper local enable --system --group GROUP"
            .to_owned(),
    };
    let alone = format!("{VARIABLE}={NONE} gives you a separate engine with separate locks");
    Ok(Failure::new(Exit::NoPermission, message).advise(&advice).advise(&alone))
}

/// The directory of the engine when it is enabled; an error for a user who has chosen a separate engine.
pub(super) fn place() -> Result<PathBuf, Failure> {
    named()?.ok_or_else(|| {
        let message = format!("{VARIABLE} is {NONE}: unset it, or set it to an absolute path");
        Failure::new(Exit::Usage, message)
    })
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
        let mistake = format!("{VARIABLE} must be an absolute path or {NONE}, not {path}");
        return Err(Failure::new(Exit::Usage, mistake));
    }
    Ok(Some(path))
}

/// A systemd unit that starts the engine at boot.
pub(super) fn unit(program: &Path) -> Result<String, Failure> {
    let directory = place()?;
    let (program, directory) = (program.display(), directory.display());
    Ok(format!(
        include_str!("lockkeeper.service"),
        VARIABLE = VARIABLE,
        program = program,
        directory = directory
    ))
}
