//! What each subcommand does. Each takes its options as parsed, and gives the exit code.

pub(crate) mod barrier;
pub(crate) mod counter;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod engine;
pub(crate) mod graph;
pub(crate) mod id;
pub(crate) mod leader;
pub(crate) mod ls;
pub(crate) mod members;
pub(crate) mod permits;
pub(crate) mod pool;
pub(crate) mod queue;
pub(crate) mod record;
pub(crate) mod revoke;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod service;
pub(crate) mod settings;
pub(crate) mod show;
pub(crate) mod status;
pub(crate) mod ticks;
pub(crate) mod transfer;
pub(crate) mod value;
pub(crate) mod wait;
pub(crate) mod watch;
