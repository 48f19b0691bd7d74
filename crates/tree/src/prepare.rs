//! Converts requests to transactions, or to the error for the client.
//!
//! The order of the checks decides which error a request with several faults gets. It is the order of Apache
//! ZooKeeper.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::sync::Arc;

use lockkeeper_wire::{
    AclList, CheckRequest, CreateMode, CreateRequest, CreateTtlRequest, DeleteRequest, ErrorCode,
    NodeData, Permissions, Sequence, SessionId, SetAclRequest, SetDataRequest, ZnodePath,
};

use crate::acl::{self, AclRef, Extent, Identity};
use crate::hash::{HashMap, QuickHash};
use crate::nodes::{NODE_WEIGHT, Owner, SYSTEM_NODES, Tree, parent_of};
use crate::notices::{Notice, Notices};
use crate::output::ConnectionId;
use crate::quota;
use crate::room::{self, Room, Size};
use crate::txn::Txn;

/// The longest time to live: ZooKeeper's format has 40 bits for the milliseconds.
const MAX_TTL_MS: i64 = (1 << 40) - 1;

/// The maximum number of levels of a new node's path. Quotas and recursive watches are looked up at each
/// level.
const MAX_LEVELS: usize = 250;

/// The maximum length of a path, of a new node or of a watch, in bytes. A growing table of paths hashes a few
/// hundred at once. The names that the library uses for keys of locks have at most 64 KiB.
pub(crate) const MAX_PATH: usize = 80 * 1024;

fn is_too_deep(path: &str) -> bool {
    // A level takes at least two bytes, so short paths need not be scanned.
    path.len() > 2 * MAX_LEVELS && path.matches('/').count() > MAX_LEVELS
}

/// The maximum number of nodes that are counted for the quotas of one request.
const MAX_QUOTA_NODES: usize = 10_000;

/// The maximum total length of the lists that one request gives to nodes: each node's record has its own
/// copy, and a request needs only a few bytes for `auth`.
const MAX_EXTENT_TOGETHER: Extent = Extent { entries: 100_000, bytes: 8 * 1024 * 1024 };

/// The approximate size of a node's record without its path, data and list.
pub(crate) const RECORD: usize = 32;

/// The client on whose behalf a request is prepared.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) session: SessionId,
    pub(crate) connection: ConnectionId,
    pub(crate) identities: &'a [Identity],
    /// Whether nodes with a time to live are allowed.
    pub(crate) ttl_nodes: bool,
    pub(crate) enforce_quotas: bool,
    pub(crate) max_ephemerals: usize,
    pub(crate) room: Room,
    /// Where exceeded limits are recorded.
    pub(crate) notices: &'a Notices,
}

/// The kind of the create request. Needed in addition to the mode, because ZooKeeper considers both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Plain,
    Container,
    /// With the time to live in milliseconds.
    Ttl(i64),
}

/// The requests that create a node, in a common form.
#[derive(Clone, Copy)]
pub(crate) struct NewNode<'a> {
    pub(crate) path: &'a str,
    pub(crate) data: &'a NodeData,
    pub(crate) acl: &'a AclList,
    pub(crate) flags: i32,
    pub(crate) form: Form,
}

impl<'a> NewNode<'a> {
    pub(crate) fn of(request: &'a CreateRequest, form: Form) -> Self {
        let CreateRequest { path, data, acl, flags } = request;
        Self { path, data, acl, flags: *flags, form }
    }

    pub(crate) fn with_ttl(request: &'a CreateTtlRequest) -> Self {
        let CreateTtlRequest { path, data, acl, flags, ttl_ms } = request;
        Self { path, data, acl, flags: *flags, form: Form::Ttl(*ttl_ms) }
    }
}

/// The properties of a node that later operations depend on.
#[derive(Clone)]
struct Facts {
    version: i32,
    aversion: i32,
    child_creates: i32,
    children: usize,
    owner: Owner,
    acl: AclRef,
    /// The length of the data.
    data: usize,
}

