//! Lists every znode below a path, parents first.

use lockkeeper::{Acl, Client, Error, ErrorCode, SessionId, Stat, ZnodePath};

use super::format::Node;
use crate::shared::exit::{Exit, Failure};

/// How many znodes are requested at once. Each may have a megabyte of data.
const AT_ONCE: usize = 32;

/// The path that is reserved for the servers.
pub(super) const RESERVED: &str = "/zookeeper";

/// A znode that was found.
#[derive(Debug)]
pub(super) enum Found {
    Persistent(Node),
    /// It is deleted when its session ends.
    Ephemeral(ZnodePath),
}

/// A walk down from a path. Keeps the names of siblings that are still to be visited, and the data of only a few znodes
/// at a time.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    client: &'a Client,
    pending: Vec<ZnodePath>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(client: &'a Client, root: &ZnodePath) -> Self {
        Self { client, pending: vec![root.clone()] }
    }

    /// The next few znodes; `None` at the end. Znodes that were deleted during the walk are skipped.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Found>>, Failure> {
        if self.pending.is_empty() {
            return Ok(None);
        }
        let rest = self.pending.len().saturating_sub(AT_ONCE);
        let asked: Vec<_> = self
            .pending
            .drain(rest..)
            .rev()
            .map(|path| {
                let (data, acl) = (self.client.data(&path), self.client.acl(&path));
                (data, acl, self.client.children(&path), path)
            })
            .collect();

        let mut found = Vec::with_capacity(asked.len());
        for (data, acl, children, path) in asked {
            let answers = (data.await, acl.await, children.await);
            let (Some((data, stat)), Some((acl, later)), Some((names, last))) =
                (there(answers.0, &path)?, there(answers.1, &path)?, there(answers.2, &path)?)
            else {
                continue;
            };
            if !is_one(&stat, &later, &last) {
                // Deleted and created again between the reads: read it again.
                self.pending.push(path);
                continue;
            }
            if stat.ephemeral_owner != SessionId::NONE {
                found.push(Found::Ephemeral(path));
                continue;
            }
            is_whole(&path, &acl)?;
            let children = u32::try_from(last.num_children).unwrap_or_default();
            self.visit_below(&path, &names)?;
            found.push(Found::Persistent(Node { path, data: data.to_vec(), acl, children }));
        }
        Ok(Some(found))
    }

    fn visit_below(&mut self, path: &ZnodePath, names: &[String]) -> Result<(), Failure> {
        for name in names {
            let child = path.child(name);
            let child = child.map_err(|error| Failure::new(Exit::Data, error.to_string()))?;
            if child.below(self.client.chroot()).as_str() != RESERVED {
                self.pending.push(child);
            }
        }
        Ok(())
    }
}

/// Whether all replies are about the same znode.
fn is_one(data: &Stat, acl: &Stat, children: &Stat) -> bool {
    data.czxid == acl.czxid && acl.czxid == children.czxid
}

/// The reply about a znode; `None` if it does not exist.
pub(super) fn there<T>(answer: Result<T, Error>, path: &ZnodePath) -> Result<Option<T>, Failure> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.code() == Some(ErrorCode::NoNode) => Ok(None),
        Err(error) if error.code() == Some(ErrorCode::NoAuth) => {
            let message = format!("{path} may not be read");
            Err(Failure::new(Exit::NoPermission, message).advise(
                "use credentials that its access control list allows, or those of the super user \
                 (--digest-file)",
            ))
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether a list is complete: servers show the hashes of passwords only to clients that may change the list.
pub(super) fn shows_hashes(acl: &[Acl]) -> bool {
    !acl.iter().any(|entry| entry.scheme == "digest" && entry.id.ends_with(":x"))
}

/// Rejects a list without its hashes: it would not admit any client.
fn is_whole(path: &ZnodePath, acl: &[Acl]) -> Result<(), Failure> {
    if !shows_hashes(acl) {
        let message = format!("the access control list of {path} is shown without its hashes");
        return Err(Failure::new(Exit::NoPermission, message).advise(
            "use credentials that may change it (the letter a), or those of the super user \
             (--digest-file)",
        ));
    }
    Ok(())
}
