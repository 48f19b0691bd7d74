//! Distributed locks with guards, fencing tokens and exact leases, on the ZooKeeper protocol.
//!
//! This is the crate to depend on. It re-exports `lockkeeper-locks` (locks, elections and other exclusive
//! access), `lockkeeper-recipes` (shared state, queues, groups), and the client below both.
//!
//! A path belongs to one lock of one kind, and a lock must not have other locks below it: an acquire that
//! finds other children fails ([`AcquireError::Foreign`]). Creating a lock does not check this. So a lock
//! below the path of a held lock is granted, and the next acquire of the upper lock fails.
//!
//! Everything here requires a tokio runtime with its timer enabled; methods that wait panic without one. A
//! client of [`blocking`] has its own runtime.
//!
//! Invariant: a lock that is reported as held was held at that moment, and its holder can know of the loss
//! before another client acquires the lock. For the guarantees and their limits see `docs/guarantees.md`.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let engine = lockkeeper_engine::Engine::builder().start().await?;
//! # let servers = engine.connect_string();
//! use lockkeeper::{Client, Mutex};
//!
//! let client = Client::connect(&servers).await?;
//! let lock = Mutex::new(&client, "/locks/orders")?;
//!
//! let guard = lock.acquire().await?;
//! println!("held; fencing token {}", guard.token());
//! guard.release().await?;
//! # client.close().await;
//! # Ok(())
//! # }
//! ```

pub mod blocking;
// Some of the programs need a rehearsal. With all features, as in CI, all of them run.
#[cfg(all(doctest, feature = "rehearsal"))]
mod chinese_pages;
#[cfg(feature = "metrics")]
pub mod metrics;

#[doc(inline)]
pub use lockkeeper_locks::*;
#[doc(inline)]
pub use lockkeeper_recipes::*;

#[cfg(feature = "rehearsal")]
pub use lockkeeper_client::Rehearsal;
#[doc(inline)]
pub use lockkeeper_client::{
    Acl, AclError, AddWatchMode, Client, ClientBuilder, Clock, ConnectError, ConnectString,
    Contact, CreateMode, Created, DefaultAcl, Error, ErrorCode, EventKind, Failure, Host, Instant,
    LeaseMode, LeaseState, Listing, OpResult, Outcome, PathError, Permissions, Reply, Sequence,
    ServiceError, SessionId, SessionIdentity, Stat, Status, StillHeld, Timing, Transaction,
    TransactionError, WatchEvent, WatchItem, WatchLost, WatchStream, Watcher, ZnodePath, Zxid,
};
#[cfg(feature = "tls")]
pub use lockkeeper_client::{Tls, TlsError};
#[cfg(feature = "stream")]
pub use lockkeeper_client::{UpdateStream, Updates};

#[cfg(test)]
mod tests;
