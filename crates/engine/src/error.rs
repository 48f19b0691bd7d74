//! Why an engine did not start, and why it ended.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_tree::{InvalidSuperDigest, RestoreError};

use crate::storage::StorageError;

/// Why an engine did not start. Nothing is left behind: no thread, no lock, no socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A TCP address that something else listens on.
    #[error("{address} is taken by another program: stop that one, or listen on another port")]
    PortTaken {
        /// The address that was asked for.
        address: SocketAddr,
    },

    /// A TCP address that this engine listens on already: for clients, with TLS or without, or for
    /// monitors.
    #[error(
        "{address} was given twice: what listens with TLS, without, and for monitors needs a port each"
    )]
    ListenTwice {
        /// The address that was asked for the second time.
        address: SocketAddr,
    },

    /// A TCP address that the operating system does not give.
    #[error("cannot listen on {address} ({source}): choose an address and a port of this machine")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// The operating system's answer.
        source: io::Error,
    },

    /// An address that other machines can reach, where everything would be readable on the way.
    #[error(
        "{address} can be reached by other machines, and nothing would be encrypted: listen on a \
         loopback address, or allow plaintext explicitly"
    )]
    Plaintext {
        /// The address that was asked for.
        address: SocketAddr,
    },

    /// A Unix socket path whose engine is alive.
    #[error(
        "address in use: another engine listens on {}: stop that one, or choose another path",
        .path.display()
    )]
    SocketInUse {
        /// The path that was asked for.
        path: PathBuf,
    },

    /// A Unix socket path with something else at it.
    #[error(
        "{} exists and is no socket: remove it, or choose another path for the socket",
        .path.display()
    )]
    NotASocket {
        /// The path that was asked for.
        path: PathBuf,
    },

    /// A Unix socket path that does not fit into the operating system's address.
    #[error(
        "the socket path {} is {len} bytes long, and a Unix socket takes at most {max}: choose a \
         shorter one",
        .path.display()
    )]
    SocketPathTooLong {
        /// The path that was asked for, made absolute.
        path: PathBuf,
        /// Its length, in bytes.
        len: usize,
        /// The longest possible, in bytes.
        max: usize,
    },

    /// A Unix socket that cannot be made.
    #[error(
        "cannot listen on the Unix socket {} ({source}): give the engine's user access to that \
         directory, or choose another path",
        .path.display()
    )]
    Socket {
        /// The path that was asked for.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },

    /// The data directory does not open: in use, not writable, damaged, from a newer version.
    #[error(transparent)]
    Storage(#[from] StorageError),

    /// The data directory opens, but a newer version wrote what is in it.
    #[error(
        "the data directory {} was written by a newer version ({source}): upgrade lockkeeper, or \
         choose another directory",
        .path.display()
    )]
    NewerRecord {
        /// The data directory.
        path: PathBuf,
        /// Which record.
        source: RestoreError,
    },

    /// Session timeouts that contradict each other.
    #[error(
        "the tick ({tick:?}) and the session timeouts ({min:?} to {max:?}) do not fit: the tick is \
         at least 1 ms, and the shortest timeout neither 0 nor above the longest"
    )]
    Timeouts {
        /// The tick.
        tick: Duration,
        /// The shortest session timeout.
        min: Duration,
        /// The longest session timeout.
        max: Duration,
    },

    /// A super user's digest in the wrong form.
    #[error(transparent)]
    SuperDigest(#[from] InvalidSuperDigest),

    /// An unknown four-letter word.
    #[error("the four-letter word {word:?} is unknown: leave it out, or write * for all")]
    UnknownWord {
        /// The word that was asked for.
        word: String,
    },

    /// The engine ended before it was ready.
    #[error(transparent)]
    Engine(#[from] EngineError),

    /// The operating system refuses a thread, a timer or randomness.
    #[error("the operating system refuses the engine {what} ({source}): check its limits")]
    System {
        /// What was refused.
        what: &'static str,
        /// The operating system's answer.
        source: io::Error,
    },
}

/// Why an engine ended although nobody had asked it to.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A commit failed. Nothing was answered after that; whatever had been acknowledged is found
    /// at the next start.
    #[error("the engine stopped: {0}")]
    Storage(Arc<StorageError>),

    /// The data directory was removed or replaced while the engine ran. Another engine may have
    /// started in its place, so this one grants nothing any more.
    #[error(
        "the engine stopped: the data directory {} was removed or replaced while it ran, and what \
         it kept is gone with it; start it again to begin anew there, or put the directory back first",
        .path.display()
    )]
    Displaced {
        /// The data directory.
        path: PathBuf,
    },

    /// A file of the data was removed or replaced while the engine ran. Nobody would find what it
    /// writes to the file that it still has, so it grants nothing any more.
    #[error(
        "the engine stopped: a file of the data in {} was removed or replaced while it ran: put it \
         back if it was moved away, or restore the directory from a backup",
        .path.display()
    )]
    DataRemoved {
        /// The data directory.
        path: PathBuf,
    },

    /// A thread of the engine panicked.
    #[error("the engine stopped because of a bug in it: see the panic message, and report it")]
    Panicked,
}

impl StartError {
    /// The error for what the operating system does not give.
    pub(crate) fn refused(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }

    /// The error for a thread that the operating system does not give.
    pub(crate) fn no_thread(source: io::Error) -> Self {
        Self::System { what: "a thread", source }
    }
}

impl From<StorageError> for EngineError {
    fn from(e: StorageError) -> Self {
        Self::Storage(Arc::new(e))
    }
}
