//! What Lockkeeper's own suites share: servers to run on, and programs to contend with.
//!
//! | module | what |
//! |---|---|
//! | [`peers`] | which real peers this machine has; skipping, loudly, what needs a missing one |
//! | [`zookeeper`] | real Apache ZooKeeper servers: one alone, an ensemble, one for the whole process |
//! | [`postgres`] | a PostgreSQL server |
//! | [`network`] | hosts of their own, for servers and clients, and cuts between them |
//! | [`java`], [`python`] | our programs that use Apache Curator and kazoo |
//! | [`command`] | where the `lockkeeper` command is |
//! | [`clock`] | the time that programs in all languages can tell each other |
//! | [`wall_clock`] | wall clocks that jump |
//! | [`process`] | child processes that are watched, and that never outlive the test |
//! | [`backend`] | the engine and a real ZooKeeper, handled in the same way by contract suites |
//! | [`proxy`], [`frames`] | between a client and its server: counts frames, loses connections and replies |
//! | [`history`], [`checker`], [`beliefs`] | what happened in a run, and what must be true of it; `availability`, `jeopardy` and `leases` are parts of it |
//! | [`sharing`], [`told`] | programs that share data, and what they say of it |
//! | [`locks`] | locks of any kind behind one face, for simulations and models |
//! | [`scratch`] | temporary folders that never outlive it either |
//!
//! Invariant: nothing started here survives the test process, not even its death by SIGKILL.

mod availability;
#[cfg(feature = "servers")]
pub mod backend;
pub mod beliefs;
pub mod checker;
#[cfg(feature = "servers")]
pub mod clock;
#[cfg(feature = "servers")]
pub mod command;
#[cfg(feature = "servers")]
pub mod frames;
pub mod gate;
pub mod history;
#[cfg(feature = "servers")]
pub mod java;
mod jeopardy;
mod leases;
pub mod locks;
#[cfg(feature = "servers")]
pub mod network;
#[cfg(feature = "servers")]
pub mod peers;
#[cfg(feature = "servers")]
pub mod postgres;
#[cfg(feature = "servers")]
pub mod process;
#[cfg(feature = "servers")]
pub mod proxy;
#[cfg(feature = "servers")]
pub mod python;
#[cfg(feature = "servers")]
pub mod scratch;
pub mod sharing;
pub mod told;
#[cfg(feature = "servers")]
pub mod wall_clock;
#[cfg(feature = "servers")]
pub mod zookeeper;