/// The tree as the transactions prepared so far will leave it.
///
/// Only a `multi` prepares several transactions, so only a `multi` records them here.
pub(crate) struct Draft<'a> {
    tree: &'a Tree,
    noted: HashMap<Arc<str>, Option<Facts>>,
    /// The last requested list and its expansion: most operations of a `multi` request the same one.
    expanded: RefCell<Option<(&'a AclList, AclRef)>>,
    /// The total length of the lists of this draft's nodes.
    extent: Cell<Extent>,
    /// The number of ephemeral nodes that it creates.
    ephemerals: Cell<usize>,
    /// How much more memory and disk space all nodes will take. Never too low: a list that the last of its
    /// nodes gives up is not counted as free within the same request.
    growth: Cell<Size>,
    /// The number of nodes counted for quotas.
    weighed: Cell<usize>,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(tree: &'a Tree) -> Self {
        Self::of(tree, 0)
    }

    /// A draft with capacity for this many changes to the children of one parent.
    pub(crate) fn of(tree: &'a Tree, changes: usize) -> Self {
        // Includes the parent.
        let room = if changes == 0 { 0 } else { changes + 1 };
        Self {
            tree,
            noted: HashMap::with_capacity_and_hasher(room, QuickHash::default()),
            expanded: RefCell::default(),
            extent: Cell::default(),
            ephemerals: Cell::new(0),
            growth: Cell::default(),
            weighed: Cell::new(0),
        }
    }

    /// How much more all nodes take after the prepared changes.
    #[cfg(test)]
    pub(crate) fn growth(&self) -> Size {
        self.growth.get()
    }

    fn facts(&self, path: &str) -> Result<Cow<'_, Facts>, ErrorCode> {
        if let Some(noted) = self.noted.get(path) {
            return noted.as_ref().map(Cow::Borrowed).ok_or(ErrorCode::NoNode);
        }
        let node = self.tree.get(path).ok_or(ErrorCode::NoNode)?;
        Ok(Cow::Owned(Facts {
            version: node.version,
            aversion: node.aversion,
            child_creates: node.child_creates,
            children: node.children.len(),
            owner: node.owner,
            acl: node.acl.clone(),
            data: node.data.len(),
        }))
    }

    fn exists(&self, path: &str) -> bool {
        match self.noted.get(path) {
            Some(noted) => noted.is_some(),
            None => self.tree.get(path).is_some(),
        }
    }

    /// Makes the effect of `txn` visible to later operations.
    pub(crate) fn note(&mut self, txn: &Txn) {
        match txn {
            Txn::Create { path, data, acl, owner } => {
                self.note_create(path, (data.len(), acl.clone()), *owner);
            }
            Txn::Delete { path } => {
                self.change(parent_of(path), |parent| parent.children -= 1);
                self.noted.insert(Arc::clone(path), None);
            }
            Txn::SetData { path, data, version } => self.change(path, |facts| {
                facts.data = data.len();
                facts.version = *version;
            }),
            Txn::SetAcl { path, acl, version } => self.change(path, |facts| {
                facts.acl = acl.clone();
                facts.aversion = *version;
            }),
            Txn::Check => {}
        }
    }

    fn note_create(&mut self, path: &Arc<str>, (data, acl): (usize, AclRef), owner: Owner) {
        self.change(parent_of(path), |parent| {
            parent.children += 1;
            parent.child_creates = parent.child_creates.saturating_add(1);
        });
        let facts =
            Facts { version: 0, aversion: 0, child_creates: 0, children: 0, owner, acl, data };
        self.noted.insert(Arc::clone(path), Some(facts));
    }

    fn change(&mut self, path: &str, change: impl FnOnce(&mut Facts)) {
        // Most operations of a `multi` change the same parent.
        if let Some(noted) = self.noted.get_mut(path) {
            if let Some(facts) = noted {
                change(facts);
            }
            return;
        }
        if let Ok(mut facts) = self.facts(path).map(Cow::into_owned) {
            change(&mut facts);
            self.noted.insert(path.into(), Some(facts));
        }
    }

    /// The list that a node gets for the requested one, and how much it adds to the memory of all lists: 0 if
    /// other nodes have the same list.
    fn expand(
        &self,
        caller: Caller<'_>,
        wanted: &'a AclList,
    ) -> Result<(AclRef, usize), ErrorCode> {
        if wanted.is_open() {
            return Ok((AclRef::open(), 0));
        }
        let mut last = self.expanded.borrow_mut();
        let (acl, weight) = match &*last {
            Some((same, acl)) if *same == wanted => (acl.clone(), 0),
            _ => self.expand_anew(caller, wanted)?,
        };
        *last = Some((wanted, acl.clone()));
        self.extent.set(self.extent.get() + acl.extent());
        check_extent(caller, self.extent.get(), MAX_EXTENT_TOGETHER)?;
        Ok((acl, weight))
    }

    fn expand_anew(
        &self,
        caller: Caller<'_>,
        wanted: &AclList,
    ) -> Result<(AclRef, usize), ErrorCode> {
        check_extent(caller, Extent::of(wanted), acl::MAX_EXTENT)?;
        let acl = acl::expand(wanted, caller.identities)?;
        check_extent(caller, acl.extent(), acl::MAX_EXTENT)?;
        let acl = self.tree.acls.shared(acl);
        let weight = if acl.nodes() == 0 { acl.weight() } else { 0 };
        Ok((acl, weight))
    }

    pub(crate) fn create(&self, caller: Caller<'_>, new: NewNode<'a>) -> Result<Txn, ErrorCode> {
        let mode = CreateMode::from_flags(new.flags).ok_or(ErrorCode::BadArguments)?;
        let owner = owner_of(mode, new.form, caller)?;
        // A valid path stays valid with a number appended, and some paths become valid by it.
        let is_valid = ZnodePath::is_valid(new.path);
        if !is_valid && (!new.path.contains('/') || new.path.contains('\0')) {
            return Err(ErrorCode::BadArguments);
        }

        let (acl, list_weight) = self.expand(caller, new.acl)?;
        let parent = self.facts(parent_of(new.path))?;
        acl::check(&parent.acl, Permissions::CREATE, caller.identities)?;

        // With the parent's next number. No other create can get that number before this one is applied.
        let path: Arc<str> = if mode.is_sequential() {
            let mut path = String::with_capacity(new.path.len() + Sequence::LENGTH);
            path.push_str(new.path);
            // Writing to a string cannot fail.
            let _ = write!(path, "{}", Sequence(parent.child_creates));
            path.into()
        } else {
            new.path.into()
        };
        if !is_valid {
            check_path(&path)?;
        }
        if path.len() > MAX_PATH || is_too_deep(&path) {
            return Err(ErrorCode::BadArguments);
        }
        if self.exists(&path) {
            return Err(ErrorCode::NodeExists);
        }

        if matches!(parent.owner, Owner::Session(_)) {
            return Err(ErrorCode::NoChildrenForEphemerals);
        }
        self.check_quota(caller, &path, (new.data.len() as i64, 1))?;
        self.check_weighing(caller, &path)?;

        let size = size_of_node(&path, new.data.len(), &acl);
        let size = size + Size { memory: list_weight as i64, disk: 0 };
        self.grow(caller, size, owner.is_of_lock() && room::is_lock(new.data.len(), &acl))?;
        if owner.is_session() {
            self.check_ephemerals(caller)?;
        }

        Ok(Txn::Create { path, data: new.data.clone(), acl, owner })
    }

    /// Refuses a quota on a subtree that takes too long to count.
    fn check_weighing(&self, caller: Caller<'_>, path: &str) -> Result<(), ErrorCode> {
        let Some(root) = quota::weighed_by(path) else { return Ok(()) };

        // The earlier changes of this request may be in the subtree too.
        let weighed = self.weighed.get() + self.noted.len();
        let most = MAX_QUOTA_NODES.checked_sub(weighed);

        match most.and_then(|most| self.tree.descendants(root, most)) {
            Some(count) => {
                self.weighed.set(weighed + count);
                Ok(())
            }
            None => {
                let (connection, max) = (caller.connection, MAX_QUOTA_NODES);
                let notice = Notice::TooMuchToCount { connection, max };
                caller.notices.refuse(notice, ErrorCode::ThrottledOp)
            }
        }
    }

    /// As in ZooKeeper, the earlier operations of a `multi` are not counted.
    fn check_quota(
        &self,
        caller: Caller<'_>,
        path: &str,
        change: (i64, i64),
    ) -> Result<(), ErrorCode> {
        match caller.enforce_quotas {
            true => quota::check(self.tree, path, change, caller.notices),
            false => Ok(()),
        }
    }

    /// Reserves space for this growth, if there is enough. Earlier deletes in the request count as free
    /// space.
    fn grow(&self, caller: Caller<'_>, by: Size, is_lock: bool) -> Result<(), ErrorCode> {
        let growth = self.growth.get() + by;
        let asks = (caller.notices, caller.connection);
        if by.memory > 0 && growth.memory > 0 {
            let weight = self.tree.weight().saturating_add(growth.memory as usize);
            caller.room.check_memory(weight, is_lock, asks)?;
        }
        if by.disk > 0 && growth.disk > 0 {
            caller.room.check_disk(is_lock, asks)?;
        }
        self.growth.set(growth);
        Ok(())
    }

    /// Counts one more ephemeral node of the session, up to the limit.
    fn check_ephemerals(&self, caller: Caller<'_>) -> Result<(), ErrorCode> {
        let (count, max) = (self.ephemerals.get() + 1, caller.max_ephemerals);
        if self.tree.ephemerals_of(caller.session) + count > max {
            let notice = Notice::TooManyEphemerals { connection: caller.connection, max };
            return caller.notices.refuse(notice, ErrorCode::QuotaExceeded);
        }
        self.ephemerals.set(count);
        Ok(())
    }

    pub(crate) fn delete(
        &self,
        caller: Caller<'_>,
        request: &DeleteRequest,
    ) -> Result<Txn, ErrorCode> {
        let path = request.path.as_str();
        if !path.contains('/') || path.contains('\0') || SYSTEM_NODES.contains(&path) {
            return Err(ErrorCode::BadArguments);
        }

        let parent = self.facts(parent_of(path))?;
        acl::check(&parent.acl, Permissions::DELETE, caller.identities)?;

        let node = self.facts(path)?;
        next_version(node.version, request.version)?;
        if node.children > 0 {
            return Err(ErrorCode::NotEmpty);
        }

        self.grow(caller, -size_of_node(path, node.data, &node.acl), false)?;
        Ok(Txn::Delete { path: path.into() })
    }

    pub(crate) fn set_data(
        &self,
        caller: Caller<'_>,
        request: &SetDataRequest,
    ) -> Result<Txn, ErrorCode> {
        check_path(&request.path)?;
        let node = self.facts(&request.path)?;
        acl::check(&node.acl, Permissions::WRITE, caller.identities)?;

        let growth = request.data.len() as i64 - node.data as i64;
        self.check_quota(caller, &request.path, (growth, 0))?;
        let is_lock = node.owner.is_of_lock() && room::is_lock(request.data.len(), &node.acl);
        self.grow(caller, Size::of(growth), is_lock)?;

        Ok(Txn::SetData {
            version: next_version(node.version, request.version)?,
            path: request.path.as_str().into(),
            data: request.data.clone(),
        })
    }

    pub(crate) fn set_acl(
        &self,
        caller: Caller<'_>,
        request: &'a SetAclRequest,
    ) -> Result<Txn, ErrorCode> {
        check_path(&request.path)?;
        let (acl, weight) = self.expand(caller, &request.acl)?;

        let node = self.facts(&request.path)?;
        acl::check(&node.acl, Permissions::ADMIN, caller.identities)?;

        // The old list frees its memory if no other node has it.
        let is_given_up = node.acl.nodes() == 1 && node.acl != acl;
        let given_up = if is_given_up { node.acl.weight() } else { 0 };
        let memory = weight as i64 - given_up as i64;
        let disk = acl.record_len() as i64 - node.acl.record_len() as i64;
        self.grow(caller, Size { memory, disk }, false)?;

        Ok(Txn::SetAcl {
            version: next_version(node.aversion, request.version)?,
            path: request.path.clone(),
            acl,
        })
    }

    pub(crate) fn check(
        &self,
        caller: Caller<'_>,
        request: &CheckRequest,
    ) -> Result<Txn, ErrorCode> {
        check_path(&request.path)?;
        let node = self.facts(&request.path)?;
        acl::check(&node.acl, Permissions::READ, caller.identities)?;
        next_version(node.version, request.version)?;
        Ok(Txn::Check)
    }
}

