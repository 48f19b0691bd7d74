//! The options of all commands, as the keys of a file.

use clap::builder::Resettable;
use clap::{Arg, Command};

/// The options that are no keys, and why.
pub(crate) const WITHOUT_KEY: [(&str, &str); 5] = [
    ("config", "a configuration file does not name another one"),
    ("digest", "credentials belong into a file of their own, which digest-file names"),
    ("json", "each command line says whether a program reads its output"),
    ("quiet", "each command line says it"),
    ("verbose", "each command line says it; for all of them, set LOCKKEEPER_LOG"),
];

/// The options that are keys, or are listed with them.
pub(super) fn listed(options: &Command) -> impl Iterator<Item = &Arg> {
    let is_listed = |name: &str| name == "digest" || is_key(name);
    options.get_arguments().filter(move |option| option.get_long().is_some_and(is_listed))
}

pub(super) fn is_key(name: &str) -> bool {
    !WITHOUT_KEY.iter().any(|(other, _)| *other == name)
}

/// The options as the keys of a file: neither the environment nor defaults mix in.
pub(super) fn keys(options: &Command) -> Command {
    let bare = |option: Arg| option.env(Resettable::Reset).default_value(Resettable::Reset);
    options.clone().no_binary_name(true).disable_help_flag(true).mut_args(bare)
}

pub(super) fn argument(name: &str, value: Option<&str>) -> String {
    format!("--{name}={}", value.unwrap_or_default())
}
