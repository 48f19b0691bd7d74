//! Why a tree cache could not be opened, or has ended.

use lockkeeper_client::{Error, Outcome, ZnodePath, impl_failure};

/// Why a [`TreeCache`](crate::TreeCache) could not be opened, or has ended. The last snapshot of one
/// that has ended stays readable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The path is not one.
    #[error(transparent)]
    Path(#[from] lockkeeper_client::PathError),
    /// There are more nodes than allowed.
    #[error(
        "there are more than {max} nodes below {path}; raise `max_nodes`, or leave some out by a \
         filter or a depth"
    )]
    TooManyNodes {
        /// The path of the cache.
        path: String,
        /// How many were allowed.
        max: usize,
    },
    /// Names and data are longer than allowed.
    #[error(
        "the nodes below {path} have more than {max} bytes of names and data; raise `max_bytes`, or \
         leave some out by a filter or a depth"
    )]
    TooManyBytes {
        /// The path of the cache.
        path: String,
        /// How many were allowed, in bytes.
        max: usize,
    },
    /// No answer can hold the names of a node's children.
    #[error(
        "the names of the {children} children of {path} take more than an answer may have; spread \
         them over several nodes, or raise jute.maxbuffer and `ClientBuilder::max_frame`"
    )]
    TooManyChildren {
        /// The node.
        path: String,
        /// How many children it has.
        children: usize,
    },
    /// It is `/`, or `/zookeeper` or below it, where the server keeps what is its own.
    #[error("{0} cannot be the base of services; name a path of its own for it, like /services")]
    Reserved(ZnodePath),
    /// A node may not be read, so no snapshot would be complete.
    #[error(
        "{path} may not be read, so it cannot be cached; show credentials, or leave it out by a filter \
         or `skip_unreadable`"
    )]
    Unreadable {
        /// The node.
        path: String,
    },
    /// No server has set the watch.
    #[error(
        "servers closed the connection {tries} times in a row when a persistent watch on {path} was \
         asked for, as those before 3.6 do; use servers 3.6 or newer"
    )]
    NoWatch {
        /// The path of the cache.
        path: String,
        /// How often.
        tries: u32,
    },
    /// Nothing keeps the cache up to date any more: the runtime in which its client was connected has
    /// ended, or the closure of a filter has panicked.
    #[error(
        "{path} is not followed any more: the runtime in which the client was connected has ended, or a \
         filter has panicked; open it again, and keep the runtime of its client running"
    )]
    Stopped {
        /// The path of the cache.
        path: ZnodePath,
    },
    /// A request failed for good.
    #[error(transparent)]
    Request(#[from] Error),
}

impl_failure!(CacheError {
    Self::Request(error) => (error.is_retryable(), Outcome::NotApplied),
    Self::Path(_)
    | Self::TooManyNodes { .. }
    | Self::TooManyBytes { .. }
    | Self::TooManyChildren { .. }
    | Self::Reserved(_)
    | Self::Unreadable { .. }
    | Self::NoWatch { .. }
    | Self::Stopped { .. } => (false, Outcome::NotApplied),
});
