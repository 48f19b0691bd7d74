//! Transaction: several writes that are applied together or not at all.

use bytes::Bytes;
use lockkeeper_session::HoldId;
use lockkeeper_wire::{
    Acl, CheckRequest, CreateMode, DeleteRequest, ErrorCode, Op, OpCode, OpResult, Request,
    Response, SessionId, SetDataRequest, ZnodePath, Zxid,
};

use crate::binding;
use crate::client::{Client, create_request, or_any, with_ttl};
use crate::error::{Error, TransactionError};
use crate::hold::Hold;
use crate::reply::misfit;
use crate::watcher::strip_chroot;

/// Writes that are applied together or not at all (ZooKeeper's `multi`). Later operations see the effect of
/// earlier ones.
#[must_use = "a transaction does nothing until `commit` is called"]
#[derive(Clone, Debug)]
pub struct Transaction {
    client: Client,
    ops: Vec<Op>,
    /// The session in which it must be applied, if it is bound to one.
    session: Option<SessionId>,
    /// The holds that it is bound to.
    bound: Vec<binding::Key>,
    /// The checks of held nodes among its operations.
    held: Vec<(usize, HoldId)>,
}

impl Client {
    /// Starts a transaction: several writes that are applied together or not at all.
    pub fn transaction(&self) -> Transaction {
        Transaction::new(self.clone())
    }
}

impl Transaction {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, ops: Vec::new(), session: None, bound: Vec::new(), held: Vec::new() }
    }

    /// Fails unless the node exists and, if `version` is given, has this data version.
    pub fn check(self, path: &ZnodePath, version: Option<i32>) -> Self {
        let (path, version) = self.versioned(path, version);
        self.with(Op::Check(CheckRequest { path, version }))
    }

    /// Fails unless the node of this hold, of the same client, exists. If it is missing, the hold ends, as
    /// after a heartbeat that finds the node missing.
    pub fn check_held(mut self, hold: &Hold, path: &ZnodePath) -> Self {
        self.held.push((self.ops.len(), hold.id()));
        self.check(path, None)
    }

    /// Creates a node, with the client's [`DefaultAcl`](crate::DefaultAcl).
    pub fn create(self, path: &ZnodePath, data: impl Into<Bytes>, mode: CreateMode) -> Self {
        let acl = self.client.default_acl();
        self.create_with_acl(path, data, mode, acl)
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
        let request =
            create_request(self.client.full(path), data.into(), mode, self.client.default_acl());
        self.with(Op::CreateTtl(with_ttl(request, ttl)))
    }

    /// Deletes a node. With `version`, only if the data version matches.
    pub fn delete(self, path: &ZnodePath, version: Option<i32>) -> Self {
        let (path, version) = self.versioned(path, version);
        self.with(Op::Delete(DeleteRequest { path, version }))
    }

    /// Changes a node's data. With `version`, only if the data version matches.
    pub fn set_data(self, path: &ZnodePath, data: impl Into<Bytes>, version: Option<i32>) -> Self {
        let (path, version) = self.versioned(path, version);
        self.with(Op::SetData(SetDataRequest { path, data: data.into().into(), version }))
    }

    /// Binds the transaction to this session. In a later session it is not sent, and fails like a request
    /// whose session has expired.
    pub fn in_session(self, session: SessionId) -> Self {
        Self { session: Some(session), ..self }
    }

    /// Sends the transaction only while this hold is known to be valid and has the same holder. Otherwise it
    /// fails, also after it has waited for a connection; see
    /// [`Error::is_not_held`](crate::Error::is_not_held).
    pub fn while_held(mut self, hold: &Hold) -> Self {
        self.bound.push(hold.key());
        self
    }

    /// The total length of the data of all operations, in bytes.
    pub fn data_len(&self) -> usize {
        self.ops.iter().map(data_of).sum()
    }

    /// The number of operations.
    #[doc(hidden)]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether it has no operations.
    #[doc(hidden)]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Appends the operations of another transaction of this client, with its bindings.
    #[doc(hidden)]
    pub fn and(mut self, other: &Self) -> Self {
        let first = self.ops.len();
        self.ops.extend_from_slice(&other.ops);
        self.held.extend(other.held.iter().map(|(check, hold)| (first + check, *hold)));
        self.bound.extend_from_slice(&other.bound);
        self
    }

    /// Sends the transaction. Costs one round trip.
    ///
    /// # Errors
    /// [`TransactionError::Failed`] if an operation failed, so that no operation was applied;
    /// [`TransactionError::Request`], which names the node with the most data, if there is no reply.
    ///
    /// # Session loss
    /// Fails with [`TransactionError::Request`] if there is no reply yet, as a [`Reply`](crate::Reply) does.
    ///
    /// # Cancel safety
    /// The transaction is sent when the future is first polled; dropping the future later does not cancel it.
    pub async fn commit(self) -> Result<Vec<OpResult>, TransactionError> {
        self.commit_numbered().await.map(|(results, _)| results)
    }

    /// Like [`Transaction::commit`], with the transaction's number: the `czxid` of created nodes. Apache
    /// ZooKeeper's reply does not contain it, because it omits the stat of a create. Costs one round trip.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    ///
    /// # Session loss
    /// As [`Transaction::commit`].
    ///
    /// # Cancel safety
    /// As [`Transaction::commit`].
    pub async fn commit_numbered(self) -> Result<(Vec<OpResult>, Zxid), TransactionError> {
        let about: Vec<_> = self.ops.iter().map(|op| (op.code(), op.path().to_owned())).collect();
        let lengths = self.ops.iter().map(data_of).enumerate();
        let longest = lengths.max_by_key(|(_, len)| *len).map_or(0, |(index, _)| index);
        let chroot = self.client.strip();
        let request = Request::Multi(self.ops);
        let (client, session) = (&self.client, self.session);
        let send = || {
            client.send_in(session, request, |response, chroot| {
                let Response::Multi(results) = response else { return None };
                Some(results.into_iter().map(|result| localize(result, chroot)).collect::<Vec<_>>())
            })
        };
        let reply = binding::within(self.bound.into_iter(), send);

        let (results, zxid) =
            reply.with_zxid().await.map_err(|error| match about.get(longest) {
                // Names the node with the most data, which is what makes a transaction too large.
                Some((_, path)) => error.at(strip_chroot(path.clone(), chroot.as_ref())),
                None => error,
            })?;
        let Some(error) = failure(&results, &about, chroot.as_ref()) else {
            return Ok((results, zxid));
        };

        if let TransactionError::Failed { index, code: ErrorCode::NoNode, .. } = error {
            let missing = self.held.iter().filter(|(check, _)| *check == index);
            missing.for_each(|(_, hold)| self.client.found_missing(*hold));
        }
        Err(error)
    }

    fn with(mut self, op: Op) -> Self {
        self.ops.push(op);
        self
    }

    fn versioned(&self, path: &ZnodePath, version: Option<i32>) -> (String, i32) {
        (self.client.full(path), or_any(version))
    }
}

