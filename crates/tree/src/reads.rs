//! Requests that do not change anything: pure functions of the tree and the client.

use lockkeeper_wire::{
    ClientInfo, ErrorCode, Permissions, ReadOp, ReadResult, Response, SessionId,
};

use crate::acl::{self, Identity};
use crate::lengths::{ITEM_HEADER, LEN, REPLY_HEADER, STAT};
use crate::nodes::{Node, Tree};
use crate::notices::{Notice, Notices};
use crate::output::ConnectionId;

type Result<T> = std::result::Result<T, ErrorCode>;

/// The maximum number of nodes that a counting request may visit: about two milliseconds of work.
const MAX_COUNTED_NODES: usize = 25_000;
/// The maximum number of ephemeral nodes that are searched for a prefix.
const MAX_SCANNED_EPHEMERALS: usize = 1_000_000;

/// A client's view of the tree, and the maximum length of the reply.
///
/// The length of a reply is computed before the reply is built. So refusing a reply that is too long costs
/// nothing, however long it is.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) identities: &'a [Identity],
    pub(crate) connection: ConnectionId,
    pub(crate) max_frame: usize,
    pub(crate) notices: &'a Notices,
}

impl<'a> View<'a> {
    fn node(self, path: &str, needed: Permissions) -> Result<&'a Node> {
        let node = self.tree.get(path).ok_or(ErrorCode::NoNode)?;
        acl::check(&node.acl, needed, self.identities)?;
        Ok(node)
    }

    /// Refuses a reply whose body of this many bytes is too long.
    fn check_len(self, body: usize) -> Result<()> {
        let (connection, max) = (self.connection, self.max_frame);
        let len = REPLY_HEADER + body;
        if len > max {
            let notice = Notice::ReplyTooLong { connection, len, max };
            return self.notices.refuse(notice, ErrorCode::MarshallingError);
        }
        Ok(())
    }

    /// Refuses a request that takes too long.
    fn too_much(self, max: usize) -> ErrorCode {
        self.notices.add(Notice::TooMuchToCount { connection: self.connection, max });
        ErrorCode::ThrottledOp
    }

    pub(crate) fn exists(self, path: &str) -> Result<Response> {
        if path.contains('\0') {
            return Err(ErrorCode::BadArguments);
        }
        Ok(Response::Stat(self.node(path, Permissions::READ)?.stat()))
    }

    pub(crate) fn data(self, path: &str) -> Result<Response> {
        let node = self.node(path, Permissions::READ)?;
        self.check_len(LEN + node.data.len() + STAT)?;
        Ok(Response::Data { data: node.data.clone(), stat: node.stat() })
    }

    pub(crate) fn children(self, path: &str) -> Result<Response> {
        let node = self.node(path, Permissions::READ)?;
        self.check_len(node.children.list_len())?;
        Ok(Response::Names(names(path, node)))
    }

    pub(crate) fn children_and_stat(self, path: &str) -> Result<Response> {
        let node = self.node(path, Permissions::READ)?;
        self.check_len(node.children.list_len() + STAT)?;
        Ok(Response::Children { names: names(path, node), stat: node.stat() })
    }

    /// Clients that may not change the list see it without the digests of passwords.
    pub(crate) fn acl(self, path: &str) -> Result<Response> {
        let node = self.node(path, Permissions::READ | Permissions::ADMIN)?;
        let acl = match acl::check(&node.acl, Permissions::ADMIN, self.identities) {
            Ok(()) => node.acl.to_vec(),
            Err(_) => acl::mask_digests(&node.acl),
        };
        Ok(Response::Acl { acl, stat: node.stat() })
    }

    pub(crate) fn descendants(self, path: &str) -> Result<Response> {
        self.node(path, Permissions::READ)?;
        let count = self.tree.descendants(path, MAX_COUNTED_NODES);
        let count = count.ok_or_else(|| self.too_much(MAX_COUNTED_NODES))?;
        Ok(Response::Count(count as i32))
    }

    /// A prefix of the text, not of the path: `/a` also matches `/ab`, as in ZooKeeper.
    pub(crate) fn ephemerals(self, session: SessionId, prefix: &str) -> Result<Response> {
        if self.tree.ephemerals_of(session) > MAX_SCANNED_EPHEMERALS {
            return Err(self.too_much(MAX_SCANNED_EPHEMERALS));
        }
        let all = matches!(prefix.trim(), "" | "/");
        let paths = self.tree.ephemerals_unsorted(session);
        let (mut body, mut chosen) = (LEN, Vec::new());
        for path in paths.filter(|path| all || path.starts_with(prefix)) {
            body += LEN + path.len();
            self.check_len(body)?;
            chosen.push(path);
        }
        chosen.sort_unstable();
        Ok(Response::Names(chosen.into_iter().map(|path| path.to_string()).collect()))
    }

    pub(crate) fn identities(self) -> Response {
        let known = self.identities.iter().map(|identity| ClientInfo {
            scheme: identity.scheme.to_owned(),
            user: identity.user().to_owned(),
        });
        Response::Identities(known.collect())
    }

    /// Each read succeeds or fails by itself, unless the total is too long. That is detected before the
    /// excess read is executed.
    pub(crate) fn multi(self, ops: &[ReadOp]) -> Result<Response> {
        let (mut body, mut results) = (ITEM_HEADER, Vec::new());
        for op in ops {
            let (ReadOp::GetData(request) | ReadOp::GetChildren(request)) = op;
            let node = self.node(&request.path, Permissions::READ);
            body += ITEM_HEADER + result_len(op, &node);
            self.check_len(body)?;

            results.push(match (op, node) {
                (_, Err(code)) => ReadResult::Error(code),
                (ReadOp::GetData(_), Ok(node)) => {
                    ReadResult::Data { data: node.data.clone(), stat: node.stat() }
                }
                (ReadOp::GetChildren(_), Ok(node)) => {
                    ReadResult::Children(names(&request.path, node))
                }
            });
        }
        Ok(Response::MultiRead(results))
    }
}

/// The encoded size of a result of a `multiRead`, without its header.
fn result_len(op: &ReadOp, node: &Result<&Node>) -> usize {
    match (op, node) {
        (_, Err(_)) => LEN,
        (ReadOp::GetData(_), Ok(node)) => LEN + node.data.len() + STAT,
        (ReadOp::GetChildren(_), Ok(node)) => node.children.list_len(),
    }
}

/// The names of the children of the node at `path`.
fn names(path: &str, node: &Node) -> Vec<String> {
    // After the slash. Searching for it from the end of each path would cost as much as the rest.
    let begin = if path == "/" { 1 } else { path.len() + 1 };
    node.children.iter().map(|child| child[begin..].to_owned()).collect()
}
