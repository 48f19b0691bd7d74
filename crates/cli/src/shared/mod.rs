//! Code that all commands share and that needs no server: options, files, names, output, exit codes.

pub(crate) mod allocator;
pub(crate) mod config;
pub(crate) mod content;
pub(crate) mod exit;
pub(crate) mod global;
pub(crate) mod journal;
pub(crate) mod log;
pub(crate) mod names;
pub(crate) mod output;
pub(crate) mod program;
pub(crate) mod roots;
pub(crate) mod runtime;
pub(crate) mod server_signals;
pub(crate) mod signals;
pub(crate) mod trust;
pub(crate) mod user;
pub(crate) mod view;
