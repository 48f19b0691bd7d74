//! Configuration files: the global options, in TOML.
//!
//! A key is the long name of an option. Its value is written as on the command line, and the same parser checks it.
//! So `global` is the only list of options.
//!
//! Each key is resolved on its own: the command line overrides the environment, which overrides the files. `files`
//! finds the files, `file` reads one of them, and `keys` derives the keys from the options.

mod file;
mod files;
mod keys;

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

use crate::shared::exit::Failure;

use file::{Entry, File};
pub(crate) use files::Files;
#[cfg(test)]
pub(crate) use keys::WITHOUT_KEY;
use keys::{argument, keys, listed};

/// The keys that describe the servers named in the same file. They do not apply to other servers.
const ABOUT_SERVERS: [&str; 2] = ["lease", "server-tick"];

/// The settings in force, with their sources.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// The files that were read, in order of precedence.
    pub(crate) files: Vec<PathBuf>,
    /// The files that were searched for and do not exist.
    pub(crate) missing: Vec<PathBuf>,
    pub(crate) entries: Vec<Setting>,
}

/// A setting that a configuration file can contain.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) name: String,
    /// The value as it was written; `None` for a default that depends on other settings. Never contains a secret.
    pub(crate) value: Option<String>,
    pub(crate) source: Source,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Option(String),
    Variable(String),
    File { path: PathBuf, line: usize },
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option(name) => write!(f, "--{name}"),
            Self::Variable(name) => f.write_str(name),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

impl Settings {
    /// The source of an option.
    pub(crate) fn source(&self, name: &str) -> &Source {
        let setting = self.entries.iter().find(|setting| setting.name == name);
        setting.map_or(&Source::Default, |setting| &setting.source)
    }
}

/// Resolves the settings in force from a command line and the files. Also returns the values that come from files, if
/// there are any.
pub(crate) fn resolve(
    options: &Command,
    given: &ArgMatches,
    files: &Files,
) -> Result<(Settings, Option<ArgMatches>), Failure> {
    let keys = keys(options);
    let read = files.read(&keys)?;
    let layers = Layers { given, files: &read };
    let entries: Vec<_> = listed(options).map(|option| layers.setting(option)).collect();

    let from_files = entries.iter().filter(|entry| matches!(entry.source, Source::File { .. }));
    let arguments = from_files.map(|entry| argument(&entry.name, entry.value.as_deref()));
    let arguments: Vec<_> = arguments.collect();
    // Each value was already parsed when its file was read.
    let values = (!arguments.is_empty()).then(|| keys.get_matches_from(arguments));
    let missing = files.implicit().filter(|path| read.iter().all(|file| file.path != **path));
    let missing = missing.map(Path::to_owned).collect();
    let files = read.into_iter().map(|file| file.path).collect();
    Ok((Settings { files, missing, entries }, values))
}

/// The command line and the environment, which override the files.
struct Layers<'a> {
    given: &'a ArgMatches,
    /// In order of precedence.
    files: &'a [File],
}

impl Layers<'_> {
    fn setting(&self, option: &Arg) -> Setting {
        let name = option.get_long().unwrap_or_default();
        if let Some((value, source)) = self.given(option).filter(|_| !self.is_overridden(name)) {
            return Setting { name: name.to_owned(), value: Some(value), source };
        }
        match self.in_files(name) {
            Some((file, entry)) => {
                let source = Source::File { path: file.path.clone(), line: entry.line };
                Setting { name: name.to_owned(), value: Some(entry.value.clone()), source }
            }
            None => {
                let value = option.get_default_values().first();
                let value = value.map(|value| value.to_string_lossy().into_owned());
                Setting { name: name.to_owned(), value, source: Source::Default }
            }
        }
    }

    /// The value from the command line or the environment.
    fn given(&self, option: &Arg) -> Option<(String, Source)> {
        let id = option.get_id().as_str();
        let source = match self.given.value_source(id)? {
            ValueSource::CommandLine => Source::Option(option.get_long()?.to_owned()),
            ValueSource::EnvVariable => {
                Source::Variable(option.get_env()?.to_string_lossy().into_owned())
            }
            _ => return None,
        };
        let is_secret = option.is_hide_env_values_set();
        let value = match is_secret {
            true => "(not shown)".to_owned(),
            false => self.given.get_raw(id)?.next().map(OsStr::to_string_lossy)?.into_owned(),
        };
        Some((value, source))
    }

    /// Whether credentials in an environment variable are ignored in favour of others. An outer run may have set
    /// `LOCKKEEPER_DIGEST_FILE`; it never sets `LOCKKEEPER_DIGEST`.
    fn is_overridden(&self, name: &str) -> bool {
        let is_from = |id, source| self.given.value_source(id) == Some(source);
        let is_by = |variable, option| {
            is_from(variable, ValueSource::EnvVariable) && is_from(option, ValueSource::CommandLine)
        };
        match name {
            "digest" => is_by("digest", "digest_file"),
            "digest-file" => {
                is_from("digest_file", ValueSource::EnvVariable) && self.is_given("digest")
            }
            _ => false,
        }
    }

    fn in_files(&self, name: &str) -> Option<(&File, &Entry)> {
        // Either option gives the credentials.
        if name == "digest-file" && self.is_given("digest") {
            return None;
        }
        let is_apt = |file: &&File| !ABOUT_SERVERS.contains(&name) || self.has_servers_of(file);
        let mut having = self.files.iter().filter(is_apt);
        having.find_map(|file| Some((file, file.entry(name)?)))
    }

    fn is_given(&self, id: &str) -> bool {
        let source = self.given.value_source(id);
        source.is_some_and(|source| source != ValueSource::DefaultValue)
    }

    /// Whether the servers in force are those that this file names. True for a file that names no servers.
    fn has_servers_of(&self, file: &File) -> bool {
        let Some(own) = file.entry("connect") else { return true };
        let given = self.given.get_one::<String>("connect").map(String::as_str);
        let in_files = || self.in_files("connect").map(|(_, entry)| entry.value.as_str());
        // `run` passes the servers to its command in normalized form.
        let normal =
            |text: &str| text.parse().map(|s: lockkeeper::ConnectString| s.to_string()).ok();
        given.or_else(in_files).and_then(normal) == normal(&own.value)
    }
}
