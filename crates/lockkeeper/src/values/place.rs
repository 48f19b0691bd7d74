//! Where a value is, and reading it.

use bytes::Bytes;
use lockkeeper_client::{Client, CreateMode, Error, ErrorCode, Stat, TransactionError, ZnodePath};

use crate::contender::retry::retry_backoff;
use crate::exact::{DEFAULT_MARKERS, WriteError};
use crate::values::error::{ValueError, ValuePathError};

/// A node that holds a value.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) client: Client,
    pub(super) path: ZnodePath,
}

impl Place {
    pub(super) fn new(client: &Client, path: &str) -> Result<Self, ValuePathError> {
        Ok(Self { client: client.clone(), path: checked(path)? })
    }

    /// The data and stat; `None` without a node. Goes on over lost connections and ended sessions.
    pub(super) async fn read(&self) -> Result<Option<(Bytes, Stat)>, ValueError> {
        loop {
            match present(self.client.data(&self.path).await) {
                Ok(found) => return Ok(found),
                Err(error) => self.again(error).await?,
            }
        }
    }

    /// Returns when a read may be tried again.
    pub(super) async fn again(&self, error: Error) -> Result<(), ValueError> {
        if error.is_session_expired() {
            return Ok(());
        }
        retry_backoff(error).await.map_err(|error| ValueError::read(&self.path, error))
    }
}

impl Place {
    /// Returns when a write that was not applied, or may be applied twice, may be tried again.
    pub(super) async fn again_to_write(&self, error: Error) -> Result<(), ValueError> {
        if error.is_session_expired() {
            return Ok(());
        }
        retry_backoff(error).await.map_err(|error| {
            let error = TransactionError::Request(error);
            ValueError::write(&self.path, WriteError::NotApplied(error))
        })
    }

    /// How often servers have lost their data: were wiped, or set back to older data.
    pub(super) fn rewinds(&self) -> u64 {
        self.client.status().borrow().rewinds
    }

    /// The path seen from the servers' root.
    pub(super) fn full_path(&self) -> String {
        self.path.below(self.client.chroot()).to_string()
    }

    /// Creates what is missing above the node, as containers, which go with the last node in them.
    pub(super) async fn make_parents(&self) -> Result<(), ValueError> {
        let Some(parent) = self.path.parent() else { return Ok(()) };
        while let Err(error) = self.client.ensure(&parent, CreateMode::Container).await {
            self.again_to_write(error).await?;
        }
        Ok(())
    }
}

/// Turns "no such node" from an error into an answer.
pub(super) fn present<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Err(error) if error.code() == Some(ErrorCode::NoNode) => Ok(None),
        result => result.map(Some),
    }
}

/// The path, if a value can be there.
pub(super) fn checked(path: &str) -> Result<ZnodePath, ValuePathError> {
    let path = ZnodePath::new(path)?;
    if path.is_root() {
        return Err(ValuePathError::Root);
    }
    if path.is_reserved() {
        return Err(ValuePathError::Reserved(path));
    }
    Ok(path)
}

/// Where outcome markers are: as the builder was told, or in the usual place.
pub(super) fn markers(told: Option<&str>) -> Result<ZnodePath, ValuePathError> {
    checked(told.unwrap_or(DEFAULT_MARKERS))
}
