//! Transaction: several writes, of which all are applied or none.

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

/// Writes that are applied together or not at all (ZooKeeper's `multi`). Later ones see the effect
/// of earlier ones.
#[must_use = "nothing happens before `commit`"]
#[derive(Clone, Debug)]
pub struct Transaction {
    client: Client,
    ops: Vec<Op>,
    /// The session that it belongs to, if it is not any.
    session: Option<SessionId>,
    /// What it is bound to.
    bound: Vec<binding::Key>,
    /// The checks of held nodes among its operations.
    held: Vec<(usize, HoldId)>,
}

impl Client {
    /// Starts a transaction: several writes, all or none.
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

    /// Fails unless the node of this hold, which is of the same client, exists. If it is missing, the hold is
    /// over, as when a heartbeat finds that.
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

    /// Deletes a node. `version`: only if its data version is this one.
    pub fn delete(self, path: &ZnodePath, version: Option<i32>) -> Self {
        let (path, version) = self.versioned(path, version);
        self.with(Op::Delete(DeleteRequest { path, version }))
    }

    /// Changes a node's data. `version`: only if its data version is this one.
    pub fn set_data(self, path: &ZnodePath, data: impl Into<Bytes>, version: Option<i32>) -> Self {
        let (path, version) = self.versioned(path, version);
        self.with(Op::SetData(SetDataRequest { path, data: data.into().into(), version }))
    }

    /// Lets it be applied in this session of the client only. In a later one it is not sent, and fails
    /// as a request whose session has expired.
    pub fn in_session(self, session: SessionId) -> Self {
        Self { session: Some(session), ..self }
    }

    /// Makes it sent only while this hold is known to be good and not handed on, and else refused, also
    /// if it had to wait for a connection; see [`Error::is_not_held`](crate::Error::is_not_held).
    pub fn while_held(mut self, hold: &Hold) -> Self {
        self.bound.push(hold.key());
        self
    }

    /// How long the data is that it brings, in bytes: that of all its operations together.
    pub fn data_len(&self) -> usize {
        self.ops.iter().map(data_of).sum()
    }

    /// How many operations it has.
    #[doc(hidden)]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether it has no operation.
    #[doc(hidden)]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Adds the operations of another transaction of this client behind its own, with what that is bound to.
    #[doc(hidden)]
    pub fn and(mut self, other: &Self) -> Self {
        let first = self.ops.len();
        self.ops.extend_from_slice(&other.ops);
        self.held.extend(other.held.iter().map(|(check, hold)| (first + check, *hold)));
        self.bound.extend_from_slice(&other.bound);
        self
    }

    /// Sends it. Costs one round trip.
    ///
    /// # Errors
    /// [`TransactionError::Failed`] if an operation failed, and so none was applied;
    /// [`TransactionError::Request`], which names the node with the most data, if there is no answer.
    ///
    /// # Session loss
    /// Fails with [`TransactionError::Request`] if there is no answer yet, as a [`Reply`](crate::Reply) does.
    ///
    /// # Cancel safety
    /// It is sent when this is first polled; dropping it later does not take it back.
    pub async fn commit(self) -> Result<Vec<OpResult>, TransactionError> {
        self.commit_numbered().await.map(|(results, _)| results)
    }

    /// [`Transaction::commit`], with the transaction's number: the `czxid` of what it created, which Apache
    /// ZooKeeper's answer does not have (a create in it is answered without the stat). Costs one round trip.
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
                // What the whole is about, and what makes it too large if it is.
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

/// Why the transaction failed, if it did: the first operation that has an error of its own.
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
    // Without a culprit, or with another number of results: whatever happened, it is no success.
    let misfits = || results.len() != about.len() || failed();
    culprit
        .or_else(|| misfits().then(|| Error::new(OpCode::Multi, "/", misfit(OpCode::Multi)).into()))
}

/// How much data it brings, in bytes.
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

    /// A server that answered with an error too many had the transaction taken for a success.
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
