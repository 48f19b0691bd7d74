//! One configuration file.

use std::any::TypeId;
use std::error::Error as _;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Arg, Command};
use lockkeeper_engine::files::read_regular_file;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{WITHOUT_KEY, argument, is_key};
use crate::shared::exit::{Exit, Failure};
use crate::shared::trust::{cannot_use, check_file};

/// The largest configuration file that is read, in bytes. A larger file is probably not a configuration file.
const MAX_BYTES: u64 = 1024 * 1024;

/// A configuration file that was read.
#[derive(Debug)]
pub(super) struct File {
    pub(super) path: PathBuf,
    entries: Vec<Entry>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    name: String,
    pub(super) value: String,
    pub(super) line: usize,
}

impl File {
    /// Reads a file that only this user and root can have written. `keys` defines the valid keys.
    pub(super) fn read(path: &Path, keys: &Command) -> Result<Self, Failure> {
        let refuse = |failure: Failure| {
            Failure::new(Exit::Config, failure.about("configuration file").to_string())
        };
        let failed = |error: io::Error| refuse(cannot_use(path, &error));
        let path = std::path::absolute(path).map_err(failed)?;
        let real = check_file(&path).map_err(refuse)?;
        let content = read_regular_file(real, MAX_BYTES).map_err(failed)?;
        let text =
            String::from_utf8(content).map_err(|_| failed(io::Error::other("it is not UTF-8")))?;
        Self::parse(path, &text, keys)
    }

    pub(super) fn parse(path: PathBuf, text: &str, keys: &Command) -> Result<Self, Failure> {
        let fail = |at: usize, why: &str| {
            let (path, line) = (path.display(), line_of(text, at));
            Failure::new(Exit::Config, format!("{path}, line {line}: {why}"))
        };
        let table = DeTable::parse(text).map_err(|error| {
            // Report only the first line: the others quote the file, which may contain secrets.
            let why = error.message().lines().next().unwrap_or_default();
            let why = format!("not valid TOML (strings need quotation marks): {why}");
            fail(error.span().map_or(0, |span| span.start), &why)
        })?;

        let mut pairs: Vec<_> = table.get_ref().iter().collect();
        pairs.sort_by_key(|(name, _)| name.span().start);
        let mut entries = Vec::new();
        for (name, value) in pairs {
            let at = name.span().start;
            let (name, line) = (name.get_ref().as_ref(), line_of(text, at));
            let value = read(name, value, keys, &path).map_err(|why| fail(at, &why))?;
            entries.push(Entry { name: name.to_owned(), value, line });
        }
        Ok(Self { path, entries })
    }

    pub(super) fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }
}

/// The line number of a byte offset.
fn line_of(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

/// A value, in the form that the command line takes.
fn read(
    name: &str,
    value: &Spanned<DeValue<'_>>,
    keys: &Command,
    path: &Path,
) -> Result<String, String> {
    let key = find(name, keys)?;
    let kind = key.get_value_parser().type_id();
    let value = match value.get_ref() {
        DeValue::Boolean(value) if kind == TypeId::of::<bool>() => value.to_string(),
        _ if kind == TypeId::of::<bool>() => return Err(format!("{name}: write true or false")),
        // A relative path would name another file in each working directory.
        DeValue::String(value) if kind == TypeId::of::<PathBuf>() && !value.is_empty() => {
            let folder = path.parent().unwrap_or(Path::new("/"));
            folder.join(value.as_ref()).to_string_lossy().into_owned()
        }
        DeValue::String(value) => value.to_string(),
        _ => return Err(format!("{name}: write the value as a string in quotation marks")),
    };

    match keys.clone().try_get_matches_from([argument(name, Some(&value))]) {
        Ok(_) => Ok(value),
        Err(error) => Err(format!("{name}: {}", why(&error))),
    }
}

fn find<'a>(name: &str, keys: &'a Command) -> Result<&'a Arg, String> {
    if let Some((_, why)) = WITHOUT_KEY.iter().find(|(other, _)| *other == name) {
        return Err(format!("{name} is not a key: {why}"));
    }
    keys.get_arguments().find(|key| key.get_long() == Some(name)).ok_or_else(|| {
        let known = keys.get_arguments().filter_map(Arg::get_long).filter(|name| is_key(name));
        format!("unknown key {name:?}; the keys are {}", known.collect::<Vec<_>>().join(", "))
    })
}

/// Why clap rejects a value, without the name of the command-line option.
fn why(error: &clap::Error) -> String {
    match error.source() {
        Some(source) => source.to_string(),
        None => {
            let text = error.to_string();
            let first = text.split("\n\n").next().unwrap_or_default();
            let first = first.strip_prefix("error: ").unwrap_or(first);
            first.split_whitespace().collect::<Vec<_>>().join(" ")
        }
    }
}
