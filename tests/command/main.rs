//! The `lockkeeper` command, as users run it: exit codes, signals, loss, and what is left behind.
//!
//! Every test has a `LOCKKEEPER_HOME` of its own, and so an engine of its own.

mod access;
mod calls;
mod configuration;
mod demo;
mod disk_faults;
mod doctor;
mod elections;
mod engine;
mod faulty;
mod figures;
mod growing;
mod guide;
mod hold;
mod items;
mod killed;
mod kinds;
mod limits;
mod line;
mod log;
mod look;
mod lost;
mod machine;
mod once;
mod one_machine;
mod one_of;
mod one_service;
mod page;
mod pause;
mod planted;
mod put_back;
mod restore;
mod run;
mod run_log;
mod serve;
mod several;
mod signals;
mod slow;
mod supervised;
mod support;
mod terminal;
mod tls;
mod transfer;
mod users;
mod way;
