//! The errors of starting and running an engine.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_tree::{InvalidSuperDigest, RestoreError};

use crate::storage::StorageError;

/// Why an engine did not start. No thread, lock or socket remains.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Another program listens on a TCP address.
    #[error("{address} is in use by another program: stop that program, or choose another port")]
    PortTaken {
        /// The requested address.
        address: SocketAddr,
    },

    /// The engine already listens on this TCP address: for clients, with or without TLS, or for monitors.
    #[error("{address} was given twice: plain clients, TLS clients and monitors need a port each")]
    ListenTwice {
        /// The address that was requested twice.
        address: SocketAddr,
    },

    /// The operating system does not allow listening on a TCP address.
    #[error(
        "cannot listen on {address} ({source}): choose an address of this machine and a free port"
    )]
    Listen {
        /// The requested address.
        address: SocketAddr,
        /// The operating system's error.
        source: io::Error,
    },

    /// Other machines can reach the address, and the traffic is not encrypted.
    #[error(
        "other machines can reach {address}, and the traffic would not be encrypted: listen on a \
         loopback address, or allow plaintext explicitly"
    )]
    Plaintext {
        /// The requested address.
        address: SocketAddr,
    },

    /// A running engine listens on the Unix socket.
    #[error(
        "another engine listens on {}: stop that engine, or choose another path",
        .path.display()
    )]
    SocketInUse {
        /// The requested path.
        path: PathBuf,
    },

    /// The path of the Unix socket exists and is not a socket.
    #[error(
        "{} exists and is not a socket: remove it, or choose another path for the socket",
        .path.display()
    )]
    NotASocket {
        /// The requested path.
        path: PathBuf,
    },

    /// The path of the Unix socket is too long for the operating system.
    #[error(
        "the socket path {} is {len} bytes long, and at most {max} are possible: choose a \
         shorter one",
        .path.display()
    )]
    SocketPathTooLong {
        /// The requested path, made absolute.
        path: PathBuf,
        /// Its length, in bytes.
        len: usize,
        /// The longest possible length, in bytes.
        max: usize,
    },

    /// The Unix socket cannot be created.
    #[error(
        "cannot listen on the Unix socket {} ({source}): give the engine's user access to that \
         directory, or choose another path",
        .path.display()
    )]
    Socket {
        /// The requested path.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },

    /// The data directory cannot be opened: it is in use, not writable, damaged, or from a newer version.
    #[error(transparent)]
    Storage(#[from] StorageError),

    /// The data directory was opened, but a newer version wrote its content.
    #[error(
        "the data directory {} was written by a newer version ({source}): upgrade lockkeeper, or \
         choose another directory",
        .path.display()
    )]
    NewerRecord {
        /// The data directory.
        path: PathBuf,
        /// The record that could not be read.
        source: RestoreError,
    },

    /// The session timeouts contradict each other.
    #[error(
        "the tick ({tick:?}) and the session timeouts ({min:?} to {max:?}) do not fit together: the tick must be \
         at least 1 ms, and the shortest timeout above 0 and at most the longest"
    )]
    Timeouts {
        /// The tick.
        tick: Duration,
        /// The shortest session timeout.
        min: Duration,
        /// The longest session timeout.
        max: Duration,
    },

    /// The super user's digest has the wrong form.
    #[error(transparent)]
    SuperDigest(#[from] InvalidSuperDigest),

    /// A four-letter word is unknown.
    #[error("the four-letter word {word:?} is unknown: leave it out, or write * for all")]
    UnknownWord {
        /// The unknown word.
        word: String,
    },

    /// The engine ended before it was ready.
    #[error(transparent)]
    Engine(#[from] EngineError),

    /// The operating system refuses a thread, a timer or randomness.
    #[error("the operating system does not provide {what} ({source}): check its limits")]
    System {
        /// The refused resource.
        what: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
}

/// Why an engine ended without a call of [`Engine::stop`](crate::Engine::stop).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A commit failed. No reply was sent after that; the next start finds every acknowledged write.
    #[error("the engine stopped: {0}")]
    Storage(Arc<StorageError>),

    /// The data directory was removed or replaced while the engine ran. Another engine may have started in its place,
    /// so this one stopped granting locks.
    #[error(
        "the engine stopped: the data directory {} was removed or replaced while it ran, and its \
         data is gone; restart the engine to begin with an empty tree, or put the directory back first",
        .path.display()
    )]
    Displaced {
        /// The data directory.
        path: PathBuf,
    },

    /// A data file was removed or replaced while the engine ran. Writes to the open file would be lost, so the engine
    /// stopped granting locks.
    #[error(
        "the engine stopped: a data file in {} was removed or replaced while it ran: put it \
         back if it was moved away, or restore the directory from a backup",
        .path.display()
    )]
    DataRemoved {
        /// The data directory.
        path: PathBuf,
    },

    /// A thread of the engine panicked.
    #[error("the engine stopped because of a bug: see the panic message, and please report it")]
    Panicked,
}

impl StartError {
    /// The error for a resource that the operating system does not provide.
    pub(crate) fn refused(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }

    /// The error for a thread that the operating system does not provide.
    pub(crate) fn no_thread(source: io::Error) -> Self {
        Self::System { what: "a thread", source }
    }
}

impl From<StorageError> for EngineError {
    fn from(e: StorageError) -> Self {
        Self::Storage(Arc::new(e))
    }
}
