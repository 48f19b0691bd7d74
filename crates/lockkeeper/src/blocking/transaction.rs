//! Several writes, all or none.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_client::{Acl, CreateMode, OpResult, SessionId, TransactionError, ZnodePath, Zxid};

use crate::blocking::forward::options;
use crate::blocking::runtime::Runtime;

/// Writes that are applied together or not at all, as [`crate::Transaction`].
#[must_use = "nothing happens before `commit`"]
#[derive(Debug)]
pub struct Transaction {
    inner: lockkeeper_client::Transaction,
    runtime: Arc<Runtime>,
}

impl Transaction {
    pub(super) fn new(inner: lockkeeper_client::Transaction, runtime: &Arc<Runtime>) -> Self {
        Self { inner, runtime: Arc::clone(runtime) }
    }

    /// Sends it, and waits for the answer.
    ///
    /// # Errors
    /// As [`crate::Transaction::commit`].
    pub fn commit(self) -> Result<Vec<OpResult>, TransactionError> {
        self.runtime.wait(self.inner.commit())
    }

    /// The same, with the transaction's number.
    ///
    /// # Errors
    /// As [`crate::Transaction::commit_numbered`].
    pub fn commit_numbered(self) -> Result<(Vec<OpResult>, Zxid), TransactionError> {
        self.runtime.wait(self.inner.commit_numbered())
    }
}

options! { Transaction:
    check(path: &ZnodePath, version: Option<i32>);
    create(path: &ZnodePath, data: impl Into<Bytes>, mode: CreateMode);
    create_with_acl(path: &ZnodePath, data: impl Into<Bytes>, mode: CreateMode, acl: Vec<Acl>);
    create_ttl(path: &ZnodePath, data: impl Into<Bytes>, mode: CreateMode, ttl: Duration);
    delete(path: &ZnodePath, version: Option<i32>);
    set_data(path: &ZnodePath, data: impl Into<Bytes>, version: Option<i32>);
    in_session(session: SessionId);
}
