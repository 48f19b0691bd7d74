//! `lockkeeper settings`: what is in force, and from where.

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
Each setting is taken by itself, from the first of these that has it: the option, the environment \
variable, the file of --config or LOCKKEEPER_CONFIG, ~/.config/lockkeeper/config.toml (in \
XDG_CONFIG_HOME, if that is set), /etc/lockkeeper/config.toml (or LOCKKEEPER_SYSTEM_CONFIG), the \
default. The keys of a file (TOML) are the long names of the options, such as connect and \
require-servers. Credentials are not shown.

Environment, besides that of the options:
  LOCKKEEPER_HOME              where this user's own engine lives
                               [default: ~/.local/state/lockkeeper]
  LOCKKEEPER_SYSTEM_HOME       where the engine for all users of this machine lives
                               (lockkeeper local enable --system), or none, to have
                               an engine of one's own all the same
                               [default: /var/lib/lockkeeper-system]
  LOCKKEEPER_SYSTEM_CONFIG     the configuration file for all users, or none
                               [default: /etc/lockkeeper/config.toml]
  LOCKKEEPER_LOCAL_DURABILITY  what it survives: sync (a power cut), os (kill -9)
                               or memory (nothing) [default: sync]
  LOCKKEEPER_LOCAL_IDLE        how long it stays without sessions [default: 10m]
  LOCKKEEPER_LOG               what is logged on standard error, such as debug
  NO_COLOR                     no colours";

/// Print the settings in force, and where each is from
#[derive(Debug, Args)]
#[command(visible_alias = "config", after_long_help = NOTES)]
pub(crate) struct SettingsOptions {}

/// What a program reads. The names are stable.
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

/// Prints them.
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
    for (what, files) in [("read", &settings.files), ("not there", &settings.missing)] {
        for file in files {
            let _ = writeln!(text, "{what}: {}", printable(&file.to_string_lossy()));
        }
    }
    text
}

/// The value in force; `None` if that is no value.
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

/// What happens without a value.
fn absent(global: &Global, name: &str) -> &'static str {
    match name {
        "connect" if global.requires_servers() => "none, which is an error",
        "connect" => "an engine on this machine",
        "connect-timeout" => "as long as -w, or 10s",
        _ => "-",
    }
}
