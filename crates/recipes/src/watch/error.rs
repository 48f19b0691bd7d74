//! Errors of tree caches.

use lockkeeper_client::{Error, Outcome, ZnodePath, impl_failure};

/// Why a [`TreeCache`](crate::TreeCache) could not be opened, or has ended. The last snapshot of a cache that has
/// ended stays readable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The text is not a path.
    #[error(transparent)]
    Path(#[from] lockkeeper_client::PathError),
    /// The tree has more nodes than allowed.
    #[error(
        "{path} has more than {max} nodes below it; raise `max_nodes`, or exclude some with a \
         filter or a depth"
    )]
    TooManyNodes {
        /// The path of the cache.
        path: String,
        /// The limit.
        max: usize,
    },
    /// Names and data are longer than allowed.
    #[error(
        "the nodes below {path} have more than {max} bytes of names and data; raise `max_bytes`, or \
         exclude some with a filter or a depth"
    )]
    TooManyBytes {
        /// The path of the cache.
        path: String,
        /// The limit, in bytes.
        max: usize,
    },
    /// The names of a node's children do not fit into an answer.
    #[error(
        "the names of the {children} children of {path} exceed the size of an answer; spread \
         them over several nodes, or raise jute.maxbuffer and `ClientBuilder::max_frame`"
    )]
    TooManyChildren {
        /// The node.
        path: String,
        /// The number of its children.
        children: usize,
    },
    /// The path is `/`, or `/zookeeper` or below it, which the server uses itself.
    #[error("{0} cannot be the base of services; use another path, such as /services")]
    Reserved(ZnodePath),
    /// A node may not be read, so that no snapshot is complete.
    #[error(
        "{path} may not be read, so it cannot be cached; add credentials, or exclude it with a filter \
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
        /// The number of attempts.
        tries: u32,
    },
    /// The cache is not updated any more: the runtime in which its client was connected has ended, or the closure of
    /// a filter has panicked.
    #[error(
        "the cache of {path} is no longer updated: the runtime in which the client was connected has ended, or a \
         filter has panicked; open it again, and keep the runtime of its client running"
    )]
    Stopped {
        /// The path of the cache.
        path: ZnodePath,
    },
    /// A request failed permanently.
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
