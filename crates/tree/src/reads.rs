//! Requests that change nothing: pure functions of the tree and of who asks.

use lockkeeper_wire::{
    ClientInfo, ErrorCode, Permissions, ReadOp, ReadResult, Response, SessionId,
};

use crate::acl::{self, Identity};
use crate::nodes::{Node, Tree};

type Result<T> = std::result::Result<T, ErrorCode>;

/// Whose view of which tree.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) identities: &'a [Identity],
}

impl<'a> View<'a> {
    fn node(self, path: &str, needed: Permissions) -> Result<&'a Node> {
        let node = self.tree.get(path).ok_or(ErrorCode::NoNode)?;
        acl::check(&node.acl, needed, self.identities)?;
        Ok(node)
    }

    pub(crate) fn exists(self, path: &str) -> Result<Response> {
        if path.contains('\0') {
            return Err(ErrorCode::BadArguments);
        }
        Ok(Response::Stat(self.node(path, Permissions::READ)?.stat()))
    }

    pub(crate) fn data(self, path: &str) -> Result<Response> {
        let node = self.node(path, Permissions::READ)?;
        Ok(Response::Data { data: node.data.clone(), stat: node.stat() })
    }

    pub(crate) fn children(self, path: &str) -> Result<Response> {
        Ok(Response::Names(names(path, self.node(path, Permissions::READ)?)))
    }

    pub(crate) fn children_and_stat(self, path: &str) -> Result<Response> {
        let node = self.node(path, Permissions::READ)?;
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
        Ok(Response::Count(self.tree.descendants(path) as i32))
    }

    /// A prefix of the text, not of the path: `/a` covers `/ab` too, as in ZooKeeper.
    pub(crate) fn ephemerals(self, session: SessionId, prefix: &str) -> Response {
        let all = matches!(prefix.trim(), "" | "/");
        let paths = self.tree.ephemerals(session).into_iter();
        let chosen = paths.filter(|path| all || path.starts_with(prefix));
        Response::Names(chosen.map(|path| path.to_string()).collect())
    }

    pub(crate) fn identities(self) -> Response {
        let known = self.identities.iter().map(|identity| ClientInfo {
            scheme: identity.scheme.to_owned(),
            user: identity.user().to_owned(),
        });
        Response::Identities(known.collect())
    }

    /// Each read succeeds or fails by itself.
    pub(crate) fn multi(self, ops: &[ReadOp]) -> Response {
        Response::MultiRead(ops.iter().map(|op| self.one_of_multi(op)).collect())
    }

    fn one_of_multi(self, op: &ReadOp) -> ReadResult {
        let (ReadOp::GetData(request) | ReadOp::GetChildren(request)) = op;
        match (op, self.node(&request.path, Permissions::READ)) {
            (_, Err(code)) => ReadResult::Error(code),
            (ReadOp::GetData(_), Ok(node)) => {
                ReadResult::Data { data: node.data.clone(), stat: node.stat() }
            }
            (ReadOp::GetChildren(_), Ok(node)) => ReadResult::Children(names(&request.path, node)),
        }
    }
}

/// The names of the children of the node at `path`.
fn names(path: &str, node: &Node) -> Vec<String> {
    // Behind the slash. To look for it from the end of each path would cost as much as the rest.
    let begin = if path == "/" { 1 } else { path.len() + 1 };
    node.children.iter().map(|child| child[begin..].to_owned()).collect()
}
