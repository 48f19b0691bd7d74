//! Several writes, all or none.

use bytes::Bytes;
use lockkeeper_wire::{
    Acl, CheckRequest, CreateMode, CreateTtlRequest, DeleteRequest, Op, OpCode, OpResult, Request,
    Response, SetDataRequest, ZnodePath, Zxid,
};

use crate::client::create_request;
use crate::watcher::strip_chroot;
use crate::{Client, TransactionError};

/// Any version, in operations that name one.
const ANY_VERSION: i32 = -1;

/// Writes that are applied together or not at all (ZooKeeper's `multi`). Later ones see the effect
/// of earlier ones.
#[must_use = "nothing happens before `commit`"]
#[derive(Debug)]
pub struct Transaction {
    client: Client,
    ops: Vec<Op>,
}

impl Transaction {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, ops: Vec::new() }
    }

    /// Fails unless the node exists and, if `version` is given, has this data version.
    pub fn check(self, path: &ZnodePath, version: Option<i32>) -> Self {
        let (path, version) = self.versioned(path, version);
        self.with(Op::Check(CheckRequest { path, version }))
    }

    /// Creates a node that everyone may do everything with.
    pub fn create(self, path: &ZnodePath, data: impl Into<Bytes>, mode: CreateMode) -> Self {
        self.create_with_acl(path, data, mode, Acl::open())
    }

    /// Creates a node with an access control list.
    pub fn create_with_acl(
        self,
        path: &ZnodePath,
        data: impl Into<Bytes>,
        mode: CreateMode,
        acl: Vec<Acl>,
    ) -> Self {
        let request = create_request(self.client.full(path), data.into(), mode, acl);
        self.with(match mode {
            CreateMode::Container => Op::CreateContainer(request),
            _ => Op::Create2(request),
        })
    }

    /// Creates a node with a time to live; see [`Client::create_ttl`].
    pub fn create_ttl(
        self,
        path: &ZnodePath,
        data: impl Into<Bytes>,
        mode: CreateMode,
        ttl: std::time::Duration,
    ) -> Self {
        let request = create_request(self.client.full(path), data.into(), mode, Acl::open());
        self.with(Op::CreateTtl(CreateTtlRequest {
            path: request.path,
            data: request.data,
            acl: request.acl,
            flags: request.flags,
            ttl_ms: i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX),
        }))
    }

    /// Deletes a node. `version`: only if its data version is this one.
    pub fn delete(self, path: &ZnodePath, version: Option<i32>) -> Self {
        let (path, version) = self.versioned(path, version);
        self.with(Op::Delete(DeleteRequest { path, version }))
    }

    /// Changes a node's data. `version`: only if its data version is this one.
    pub fn set_data(self, path: &ZnodePath, data: impl Into<Bytes>, version: Option<i32>) -> Self {
        let (path, version) = self.versioned(path, version);
        self.with(Op::SetData(SetDataRequest { path, data: data.into(), version }))
    }

    /// Sends it. Costs one round trip.
    ///
    /// # Errors
    /// [`TransactionError::Failed`] if an operation failed, and so none was applied;
    /// [`TransactionError::Request`] if there is no answer.
    ///
    /// # Cancel safety
    /// It is sent when this is first polled; dropping it later does not take it back.
    pub async fn commit(self) -> Result<Vec<OpResult>, TransactionError> {
        self.commit_numbered().await.map(|(results, _)| results)
    }

    /// The same, with the transaction's number: the `czxid` of what it created, which Apache
    /// ZooKeeper's answer does not have (a create in it is answered without the stat).
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    ///
    /// # Cancel safety
    /// As [`Transaction::commit`].
    pub async fn commit_numbered(self) -> Result<(Vec<OpResult>, Zxid), TransactionError> {
        let about: Vec<_> = self.ops.iter().map(|op| (op.code(), path_of(op).to_owned())).collect();
        let chroot = self.client.chroot().clone();
        let request = Request::Multi(self.ops);
        let reply = self.client.send(&ZnodePath::root(), request, |response, chroot| {
            let Response::Multi(results) = response else { return None };
            Some(results.into_iter().map(|result| localize(result, chroot)).collect::<Vec<_>>())
        });
        let (results, zxid) = reply.with_zxid().await?;
        match failure(&results, &about, &chroot) {
            Some(error) => Err(error),
            None => Ok((results, zxid)),
        }
    }

    fn with(mut self, op: Op) -> Self {
        self.ops.push(op);
        self
    }

    fn versioned(&self, path: &ZnodePath, version: Option<i32>) -> (String, i32) {
        (self.client.full(path).to_string(), version.unwrap_or(ANY_VERSION))
    }
}

/// The operation that made the transaction fail: the first that has an error of its own.
fn failure(
    results: &[OpResult],
    about: &[(OpCode, String)],
    chroot: &ZnodePath,
) -> Option<TransactionError> {
    let mut failed = results.iter().enumerate().filter_map(|(index, result)| match result {
        OpResult::Error(Some(code)) => Some((index, *code)),
        _ => None,
    });
    let (index, code) = failed.next()?;
    let (op, path) = about.get(index)?;
    Some(TransactionError::Failed { index, op: *op, path: strip_chroot(path, chroot), code })
}

fn path_of(op: &Op) -> &str {
    match op {
        Op::Create(r) | Op::Create2(r) | Op::CreateContainer(r) => &r.path,
        Op::CreateTtl(r) => &r.path,
        Op::Delete(r) => &r.path,
        Op::SetData(r) => &r.path,
        Op::Check(r) => &r.path,
    }
}

fn localize(result: OpResult, chroot: &ZnodePath) -> OpResult {
    match result {
        OpResult::Create { path } => OpResult::Create { path: strip_chroot(&path, chroot) },
        OpResult::Create2 { path, stat } => {
            OpResult::Create2 { path: strip_chroot(&path, chroot), stat }
        }
        other => other,
    }
}
