//! Why a thing of a pool cannot be had.

use lockkeeper_client::retry::TooLong;
use lockkeeper_client::{
    Client, Error, Outcome, PathError, TransactionError, ZnodePath, impl_failure,
};
use lockkeeper_locks::{AcquireError, BuildError};

use crate::exact::WriteError;
use crate::values::ValueError;

/// Why a thing of a pool cannot be had, or a pool cannot be used. Nothing of the attempt is left behind, or it is about to
/// be deleted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The path is invalid.
    #[error("{0}; a pool is named like /pools/gpu")]
    Path(#[from] PathError),
    /// It is `/`, or `/zookeeper` or below it, where the server keeps what is its own.
    #[error("{0} cannot be a pool; name a path of its own for it, like /pools/gpu")]
    Reserved(ZnodePath),
    /// The name of a thing, or of a holder, is longer than servers take.
    #[error("{0}")]
    Name(#[from] BuildError),
    /// The limit of a holder is 0.
    #[error(
        "{holder:?} can have 0 things of a pool at most, and would wait for ever; use at least 1"
    )]
    NoPlaces {
        /// The holder.
        holder: String,
    },
    /// None of the things of the pool is wanted.
    #[error(
        "nothing of {path} is wanted: {}",
        unwanted(things.as_deref(), only)
    )]
    NothingWanted {
        /// The pool.
        path: ZnodePath,
        /// The things that this program gives; `None` if they are stored.
        things: Option<Vec<String>>,
        /// What [`Pool::only`](crate::Pool::only) names.
        only: Vec<String>,
    },
    /// The program gives the things of the pool, so it cannot read or change a stored set.
    #[error(
        "the things of {path} are given by the program, and not stored; leave `things` out to store them"
    )]
    Given {
        /// The pool.
        path: ZnodePath,
    },
    /// A node is not part of a pool, or has a layout that this version does not know.
    #[error(
        "{path} cannot be used as part of a pool: it has {found}. Use another path; nothing was changed"
    )]
    Foreign {
        /// The pool, or a node below it.
        path: ZnodePath,
        /// What is there.
        found: String,
    },
    /// The thing cannot be had or waited for: no server can be reached, for example.
    #[error("cannot take anything of {path}: {source}")]
    Take {
        /// The pool.
        path: ZnodePath,
        /// Why not.
        source: AcquireError,
    },
    /// A write was refused. Nothing of it was applied.
    #[error("cannot take anything of {path}: {source}")]
    Refused {
        /// The pool.
        path: ZnodePath,
        /// What was refused.
        source: TransactionError,
    },
    /// Servers seem to close the connection whenever a write comes that is as long. It was given up.
    #[error(
        "nothing of {path} was taken: the connection was lost {tries} times in a row at a write of {bytes} bytes; \
         name fewer things"
    )]
    TooLong {
        /// The pool.
        path: ZnodePath,
        /// How long the data of the write was, in bytes.
        bytes: usize,
        /// How often it was tried.
        tries: u32,
    },
    /// A request failed.
    #[error("cannot use {path}: {source}")]
    Client {
        /// The pool.
        path: ZnodePath,
        /// What failed.
        source: Error,
    },
    /// The stored set cannot be read or changed.
    #[error("the things of the pool cannot be read or changed: {0}")]
    Things(#[from] ValueError),
    /// The task that takes has panicked, which is a bug of this library.
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
    /// The path, if a pool can be there.
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

/// Why nothing is wanted, in a message.
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