/// The condition under which the new node is deleted. Except in its own request, the mode of a container is
/// ignored, as in ZooKeeper.
fn owner_of(mode: CreateMode, form: Form, caller: Caller<'_>) -> Result<Owner, ErrorCode> {
    if mode.has_ttl() && !caller.ttl_nodes {
        return Err(ErrorCode::Unimplemented);
    }
    match form {
        Form::Ttl(ttl) if mode.has_ttl() && (1..=MAX_TTL_MS).contains(&ttl) => Ok(Owner::Ttl(ttl)),
        Form::Ttl(_) => Err(ErrorCode::BadArguments),
        _ if mode.has_ttl() => Err(ErrorCode::BadArguments),
        Form::Container => Ok(Owner::Container),
        Form::Plain if mode.is_ephemeral() => Ok(Owner::Session(caller.session)),
        Form::Plain => Ok(Owner::None),
    }
}

/// The size of a node without the memory of its list, which other nodes may share.
fn size_of_node(path: &str, data: usize, acl: &AclRef) -> Size {
    let texts = path.len() + data;
    Size { memory: (NODE_WEIGHT + texts) as i64, disk: (RECORD + texts + acl.record_len()) as i64 }
}

fn check_extent(caller: Caller<'_>, extent: Extent, max: Extent) -> Result<(), ErrorCode> {
    if extent.fits(max) {
        return Ok(());
    }
    let connection = caller.connection;
    let notice = match extent.entries > max.entries {
        true => Notice::AclTooLong { connection, count: extent.entries, max: max.entries },
        false => Notice::AclTooLarge { connection, bytes: extent.bytes, max: max.bytes },
    };
    caller.notices.refuse(notice, ErrorCode::InvalidAcl)
}

fn check_path(path: &str) -> Result<(), ErrorCode> {
    if ZnodePath::is_valid(path) { Ok(()) } else { Err(ErrorCode::BadArguments) }
}

/// The version after a change, if the current one matches the expected one (-1: any).
fn next_version(present: i32, expected: i32) -> Result<i32, ErrorCode> {
    if expected != -1 && expected != present {
        return Err(ErrorCode::BadVersion);
    }
    // A node must never have version -1, which clients cannot request exactly.
    match present.wrapping_add(1) {
        -1 => Ok(0),
        next => Ok(next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_step_over_minus_one() {
        assert_eq!(next_version(0, -1), Ok(1));
        assert_eq!(next_version(7, 7), Ok(8));
        assert_eq!(next_version(7, 6), Err(ErrorCode::BadVersion));
        assert_eq!(next_version(i32::MAX, -1), Ok(i32::MIN));
        assert_eq!(next_version(-2, -1), Ok(0));
    }
}
