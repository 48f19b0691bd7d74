//! A durable single-node server for the ZooKeeper protocol, for embedding into a program.
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
//! Each module uses only modules further down:
//!
//! | module | purpose |
//! |---|---|
//! | `test` | new engines for tests, and an index of the test controls |
//! | `startup` | starts an engine from its settings, and ends it |
//! | `engine` | the handle of a running engine |
//! | `net` | incoming clients: listeners, and the task of each connection, which delivers complete frames to the tree
//! thread |
//! | `admin` | interfaces for operators: four-letter words, metrics for Prometheus, health |
//! | `shared` | the state that the tasks and the handle of a running engine share: settings, addresses, counters, and
//! the channel to the tree thread |
//! | `tree_loop` | the tree thread: owns the `Server` of lockkeeper-tree, polls the sockets, and decides in which order
//! frames are handled and which connections are dropped when memory is short |
//! | `commit` | the commit queue and its thread: makes all waiting batches durable in one step and then sends their
//! replies |
//! | `connection` | the data to be sent to one client, from any thread; the limits on connections and on the memory of
//! all waiting data |
//! | `data_dir` | the data directory as a whole: its owner, free space, backup, check, restore, and the state that a
//! later engine needs |
//! | `settings` | the builder, all limits, and the plan that the other modules read |
//! | `metrics` | counters and histograms |
//! | `memory_room` | the memory that the process uses, and the limits on growth when that is nearly all |
//! | `sockets` | TCP and Unix sockets, TLS |
//! | `spin` | whether threads poll before they sleep, and for how long |
//! | `storage` | the durable copy of the state: logs of commits, and a database behind them |
//! | `thread`, `clock`, `files`, `error`, `option_enum` | helpers that all modules use |
//!
//! The path of a request: the task of its connection reads the frame and delivers it; the tree thread handles
//! everything delivered in one round and submits the effects; the commit thread makes the changes of all waiting rounds
//! durable in one step, and only then writes the replies to the sockets. If a commit is fast, the tree thread makes it
//! itself.
//!
//! Invariant: a client never sees a change that is not as durable as promised. A reply, a watch event and a ping all
//! wait for the changes that the tree made before them; after a storage error nothing more is sent. Only the answers to
//! four-letter words show changes that are not yet on the disk.

// Tests create files in directories of their own.
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
