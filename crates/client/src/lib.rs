//! A ZooKeeper client on tokio, for servers 3.5 and newer.
//!
//! ```text
//!   builder         ClientBuilder: options, and the first connection
//!   client          Client: the handle of a session, with all operations on nodes
//!   transaction     Transaction: several writes, all or none
//!   reply           Reply: the future of a reply; requests are sent when they are made
//!   watcher         Watcher, WatchStream: watches as values
//!   dirty           DirtyPaths: a watch that keeps changed paths instead of events
//!   path_sink       where the session stores those paths
//!   watch_item      the items of a persistent watch, and why it ends
//!   updates         Updates: a source of changes as a stream
//!   arrival         Arrival: the order in which a client receives replies and events
//!   hold            Hold: a node whose existence the session proves at each heartbeat
//!   binding         requests that belong to a hold
//!   retry           which failures are transient, and when a request may be repeated
//!   horizon         Horizon: whether what a server shows is outdated
//!   status          the state of the connection and the session, and of a hold and its lease
//!   metrics         the names of all metrics, and how to record one
//!   session_figures the metrics of sessions
//!   identity        SessionIdentity: what another process needs to close a session
//!   default_acl     DefaultAcl: the access control list of new znodes
//!   error           the errors of a client; their messages say what to do
//!   failure         Failure: whether an error is retryable, and whether the call had an effect
//!   connect_string  host:port,host:port/chroot and unix:/path
//!   clock           the clock of leases and deadlines
//!   runtime         time, connections and identifiers; replaced in simulations
//!   shared          the session behind a mutex, shared by handles and driver
//!   driver          the task that owns the connection
//!   server          Server: one server of a connection string
//!   service         what is known about the servers being one service
//!   one_service     checks whether the servers are one service
//!   addresses       which address of a server's name is tried next
//!   dial            which server is tried next, and when
//!   fault           why a connection attempt failed, and whether a retry may help
//!   rehearsal       Rehearsal: injected faults, for tests of programs that hold locks
//!   tls             TLS to the servers
//! ```
//!
//! Invariant: this crate makes no decision about the protocol. It moves bytes, time and wake-ups between
//! tokio and `lockkeeper_session::Session`.
//!
//! ```
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use lockkeeper_client::{Client, CreateMode, ZnodePath};
//!
//! let client = Client::connect("127.0.0.1:2181").await?;
//! let path = ZnodePath::new("/greeting")?;
//! client.create(&path, "hello", CreateMode::Ephemeral).await?;
//! let (data, stat) = client.data(&path).await?;
//! assert_eq!((&data[..], stat.version), (&b"hello"[..], 0));
//! client.close().await;
//! # Ok(())
//! # }
//! ```

mod addresses;
mod arrival;
mod binding;
mod builder;
mod client;
mod clock;
mod connect_string;
mod default_acl;
mod dial;
mod dirty;
mod driver;
mod error;
mod failure;
mod fault;
mod hold;
#[doc(hidden)]
pub mod horizon;
mod identity;
#[cfg(feature = "metrics")]
pub mod metrics;
mod one_service;
mod path_sink;
#[cfg(feature = "rehearsal")]
mod rehearsal;
mod reply;
#[doc(hidden)]
pub mod retry;
#[doc(hidden)]
pub mod runtime;
mod server;
mod service;
#[cfg(feature = "metrics")]
mod session_figures;
mod shared;
mod status;
#[cfg(feature = "tls")]
mod tls;
mod transaction;
#[cfg(feature = "stream")]
mod updates;
mod watch_item;
mod watcher;

pub use arrival::Arrival;
pub use builder::ClientBuilder;
pub use client::{Client, Created, Listing};
pub use clock::Clock;
pub use connect_string::{ConnectString, ConnectStringError, Host};
pub use default_acl::{AclError, DefaultAcl};
pub use dirty::DirtyPaths;
pub use error::{ConnectError, Error, StillHeld, TransactionError, present};
pub use failure::Failure;
pub use hold::{Hold, HoldProbe, bound_to};
pub use identity::SessionIdentity;
pub use path_sink::{DirtyPath, DirtySet, PathsProbe, Rearms};
#[cfg(feature = "rehearsal")]
pub use rehearsal::Rehearsal;
pub use reply::{Arrived, Reply, WatchedReply};
pub use service::ServiceError;
#[cfg(feature = "metrics")]
#[doc(hidden)]
pub use session_figures::update_sessions;
pub use status::{HoldState, Status};
#[cfg(feature = "tls")]
pub use tls::{Tls, TlsError};
pub use transaction::Transaction;
#[cfg(feature = "stream")]
pub use updates::{UpdateStream, Updates};
pub use watch_item::{WatchItem, WatchLost};
pub use watcher::{WatchStream, Watcher};

#[doc(hidden)]
pub use lockkeeper_session::MAX_SKIPPED_REPLY;
pub use lockkeeper_session::{
    Cleanup, Contact, ExpectedNode, HoldProof, Instant, LeaseMode, LeaseState, NameUse, Outcome,
    Timing, WatchEvent,
};
pub use lockkeeper_wire::{
    Acl, AddWatchMode, ClientInfo, CreateMode, ErrorCode, EventKind, OpCode, OpResult, PathError,
    PathRequest, Permissions, ReadOp, ReadResult, Sequence, SessionId, Stat, ZnodePath, Zxid,
};
#[doc(hidden)]
pub use lockkeeper_wire::{impl_debug, setters};
