//! What Lockkeeper's own test suites share: servers to run on, and programs that contend for locks.
//!
//! | module | what |
//! |---|---|
//! | [`peers`] | which real peers are installed; skips, with a report, the suites that need a missing one |
//! | [`zookeeper`] | real Apache ZooKeeper servers: standalone, an ensemble, one for the whole process |
//! | [`postgres`] | a PostgreSQL server |
//! | [`network`] | separate hosts for servers and clients, and cuts between them |
//! | [`java`], [`python`] | our programs that use Apache Curator and kazoo |
//! | [`command`] | the path of the `lockkeeper` command |
//! | [`clock`] | the clock that programs in all languages share |
//! | [`wall_clock`] | wall clocks that jump |
//! | [`process`] | child processes that are monitored and that never outlive the test |
//! | [`backend`] | the engine and a real ZooKeeper behind one interface, for contract suites |
//! | [`proxy`], [`frames`] | between a client and its server: counts frames, loses connections and replies |
//! | [`history`], [`checker`], [`beliefs`] | the events of a run and their invariants, with `availability`, `jeopardy`
//! and `leases` |
//! | [`sharing`], [`data_event`] | programs that share data, and the events that they record |
//! | [`locks`] | locks of all kinds behind one interface, for simulations and models |
//! | [`scratch`] | temporary directories that never outlive the test |
//!
//! Invariant: no process or file that this crate creates outlives the test process, even if that is killed with
//! SIGKILL.

mod availability;
#[cfg(feature = "servers")]
pub mod backend;
pub mod beliefs;
pub mod checker;
#[cfg(feature = "servers")]
pub mod clock;
#[cfg(feature = "servers")]
pub mod command;
pub mod data_event;
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
#[cfg(feature = "servers")]
pub mod wall_clock;
#[cfg(feature = "servers")]
pub mod zookeeper;
