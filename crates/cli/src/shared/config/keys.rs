//! The global options, as the keys of a configuration file.

use clap::builder::Resettable;
use clap::{Arg, Command};

/// The options that cannot be keys, with the reason.
pub(crate) const WITHOUT_KEY: [(&str, &str); 5] = [
    ("config", "a configuration file cannot name another one"),
    ("digest", "keep credentials in a separate file and name it with digest-file"),
    ("json", "set it on the command line of each call"),
    ("quiet", "set it on the command line"),
    ("verbose", "set it on the command line, or set LOCKKEEPER_LOG for all commands"),
];

/// The options that are keys, or that are listed together with the keys.
pub(super) fn listed(options: &Command) -> impl Iterator<Item = &Arg> {
    let is_listed = |name: &str| name == "digest" || is_key(name);
    options.get_arguments().filter(move |option| option.get_long().is_some_and(is_listed))
}

pub(super) fn is_key(name: &str) -> bool {
    !WITHOUT_KEY.iter().any(|(other, _)| *other == name)
}

/// The options as keys of a file, without their environment variables and defaults.
pub(super) fn keys(options: &Command) -> Command {
    let bare = |option: Arg| option.env(Resettable::Reset).default_value(Resettable::Reset);
    options.clone().no_binary_name(true).disable_help_flag(true).mut_args(bare)
}

pub(super) fn argument(name: &str, value: Option<&str>) -> String {
    format!("--{name}={}", value.unwrap_or_default())
}