/// Why the transaction failed, if it did: the first operation with an error of its own.
fn failure(
    results: &[OpResult],
    about: &[(OpCode, String)],
    chroot: Option<&ZnodePath>,
) -> Option<TransactionError> {
    let mut each = results.iter().zip(about).enumerate();
    let culprit = each.find_map(|(index, (result, (op, path)))| match result {
        OpResult::Error(Some(code)) => {
            let path = strip_chroot(path.clone(), chroot);
            Some(TransactionError::Failed { index, op: *op, path, code: *code })
        }
        _ => None,
    });
    let failed = || results.iter().any(|result| matches!(result, OpResult::Error(_)));
    // A failure without a failing operation, or with another number of results, is not a success either.
    let misfits = || results.len() != about.len() || failed();
    culprit
        .or_else(|| misfits().then(|| Error::new(OpCode::Multi, "/", misfit(OpCode::Multi)).into()))
}

/// The length of its data, in bytes.
fn data_of(op: &Op) -> usize {
    match op {
        Op::Create(r) | Op::Create2(r) | Op::CreateContainer(r) => r.data.len(),
        Op::CreateTtl(r) => r.data.len(),
        Op::SetData(r) => r.data.len(),
        Op::Delete(_) | Op::Check(_) => 0,
    }
}

fn localize(result: OpResult, chroot: Option<&ZnodePath>) -> OpResult {
    match result {
        OpResult::Create { path } => OpResult::Create { path: strip_chroot(path, chroot) },
        OpResult::Create2 { path, stat } => {
            OpResult::Create2 { path: strip_chroot(path, chroot), stat }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reply with one error too many was taken for a success.
    #[test]
    fn whatever_is_no_success_is_none() {
        let about =
            vec![(OpCode::Check, "/app/a".to_owned()), (OpCode::Delete, "/app/b".to_owned())];
        let chroot = ZnodePath::new("/app").unwrap();
        let error = |code| OpResult::Error(Some(code));
        let of = |results: &[OpResult]| failure(results, &about, Some(&chroot));
        assert_eq!(of(&[OpResult::Check, OpResult::Delete]), None);
        let failed = of(&[OpResult::Error(None), error(ErrorCode::NoNode)]);
        let (op, path, code) = (OpCode::Delete, "/b".to_owned(), ErrorCode::NoNode);
        assert_eq!(failed, Some(TransactionError::Failed { index: 1, op, path, code }));
        for misfits in [
            &[OpResult::Check, OpResult::Delete, error(ErrorCode::NoNode)][..],
            &[OpResult::Error(None), OpResult::Error(None)],
            &[OpResult::Check],
            &[],
        ] {
            let request = of(misfits);
            assert!(
                matches!(request, Some(TransactionError::Request(_))),
                "{misfits:?}: {request:?}"
            );
        }
    }
}
