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
//! ```text
//!   builder        settings            engine    the handle of a running one
//!   limits         ... those that protect it
//!   startup        from the first to the second, and the end
//!
//!   listener       accepts, within the limits of `admission`; `unix_socket` guards the file
//!   conversation   a connection's task: bytes in, whole frames to the tree thread
//!   tree_loop      the tree thread: owns the `Server` of lockkeeper-tree, and polls the sockets
//!                  ... in it `turns`, whose frames come when, and `relief`, who has to go
//!   spin           whether threads poll before they sleep, and for how long
//!   commit         the commit thread: one durable step for all that waits, then the replies
//!   connection     bytes out, from whichever thread has them; `unsent` are those that wait, and
//!                  `socket` is what they go through
//!   budget         the memory of all that waits; `memory` is how much of it there is
//!   storage        the data directory    check, backup, control   ... looked at, and copied
//!   disk_room      ... and what may grow while there is little room for it
//!   restore        ... and put back      succession, floor   what an engine knows of those before it
//!
//!   words, prometheus, http   what operators see of `metrics`, counted by `ops`, `histogram`
//!   tls, x509                 encryption, and who a certificate says its owner is
//!   test                      fresh engines for tests, and an index of the controls
//!   pace, log_limiter, open_files, rest, facts, clock, error
//! ```
//!
//! A request's way: its connection's task reads the frame and delivers it; the tree thread handles
//! everything delivered in one round and submits the effects; the commit thread makes the changes
//! of all waiting rounds durable in one step, and only then writes the replies to the sockets. What
//! is quick to commit takes a short way: the tree thread does the same by itself.
//!
//! Invariant: nothing a client can see is ever un-durable. A reply, a watch event and a ping all
//! wait for whatever the tree had changed before them; after an error of the storage nothing is
//! sent any more.

mod admin;
mod clock;
mod commit;
mod connection;
mod data_dir;
mod engine;
mod error;
mod metrics;
mod net;
mod settings;
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
pub use lockkeeper_tree::Stats;
pub use lockkeeper_wire::{SessionId, Zxid};
pub use settings::builder::Builder;
#[cfg(feature = "tls")]
pub use sockets::tls::{ClientCertificates, Tls, TlsError, read_pem};
pub use spin::{Spin, UnknownSpin};
pub use storage::{Durability, StorageError, UnknownDurability};
