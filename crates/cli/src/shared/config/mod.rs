//! Configuration files: the options that all commands share, in TOML.
//!
//! There is no second list of them. A key is the long name of an option, and its value is what the command
//! line would have, checked by the same parser. So `global` alone says what there is.
//!
//! Each key is taken by itself: from the command line, or the environment, or the first file that has it.
//! `files` says which files these are, `file` reads one, and `keys` makes keys of the options.

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

/// The keys that describe the servers of a file, and are wrong for others.
const ABOUT_SERVERS: [&str; 2] = ["lease", "server-tick"];

/// What is in force, and from where.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// The files that were read, the one that goes over the others first.
    pub(crate) files: Vec<PathBuf>,
    /// Those that were looked for, and are not there.
    pub(crate) missing: Vec<PathBuf>,
    pub(crate) entries: Vec<Setting>,
}

/// An option that is not only about the command line itself.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) name: String,
    /// As it was written; `None` for a default that depends on others. Never a secret.
    pub(crate) value: Option<String>,
    pub(crate) source: Source,
}

/// Where a value is from.
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
    /// Where an option is from.
    pub(crate) fn source(&self, name: &str) -> &Source {
        let setting = self.entries.iter().find(|setting| setting.name == name);
        setting.map_or(&Source::Default, |setting| &setting.source)
    }
}

/// What a command line with these options leaves to the files: what is in force, and the values of files
/// that are, if there are any.
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
    // Each was parsed when its file was read.
    let values = (!arguments.is_empty()).then(|| keys.get_matches_from(arguments));
    let missing = files.implicit().filter(|path| read.iter().all(|file| file.path != **path));
    let missing = missing.map(Path::to_owned).collect();
    let files = read.into_iter().map(|file| file.path).collect();
    Ok((Settings { files, missing, entries }, values))
}

/// The command line and the environment, and below them the files.
struct Layers<'a> {
    given: &'a ArgMatches,
    /// The first one comes first.
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

    /// What the command line or the environment says.
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

    /// Whether these credentials of a variable give way to others: a run around this command may have set
    /// `LOCKKEEPER_DIGEST_FILE`, and none sets `LOCKKEEPER_DIGEST`.
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
        // Both are the credentials.
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

    /// Whether the servers in force are those of this file, if it names any.
    fn has_servers_of(&self, file: &File) -> bool {
        let Some(own) = file.entry("connect") else { return true };
        let given = self.given.get_one::<String>("connect").map(String::as_str);
        let in_files = || self.in_files("connect").map(|(_, entry)| entry.value.as_str());
        // `run` hands them to its command in their normal form.
        let normal =
            |text: &str| text.parse().map(|s: lockkeeper::ConnectString| s.to_string()).ok();
        given.or_else(in_files).and_then(normal) == normal(&own.value)
    }
}
