//! Which requests are known beforehand to take little time.

use bytes::Bytes;
use lockkeeper_wire::{Decoder, OpCode, PathRequest, ReadOp, Record as _, Request, RequestHeader};

use crate::output::ConnectionId;
use crate::quota;
use crate::server::Server;
use crate::share::LITTLE;

/// How many operations, children or ephemeral nodes are a few.
const FEW: usize = 64;

impl Server {
    /// Whether a frame that has arrived from this connection takes no more than some tens of microseconds,
    /// whatever the tree is like: it touches a few nodes, and neither itself nor its reply is longer than
    /// [`LITTLE`]. Changes nothing.
    ///
    /// So many clients can be served in one round, however many others have sent what takes long.
    pub fn is_short(&self, connection: ConnectionId, frame: &Bytes) -> bool {
        if frame.len() > LITTLE {
            return false;
        }
        let mut input = Decoder::new(frame.clone());
        let Ok(header) = RequestHeader::decode(&mut input) else { return true };
        let op = OpCode::from_code(header.op);
        // Most requests are, so they are not read twice.
        if op.is_none_or(|op| !may_take_long(op)) {
            return true;
        }

        let Ok(request) = Request::decode(header.op, &mut input) else { return true };
        match &request {
            Request::GetData(r) => self.data_len(&r.path) <= LITTLE,
            Request::GetChildren(r) | Request::GetChildren2(r) => self.children_of(&r.path) <= FEW,
            Request::MultiRead(ops) => ops.len() <= FEW && self.is_little(ops),
            Request::Multi(ops) => ops.len() <= FEW && !quota::is_named_in(frame),
            Request::SetWatches(r) | Request::SetWatches2(r) => {
                r.lists().map(Vec::len).iter().sum::<usize>() <= FEW
            }
            Request::CloseSession => {
                let session = self.session_of(connection);
                session.is_none_or(|session| self.tree.ephemerals_of(session) <= FEW)
            }
            Request::GetEphemerals(_) | Request::GetAllChildrenNumber(_) => false,
            _ => !quota::is_named_in(frame),
        }
    }

    /// Whether the results of these reads are few and short.
    fn is_little(&self, ops: &[ReadOp]) -> bool {
        let mut left = (LITTLE, FEW);
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

/// Whether there are long requests of this kind. A change is one if it sets a quota: then a part of the tree
/// is weighed.
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

/// Takes `some` of what is left; `false` if it is not enough.
fn take(left: &mut usize, some: usize) -> bool {
    let rest = left.checked_sub(some);
    *left = rest.unwrap_or(0);
    rest.is_some()
}
