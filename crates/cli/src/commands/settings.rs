//! `lockkeeper settings`: the settings in force, and their sources.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use lockkeeper::LeaseMode;
use serde::Serialize;

use crate::shared::config::{Setting, Source};
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::output::show;
use crate::shared::view::printable;

const NOTES: &str = "\
Each setting is resolved on its own, from the first of these that sets it: the option, the environment \
variable, the file of --config or LOCKKEEPER_CONFIG, ~/.config/lockkeeper/config.toml (or below \
XDG_CONFIG_HOME, if set), /etc/lockkeeper/config.toml (or LOCKKEEPER_SYSTEM_CONFIG), the \
default. The keys of a file (TOML) are the long names of the options, such as connect and \
require-servers. Credentials are not shown.

Environment, in addition to the variables of the options:
  LOCKKEEPER_HOME              the directory of this user's own engine
                               [default: ~/.local/state/lockkeeper]
  LOCKKEEPER_SYSTEM_HOME       the directory of the engine for all users of this machine
                               (lockkeeper local enable --system), or none, to use a
                               separate engine anyway
                               [default: /var/lib/lockkeeper-system]
  LOCKKEEPER_SYSTEM_CONFIG     the configuration file for all users, or none
                               [default: /etc/lockkeeper/config.toml]
  LOCKKEEPER_LOCAL_DURABILITY  what its writes survive: sync (a power failure), os
                               (kill -9) or memory (nothing) [default: sync]
  LOCKKEEPER_LOCAL_IDLE        how long it runs without sessions [default: 10m]
  LOCKKEEPER_LOG               the log level on standard error, such as debug
  NO_COLOR                     no colours";

/// Print the settings in force, and their sources
#[derive(Debug, Args)]
#[command(visible_alias = "config", after_long_help = NOTES)]
pub(crate) struct SettingsOptions {}

/// A setting as JSON. The field names are stable.
#[derive(Debug, Serialize)]
struct ShownSetting<'a> {
    files: &'a [PathBuf],
    missing: &'a [PathBuf],
    settings: Vec<Row<'a>>,
}

#[derive(Debug, Serialize)]
struct Row<'a> {
    name: &'a str,
    value: Option<&'a str>,
    /// `option`, `environment`, `file` or `default`.
    source: &'static str,
    /// The option, the variable, or the file; `None` for a default.
    from: Option<String>,
    line: Option<usize>,
}

/// Prints the settings.
pub(crate) fn print(global: &Global) -> Result<u8, Failure> {
    let settings = &global.settings;
    let rows = settings.entries.iter().map(|setting| row(global, setting)).collect();
    let (files, missing) = (settings.files.as_slice(), settings.missing.as_slice());
    let shown = ShownSetting { files, missing, settings: rows };
    show(global, &shown, || describe(global))?;
    Ok(Exit::Ok.code())
}

fn row<'a>(global: &Global, setting: &'a Setting) -> Row<'a> {
    let (source, from, line) = match &setting.source {
        Source::Option(name) => ("option", Some(format!("--{name}")), None),
        Source::Variable(name) => ("environment", Some(name.clone()), None),
        Source::File { path, line } => ("file", Some(path.display().to_string()), Some(*line)),
        Source::Default => ("default", None, None),
    };
    Row { name: &setting.name, value: value(global, setting), source, from, line }
}

fn describe(global: &Global) -> String {
    let settings = &global.settings;
    let mut text = String::new();
    for setting in &settings.entries {
        let value = value(global, setting).unwrap_or_else(|| absent(global, &setting.name));
        let (name, source) = (&setting.name, printable(&setting.source.to_string()));
        let _ = writeln!(text, "{name:<16} {:<28} {source}", printable(value));
    }
    for (what, files) in [("read", &settings.files), ("missing", &settings.missing)] {
        for file in files {
            let _ = writeln!(text, "{what}: {}", printable(&file.to_string_lossy()));
        }
    }
    text
}

/// The value in force; `None` for an unset value without a default.
fn value<'a>(global: &Global, setting: &'a Setting) -> Option<&'a str> {
    let default = || match setting.name.as_str() {
        "require-servers" | "strict-servers" => Some("false"),
        "lease" if global.lease() == LeaseMode::Direct => Some("direct"),
        "lease" => Some("quorum"),
        "acl" if global.digest.is_some() || global.digest_file.is_some() => Some("creator"),
        "acl" => Some("open"),
        _ => None,
    };
    setting.value.as_deref().or_else(default)
}

/// The effect of a setting without a value.
fn absent(global: &Global, name: &str) -> &'static str {
    match name {
        "connect" if global.requires_servers() => "none, which is an error",
        "connect" => "an engine on this machine",
        "connect-timeout" => "the value of -w, or 10s",
        _ => "-",
    }
}
