//! A durable single-node server for the ZooKeeper protocol, to be embedded.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = lockkeeper_engine::Engine::builder().start().await?;
//! println!("any ZooKeeper client can connect to {}", engine.connect_string());
//! # engine.stop().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Each of these names only what is further down:
//!
//! | where | what for |
//! |---|---|
//! | `test` | fresh engines for tests, and an index of the controls |
//! | `startup` | from settings to a running engine, and its end |
//! | `engine` | the handle of a running engine |
//! | `net` | clients on their way in: listeners, and the task of each connection, which brings whole frames to the tree thread |
//! | `admin` | what operators ask: four-letter words, metrics for Prometheus, health |
//! | `shared` | what the tasks and the handle of a running engine share: its settings, addresses and counters, and the way to the tree thread |
//! | `tree_loop` | the tree thread: owns the `Server` of lockkeeper-tree, polls the sockets, decides in which order frames are handled and which connections are dropped when memory is short |
//! | `commit` | the commit queue and its thread: one durable step for all batches that wait, then their replies |
//! | `connection` | what is to be sent to one client, from whichever thread has it; how many there may be, and the memory of all that waits |
//! | `data_dir` | the data directory seen from outside: its owner, its room, backup, check, restore, and what an engine must know of those before it |
//! | `settings` | what an engine is started with: the builder, all limits, and the plan that everyone reads |
//! | `metrics` | what is counted |
//! | `memory_room` | the memory that the process really has, and what may grow when that is nearly all |
//! | `sockets` | TCP and Unix sockets, TLS |
//! | `spin` | whether threads poll before they sleep, and for how long |
//! | `storage` | the durable copy of the state: logs of commits, and a database behind them |
//! | `thread`, `clock`, `files`, `error`, `option_enum` | what every module names |
//!
//! A request's way: its connection's task reads the frame and delivers it; the tree thread handles
//! everything delivered in one round and submits the effects; the commit thread makes the changes
//! of all waiting rounds durable in one step, and only then writes the replies to the sockets. What
//! is quick to commit takes a short way: the tree thread does the same by itself.
//!
//! Invariant: a client never sees a change that is not as durable as promised. A reply, a watch event
//! and a ping all wait for whatever the tree had changed before them; after an error of the storage
//! nothing is sent any more. Only the answers to four-letter words show what is not on the disk yet.

// Tests make their own files, in directories of their own.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod admin;
mod clock;
mod commit;
mod connection;
mod data_dir;
mod engine;
mod error;
pub mod files;
mod memory_room;
mod metrics;
mod net;
mod option_enum;
mod settings;
mod shared;
mod sockets;
mod spin;
mod startup;
mod storage;
pub mod test;
mod thread;
mod tree_loop;

pub use data_dir::backup::{Backup, BackupError};
pub use data_dir::check::{Report, check};
pub use data_dir::control::backup;
pub use data_dir::restore::{Existing, Restoration, RestoreFailure, raise_floor, restore};
pub use engine::Engine;
pub use error::{EngineError, StartError};
pub use lockkeeper_tree::{DigestAlgorithm, Stats, UnknownDigestAlgorithm};
pub use lockkeeper_wire::{SessionId, Zxid};
pub use settings::builder::Builder;
#[cfg(feature = "tls")]
pub use sockets::tls::{ClientCertificates, Tls, TlsError, read_pem};
pub use spin::{Spin, UnknownSpin};
pub use storage::{Durability, StorageError, UnknownDurability};
