//! Real Apache ZooKeeper servers, as child processes on free ports of the loopback address.
//!
//! A standalone server takes about a second to start, an ensemble of three about three. Tests that only need *a* server
//! share one per test process, each under a chroot of its own: [`shared_chroot`].

mod chroot;
mod config;
mod ensemble;
mod probe;
mod secure;
mod server;
mod shared;

pub use config::Config;
pub use ensemble::ZooKeeperEnsemble;
pub use probe::{Probe, Ticket, View, complaints_in};
pub use secure::{secure_address, wait_for_secure};
pub use server::{Mode, ZooKeeper, free_ports};
pub use shared::{REAPING, shared, shared_chroot, shared_reaping_chroot};
