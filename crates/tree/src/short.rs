//! Requests that are known in advance to take little time.

use bytes::Bytes;
use lockkeeper_wire::{Decoder, OpCode, PathRequest, ReadOp, Record as _, Request, RequestHeader};

use crate::output::ConnectionId;
use crate::quota;
use crate::server::Server;
use crate::share::SMALL_SHARE_BYTES;

/// The maximum number of operations, children or ephemeral nodes of a short request.
const MAX_SHORT_ITEMS: usize = 64;

impl Server {
    /// Whether a frame from this connection takes at most some tens of microseconds, whatever the size of the
    /// tree: it touches few nodes, and neither the frame nor its reply is longer than [`SMALL_SHARE_BYTES`].
    /// Changes nothing.
    ///
    /// This allows serving many clients in one round, however many others have sent long requests.
    pub fn is_short(&self, connection: ConnectionId, frame: &Bytes) -> bool {
        if frame.len() > SMALL_SHARE_BYTES {
            return false;
        }
        let mut input = Decoder::new(frame.clone());
        let Ok(header) = RequestHeader::decode(&mut input) else { return true };
        let op = OpCode::from_code(header.op);
        // Most requests are short, so they are not decoded twice.
        if op.is_none_or(|op| !may_take_long(op)) {
            return true;
        }

        let Ok(request) = Request::decode(header.op, &mut input) else { return true };
        match &request {
            Request::GetData(r) => self.data_len(&r.path) <= SMALL_SHARE_BYTES,
            Request::GetChildren(r) | Request::GetChildren2(r) => {
                self.children_of(&r.path) <= MAX_SHORT_ITEMS
            }
            Request::MultiRead(ops) => ops.len() <= MAX_SHORT_ITEMS && self.is_small(ops),
            Request::Multi(ops) => ops.len() <= MAX_SHORT_ITEMS && !quota::is_named_in(frame),
            Request::SetWatches(r) | Request::SetWatches2(r) => {
                r.lists().map(Vec::len).iter().sum::<usize>() <= MAX_SHORT_ITEMS
            }
            Request::CloseSession => {
                let session = self.session_of(connection);
                session.is_none_or(|session| self.tree.ephemerals_of(session) <= MAX_SHORT_ITEMS)
            }
            Request::GetEphemerals(_) | Request::GetAllChildrenNumber(_) => false,
            _ => !quota::is_named_in(frame),
        }
    }

    /// Whether the results of these reads are few and short.
    fn is_small(&self, ops: &[ReadOp]) -> bool {
        let mut left = (SMALL_SHARE_BYTES, MAX_SHORT_ITEMS);
        ops.iter().all(|op| match op {
            ReadOp::GetData(PathRequest { path }) => take(&mut left.0, self.data_len(path)),
            ReadOp::GetChildren(PathRequest { path }) => take(&mut left.1, self.children_of(path)),
        })
    }

    fn data_len(&self, path: &str) -> usize {
        self.tree.get(path).map_or(0, |node| node.data.len())
    }

    fn children_of(&self, path: &str) -> usize {
        self.tree.get(path).map_or(0, |node| node.children.len())
    }
}

/// Whether requests of this kind can be long. A change is long if it sets a quota, because a part of the tree
/// is then counted.
fn may_take_long(op: OpCode) -> bool {
    use OpCode::{
        GetAllChildrenNumber, GetChildren, GetChildren2, GetData, GetEphemerals, MultiRead,
        SetWatches, SetWatches2,
    };
    let reads = [
        GetAllChildrenNumber,
        GetChildren,
        GetChildren2,
        GetData,
        GetEphemerals,
        MultiRead,
        SetWatches,
        SetWatches2,
    ];
    op.is_write() || reads.contains(&op)
}

/// Takes `some` from what is left. Returns `false` if that is not enough.
fn take(left: &mut usize, some: usize) -> bool {
    let rest = left.checked_sub(some);
    *left = rest.unwrap_or(0);
    rest.is_some()
}
