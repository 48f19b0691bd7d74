//! Where configuration files are searched for.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Command;

use super::file::File;
use crate::shared::exit::{Exit, Failure};
use crate::shared::user;

/// The environment variable that names a configuration file, like `--config`.
const VARIABLE: &str = "LOCKKEEPER_CONFIG";

/// The environment variable with the path of the system-wide file; `none` disables that file.
const SYSTEM_VARIABLE: &str = "LOCKKEEPER_SYSTEM_CONFIG";

const SYSTEM: &str = "/etc/lockkeeper/config.toml";

const NONE: &str = "none";

/// The user's own file, relative to the XDG configuration directory.
const OWN: &str = "lockkeeper/config.toml";

/// The configuration files to read. A setting in an earlier file overrides the same setting in a later one.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    /// The file named by `--config` or the environment. It must exist.
    named: Option<PathBuf>,
    own: Option<PathBuf>,
    system: Option<PathBuf>,
}

impl Files {
    /// The files of this process; `option` is the value of `--config`.
    pub(crate) fn of_process(option: Option<&Path>) -> Result<Self, Failure> {
        let variable = || env::var_os(VARIABLE).map(PathBuf::from);
        let named = option.map(PathBuf::from).or_else(variable);
        if named.as_ref().is_some_and(|path| path.as_os_str().is_empty()) {
            let message = format!("--config or {VARIABLE} is empty: name a file, or omit it");
            return Err(Failure::new(Exit::Config, message));
        }
        Ok(Self { named, own: own(), system: system()? })
    }

    #[cfg(test)]
    pub(crate) fn only(path: &Path) -> Self {
        Self { named: Some(path.to_owned()), own: None, system: None }
    }

    /// The default locations, where a file is optional.
    pub(super) fn implicit(&self) -> impl Iterator<Item = &Path> {
        [&self.own, &self.system].into_iter().flatten().map(PathBuf::as_path)
    }

    /// Reads the files that exist, in order of precedence.
    pub(super) fn read(&self, keys: &Command) -> Result<Vec<File>, Failure> {
        let mut files = Vec::new();
        if let Some(path) = &self.named {
            files.push(File::read(path, keys)?);
        }
        let system = self.system.iter().map(|path| (path, true));
        for (path, is_for_all) in self.own.iter().map(|path| (path, false)).chain(system) {
            if is_there(path, is_for_all)? {
                files.push(File::read(path, keys)?);
            }
        }
        Ok(files)
    }
}

/// Whether a file exists. A file that cannot be examined does not count as missing.
fn is_there(path: &Path, is_for_all: bool) -> Result<bool, Failure> {
    match fs::symlink_metadata(path).map_err(|error| (error.kind(), error)) {
        Ok(_) => Ok(true),
        Err((ErrorKind::NotFound | ErrorKind::NotADirectory, _)) => Ok(false),
        // A home directory that this user may not enter belongs to another user.
        Err((ErrorKind::PermissionDenied, _)) if !is_for_all => Ok(false),
        Err((_, error)) => {
            let message = format!("configuration file {}: {error}", path.display());
            Err(Failure::new(Exit::Config, message))
        }
    }
}

fn system() -> Result<Option<PathBuf>, Failure> {
    let set = env::var_os(SYSTEM_VARIABLE).filter(|value| !value.is_empty());
    match set.map(PathBuf::from) {
        None => Ok(Some(SYSTEM.into())),
        Some(word) if word.as_os_str() == NONE => Ok(None),
        Some(path) if path.is_absolute() => Ok(Some(path)),
        Some(path) => {
            let path = path.display();
            let message =
                format!("{SYSTEM_VARIABLE} must be an absolute path or {NONE}, not {path}");
            Err(Failure::new(Exit::Config, message))
        }
    }
}

/// A relative directory is ignored, as the XDG specification requires.
fn own() -> Option<PathBuf> {
    let set = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || user::home().filter(|path| path.is_absolute());
    let directory = set("XDG_CONFIG_HOME").or_else(|| Some(home()?.join(".config")))?;
    Some(directory.join(OWN))
}
