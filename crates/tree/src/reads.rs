//! Requests that change nothing: pure functions of the tree and of who asks.

use lockkeeper_wire::{
    ClientInfo, ErrorCode, Permissions, ReadOp, ReadResult, Response, SessionId,
};

use crate::acl::{self, Identity};
use crate::lengths::{ITEM_HEADER, LEN, REPLY_HEADER, STAT};
use crate::nodes::{Node, Tree};
use crate::notices::{Notice, Notices};
use crate::output::ConnectionId;

type Result<T> = std::result::Result<T, ErrorCode>;

/// How many nodes a request that answers with a number may count: some two milliseconds of work.
const MOST_COUNTED: usize = 25_000;
/// How many ephemeral nodes are looked at for those with a prefix.
const MOST_EPHEMERALS: usize = 1_000_000;

/// Whose view of which tree, and how long the reply may be.
///
/// What a reply takes is computed before it is made: it costs nothing to refuse one that is too
/// long, however long it is.
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

    /// Refuses a reply with a body of so many bytes, if that is too long.
    fn check_len(self, body: usize) -> Result<()> {
        let (connection, max) = (self.connection, self.max_frame);
        let len = REPLY_HEADER + body;
        if len > max {
            let notice = Notice::ReplyTooLong { connection, len, max };
            return self.notices.refuse(notice, ErrorCode::MarshallingError);
        }
        Ok(())
    }

    /// Refuses what takes too long to find out.
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

    /// Whoever may not change the list sees it without the digests of passwords.
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
        let count = self.tree.descendants(path, MOST_COUNTED);
        let count = count.ok_or_else(|| self.too_much(MOST_COUNTED))?;
        Ok(Response::Count(count as i32))
    }

    /// A prefix of the text, not of the path: `/a` covers `/ab` too, as in ZooKeeper.
    pub(crate) fn ephemerals(self, session: SessionId, prefix: &str) -> Result<Response> {
        if self.tree.ephemerals_of(session) > MOST_EPHEMERALS {
            return Err(self.too_much(MOST_EPHEMERALS));
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

    /// Each read succeeds or fails by itself, unless all together are too long: that shows before the
    /// one that is too much is carried out.
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

/// What a result of a `multiRead` takes, without its header.
fn result_len(op: &ReadOp, node: &Result<&Node>) -> usize {
    match (op, node) {
        (_, Err(_)) => LEN,
        (ReadOp::GetData(_), Ok(node)) => LEN + node.data.len() + STAT,
        (ReadOp::GetChildren(_), Ok(node)) => node.children.list_len(),
    }
}

/// The names of the children of the node at `path`.
fn names(path: &str, node: &Node) -> Vec<String> {
    // Behind the slash. To look for it from the end of each path would cost as much as the rest.
    let begin = if path == "/" { 1 } else { path.len() + 1 };
    node.children.iter().map(|child| child[begin..].to_owned()).collect()
}
