//! Distributed locks with guards, fencing tokens and exact leases, on the ZooKeeper protocol.
//!
//! This crate is the one to depend on. It shows what two crates hold: `lockkeeper-locks`, what can be held, and
//! `lockkeeper-recipes`, what is shared and seen; and the client below both.
//!
//! A path is that of one lock of one kind, and a lock has no other locks below it: the first acquire that
//! finds other children refuses them ([`AcquireError::Foreign`]). Nothing is looked up when a lock is made
//! or used for the first time, so a lock below one that is held is granted, and the upper one refused next.
//!
//! Everything here runs in a tokio runtime whose timer is enabled, and what waits panics without a timer;
//! a client of [`blocking`] has a runtime of its own.
//!
//! Invariant: a lock that is reported as held was held at that moment, and its holder is told before
//! another client can have it. See `docs/guarantees.md` for what is promised and what
//! is not.
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
