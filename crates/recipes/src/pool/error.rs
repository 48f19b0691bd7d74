//! Errors of pools.

use lockkeeper_client::retry::TooLong;
use lockkeeper_client::{
    Client, Error, Outcome, PathError, TransactionError, ZnodePath, impl_failure,
};
use lockkeeper_locks::{AcquireError, BuildError};

use crate::exact::WriteError;
use crate::values::ValueError;

/// An error of a pool. A failed attempt leaves no node behind, except one that is about to be deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The path is invalid.
    #[error("{0}; the path of a pool looks like /pools/gpu")]
    Path(#[from] PathError),
    /// The path is `/`, or `/zookeeper` or below it, which the server uses itself.
    #[error("{0} cannot be used for a pool; use another path, such as /pools/gpu")]
    Reserved(ZnodePath),
    /// The name of a thing, or of a holder, exceeds the servers' limit.
    #[error("{0}")]
    Name(#[from] BuildError),
    /// The limit of a holder is 0.
    #[error("{holder:?} is limited to 0 things of a pool and would wait forever; use at least 1")]
    NoPlaces {
        /// The holder.
        holder: String,
    },
    /// The handle can never take a thing of the pool.
    #[error(
        "no thing of {path} can be taken: {}",
        unwanted(things.as_deref(), only)
    )]
    NothingWanted {
        /// The pool.
        path: ZnodePath,
        /// The things that this program gives; `None` if they are stored.
        things: Option<Vec<String>>,
        /// The names given to [`Pool::only`](crate::Pool::only).
        only: Vec<String>,
    },
    /// The program gives the things of the pool, so it cannot read or change a stored set.
    #[error(
        "the things of {path} are given by the program and not stored; to store them, leave `things` out"
    )]
    Given {
        /// The pool.
        path: ZnodePath,
    },
    /// A node is not part of a pool, or has a layout that this version does not know.
    #[error("{path} is not part of a pool: it has {found}; use another path. Nothing was changed")]
    Foreign {
        /// The pool, or a node below it.
        path: ZnodePath,
        /// What is there.
        found: String,
    },
    /// A thing cannot be taken or waited for, for example because no server can be reached.
    #[error("cannot take a thing of {path}: {source}")]
    Take {
        /// The pool.
        path: ZnodePath,
        /// The cause.
        source: AcquireError,
    },
    /// A write was refused. Nothing of it was applied.
    #[error("cannot take a thing of {path}: {source}")]
    Refused {
        /// The pool.
        path: ZnodePath,
        /// What was refused.
        source: TransactionError,
    },
    /// The connection is lost at each attempt to send a write of this size, so the write was given up.
    #[error(
        "no thing of {path} was taken: the connection was lost {tries} times in a row at a write of {bytes} bytes; \
         name fewer things"
    )]
    TooLong {
        /// The pool.
        path: ZnodePath,
        /// The size of the write's data, in bytes.
        bytes: usize,
        /// The number of attempts.
        tries: u32,
    },
    /// A request failed.
    #[error("cannot use {path}: {source}")]
    Client {
        /// The pool.
        path: ZnodePath,
        /// The cause.
        source: Error,
    },
    /// The stored set cannot be read or changed.
    #[error("the things of the pool cannot be read or changed: {0}")]
    Things(#[from] ValueError),
    /// The task that takes a thing has panicked, which is a bug in this library.
    #[error("a task of {path} has panicked; please report this")]
    Panicked {
        /// The pool.
        path: ZnodePath,
    },
}

impl_failure!(PoolError {
    Self::Take { source, .. } => (source.is_retryable(), source.outcome()),
    Self::Client { source, .. } | Self::Refused { source: TransactionError::Request(source), .. } => {
        (source.is_retryable() || source.is_session_expired(), Outcome::NotApplied)
    },
    Self::Things(error) => (error.is_retryable(), error.outcome()),
    _ => (false, Outcome::NotApplied),
});

impl PoolError {
    /// The path, if it is valid for a pool.
    pub(super) fn check_path(client: &Client, path: &str) -> Result<ZnodePath, Self> {
        let path = ZnodePath::new(path)?;
        match client.is_own_base(&path) && !path.is_root() {
            true => Ok(path),
            false => Err(Self::Reserved(path)),
        }
    }

    pub(super) fn write(path: &ZnodePath, error: WriteError) -> Self {
        let path = path.clone();
        match error {
            WriteError::NotApplied(source) | WriteError::Unknown(source) => {
                Self::Refused { path, source }
            }
            WriteError::TooLong(TooLong { bytes, tries }) => Self::TooLong { path, bytes, tries },
        }
    }
}

/// Explains why no thing can be taken.
fn unwanted(things: Option<&[String]>, only: &[String]) -> String {
    match (things, only) {
        (Some([]), _) => "the program gives no things".to_owned(),
        (_, []) => "`only` names no things".to_owned(),
        (things, only) => {
            let things = things.unwrap_or_default().join(", ");
            format!("the things are {things}, and only {} may be taken", only.join(", "))
        }
    }
}
