//! Client: the handle of a session, with all operations on nodes.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use lockkeeper_session::{
    Cleanup, Contact, Credentials, HoldId, Instant, LeaseState, NameUse, Session, Timing, WatchId,
    WatchKind,
};
use lockkeeper_wire::{
    Acl, AddWatchMode, AddWatchRequest, ClientInfo, Create, CreateMode, CreateRequest,
    CreateTtlRequest, DeleteRequest, ErrorCode, List, OpCode, Outgoing as _, PathRequest,
    PathWatchRequest, ReadOp, ReadResult, Request, Response, SessionId, SetAclRequest,
    SetDataRequest, Stat, ZnodePath, Zxid,
};
use tokio::sync::{mpsc, oneshot, watch};
use uuid::Uuid;

use crate::clock::Clock;
use crate::default_acl::DefaultAcl;
use crate::dirty::DirtyPaths;
use crate::error::{Error, StillHeld, present};
use crate::hold::Hold;
use crate::identity::SessionIdentity;
use crate::reply::{Read, Reply, WatchedReply};
use crate::service::Service;
use crate::shared::{Answer, Shared, WatchSink};
use crate::status::{HoldState, Status};
use crate::watcher::{WatchStream, Watcher, strip_chroot};

/// The result of a create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// The path of the node, with the sequence number if it is sequential.
    pub path: ZnodePath,
    /// The stat of the node.
    pub stat: Stat,
}

/// The names of a node's children, in arbitrary order, and the [`Stat`] of the node.
pub type Listing = (Vec<String>, Stat);

/// A session with a ZooKeeper service. Cheap to clone; all clones share the session.
///
/// A method call queues its request for sending. Requests are sent and answered in the order of the calls:
/// see [`Reply`]. Without a connection they wait for one, for at most a session timeout. So while the servers
/// are unreachable, a program that repeats failed requests makes one attempt per session timeout;
/// [`Client::reachable`] waits until a server is reachable again.
///
/// When the session has expired, a new one is started automatically. The client remains usable, but
/// everything that belonged to the old session (ephemeral nodes, watches, locks) is lost. When the last clone
/// is dropped, the session is closed in the background; use [`Client::close`] to wait for that.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
    /// The list from [`DefaultAcl::entries`]; `None` if it gives everyone all permissions.
    acl: Option<Arc<[Acl]>>,
}

struct Inner {
    shared: Arc<Shared>,
    chroot: ZnodePath,
    service: Service,
}

/// Shows the session, and whether it is connected.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client(session {}, {:?})", self.session_id(), self.contact())
    }
}

/// A reference to a client that does not keep its session open.
#[derive(Debug)]
pub(crate) struct WeakClient(Weak<Inner>);

impl WeakClient {
    pub(crate) fn upgrade(&self) -> Option<Client> {
        Some(Client { inner: self.0.upgrade()?, acl: None })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// The version to send; `None` becomes -1, which matches any version.
pub(crate) fn or_any(version: Option<i32>) -> i32 {
    version.unwrap_or(-1)
}

impl Client {
    pub(crate) fn new(
        shared: Arc<Shared>,
        chroot: ZnodePath,
        acl: &DefaultAcl,
        service: Service,
    ) -> Self {
        Self { inner: Arc::new(Inner { shared, chroot, service }), acl: acl.to_shared() }
    }

    pub(crate) fn downgrade(&self) -> WeakClient {
        WeakClient(Arc::downgrade(&self.inner))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }

    /// What is known about whether the servers are one service.
    pub(crate) fn service(&self) -> &Service {
        &self.inner.service
    }

    // ----- the session ------------------------------------------------------------------------

    /// The state of the connection and the session, updated with every change.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.inner.shared.status()
    }

    /// The current [`Status::contact`], without the cost of a receiver.
    pub fn contact(&self) -> Contact {
        self.inner.shared.contact()
    }

    /// Waits until a server has the session. Returns `false` if the client is closed, which also ends the
    /// wait. For programs that do not need errors while servers are unreachable. Returns immediately while
    /// the client is connected. Makes no request.
    ///
    /// # Session loss
    /// Waits until the next session has a connection.
    ///
    /// # Cancel safety
    /// Safe: call it again.
    pub async fn reachable(&self) -> bool {
        let mut status = self.status();
        let is_decided = |contact| matches!(contact, Contact::Connected | Contact::Closed);
        let decided = status.wait_for(|status| is_decided(status.contact)).await;
        decided.is_ok_and(|status| status.contact == Contact::Connected)
    }

    /// Whether the client is closed: the program closes or has closed it ([`Client::close`]), the runtime in
    /// which it was connected has ended, or a server has refused its credentials. Every further request
    /// fails.
    pub fn is_closed(&self) -> bool {
        self.inner.shared.read(Session::is_closing)
    }

    /// The tokio runtime in which the client was connected, and which drives its connection. Spawn background
    /// tasks that must live as long as the client there: another runtime, such as that of a caller, may end
    /// or block earlier.
    pub fn tokio_runtime(&self) -> &tokio::runtime::Handle {
        self.inner.shared.tokio_runtime()
    }

    /// Waits for a future on a thread outside async code, and returns its output:
    /// `client.wait(lock.acquire())`. The future runs on this thread. Its timers and tasks belong to the
    /// runtime in which the client was connected, which must run on another thread, as that of
    /// `lockkeeper::blocking::Client` does.
    ///
    /// # Panics
    /// In async code; use `.await` there. A thread that blocks here could not run its other tasks, and the
    /// future may depend on one of them. Also if the runtime in which the client was connected has ended.
    #[track_caller]
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        self.tokio_runtime().block_on(future)
    }

    /// The session id, or [`SessionId::NONE`] if there is no session.
    pub fn session_id(&self) -> SessionId {
        self.inner.shared.read(|session| session.id())
    }

    /// The last transaction that a server is known to have applied, according to the replies of this session;
    /// 0 before the first one. Other servers of an ensemble may be ahead: after [`Client::sync`], the value
    /// is no smaller than any transaction from before the call.
    pub fn last_zxid(&self) -> Zxid {
        self.inner.shared.read(|session| session.last_zxid())
    }

    /// The newest transaction that any session of this client has seen, since servers last lost data; see
    /// [`Status::rewinds`].
    #[doc(hidden)]
    pub fn newest_zxid(&self) -> Zxid {
        self.inner.shared.read(|session| session.newest_zxid())
    }

    /// The identity with which another process can end the session; `None` if there is no session.
    pub fn session_identity(&self) -> Option<SessionIdentity> {
        self.inner.shared.read(|session| {
            let (id, timeout) = (session.id(), session.timeout());
            let password = session.password().clone();
            (id != SessionId::NONE).then_some(SessionIdentity { id, password, timeout })
        })
    }

    /// Whether both are clones of the same client.
    pub fn is_clone_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// The negotiated session timeout.
    pub fn session_timeout(&self) -> Duration {
        self.inner.shared.read(|session| session.timeout())
    }

    /// The lease: the time until which no server can have expired the session; see
    /// [`LeaseMode`](crate::LeaseMode).
    pub fn lease(&self) -> LeaseState {
        self.inner.shared.lease()
    }

    /// How the granted session timeout is divided: the length of a lease, how often it is renewed, and the
    /// longest outage that does not cost a lock.
    pub fn timing(&self) -> Timing {
        self.inner.shared.read(Session::timing)
    }

    /// The largest message that the client sends or accepts, in bytes.
    pub fn max_frame(&self) -> usize {
        self.inner.shared.read(|session| session.config().max_frame)
    }

    /// The clock of leases and deadlines.
    pub fn clock(&self) -> Clock {
        Clock
    }

    /// The current time by [`Client::clock`].
    pub fn now(&self) -> Instant {
        self.inner.shared.now()
    }

    /// A unique identifier for names. Random, except in simulations.
    #[doc(hidden)]
    pub fn unique_id(&self) -> Uuid {
        self.inner.shared.unique_id()
    }

    /// Whether requests that this thread makes now are bound to a hold of this client; see
    /// [`bound_to`](crate::bound_to).
    pub fn is_bound(&self) -> bool {
        !crate::binding::holds_of(self.inner.shared.local_id()).is_empty()
    }

    /// The chroot: all paths of this client are below it.
    pub fn chroot(&self) -> &ZnodePath {
        &self.inner.chroot
    }

    /// Whether servers keep quotas and configuration at this path. A `/zookeeper` below a chroot does not
    /// count.
    #[doc(hidden)]
    pub fn is_servers_own(&self, path: &ZnodePath) -> bool {
        path.below(self.chroot()).is_reserved()
    }

    /// Whether a program can own everything below this path. False for the root of the whole tree and for the
    /// servers' own paths.
    #[doc(hidden)]
    pub fn is_own_base(&self, path: &ZnodePath) -> bool {
        !path.below(self.chroot()).is_root() && !self.is_servers_own(path)
    }

    /// The same client with a different default access control list for new znodes.
    #[must_use]
    pub fn with_default_acl(&self, acl: &DefaultAcl) -> Self {
        Self { inner: Arc::clone(&self.inner), acl: acl.to_shared() }
    }

    /// The access control list of znodes that the client creates, unless a request specifies another one.
    pub fn default_acl(&self) -> Vec<Acl> {
        self.acl.as_deref().map_or_else(Acl::open, <[Acl]>::to_vec)
    }

    /// Whether everyone has all permissions on the znodes that the client creates.
    pub fn creates_open(&self) -> bool {
        self.acl.is_none()
    }

    /// Ends the session: waits until everything that must be deleted is deleted, then closes the session.
    /// Costs one round trip after these deletes. While no server is reachable, it takes at most a session
    /// timeout, after which the session expires by itself.
    ///
    /// Held locks are lost, and their guards report it. To wait until they have been released, use
    /// [`Client::close_when_released`].
    ///
    /// # Session loss
    /// Ends the wait: there is no session left to close.
    ///
    /// # Cancel safety
    /// The session continues to be closed in the background.
    pub async fn close(&self) {
        self.inner.shared.close();
        let mut status = self.status();
        // Also closed when the driver's runtime has ended.
        let _ = status.wait_for(|status| status.contact == Contact::Closed).await;
    }

    /// Waits until nothing is held any more, and then ends the session like [`Client::close`]. Nothing is
    /// held when the last guard of a lock and the last [`Hold`] have been released or dropped. A lock that
    /// lingers is held until its node is deleted. A task that waits for a lock does not hold it: if it gets
    /// the lock in time, this method waits for it too; otherwise its acquire fails because the client was
    /// closed. Call this when no task acquires locks any more. Makes no request while something is held; then
    /// it costs what [`Client::close`] does. If the client is already closed, or another task closes it, this
    /// method only waits for the end of the session.
    ///
    /// # Errors
    /// If something is still held after `timeout`. The client then stays open.
    ///
    /// # Session loss
    /// The locks are lost, but count as held until their guards are dropped.
    ///
    /// # Cancel safety
    /// Safe while something is held; afterwards as [`Client::close`].
    pub async fn close_when_released(&self, timeout: Duration) -> Result<(), StillHeld> {
        let shared = &self.inner.shared;
        let released = async {
            while let Err(released) = shared.close_if_released() {
                // Something may be held again by now.
                let _ = released.await;
            }
        };
        if tokio::time::timeout(timeout, released).await.is_err() {
            return Err(StillHeld { holds: shared.holds(), waited: timeout });
        }
        self.close().await;
        Ok(())
    }

    /// Authenticates at this and every later server. Without TLS, credentials are sent in clear text.
    pub fn authenticate(&self, scheme: &str, secret: impl Into<Bytes>) {
        let credentials = Credentials { scheme: scheme.into(), secret: secret.into() };
        self.inner.shared.authenticate(credentials);
    }

    /// Makes the session prove that the node exists, once per [renewal interval](Timing::renewal_interval).
    /// The proof also extends [`Client::lease`] under [`LeaseMode::Quorum`](crate::LeaseMode::Quorum). Each
    /// time it costs one committed write for all holds of the session together, and one additional read for
    /// each node whose name is [reused](NameUse::Reused).
    pub fn hold(&self, path: &ZnodePath, name: NameUse) -> Hold {
        let id = self.inner.shared.hold(path.below(&self.inner.chroot), name);
        Hold::new(Arc::clone(&self.inner.shared), id)
    }

    /// Holds a node like [`Client::hold`], if at least `left` of the session's lease remains. Returns the
    /// state of both at the same moment.
    pub fn hold_if_left(
        &self,
        path: &ZnodePath,
        name: NameUse,
        left: Duration,
    ) -> (Option<Hold>, HoldState) {
        let shared = &self.inner.shared;
        let (id, state) = shared.hold_if_left(path.below(&self.inner.chroot), name, left);
        (id.map(|id| Hold::new(Arc::clone(shared), id)), state)
    }

    /// After what time a committed write shows that the session lives for `left` more: zero, unless the
    /// latest replies have yet to be reported to the servers' leader. `None` if no reply is recent enough,
    /// for example after this program was paused: another request must be answered first.
    pub fn time_to_proof(&self, left: Duration) -> Option<Duration> {
        self.inner.shared.time_to_proof(left)
    }

    pub(crate) fn found_missing(&self, hold: HoldId) {
        self.inner.shared.found_missing(hold);
    }

    /// Deletes a node before the session ends, over any number of connections. Does not need a runtime, so it
    /// can be called from `Drop`.
    pub fn clean_up(&self, target: Cleanup) {
        self.inner.shared.clean_up(self.full_target(target));
    }

    /// Like [`Client::clean_up`], with a reply when the delete is certain. Dropping the reply does not cancel
    /// the delete. The reply fails if no server is reachable for a session timeout; the delete then continues
    /// without a report.
    pub fn clean_up_confirmed(&self, target: Cleanup) -> Reply<()> {
        let path = target.path().clone();
        let receiver = self.inner.shared.clean_up_confirmed(self.full_target(target));
        self.cleaned_up(path, receiver)
    }

    /// Ends a hold of this client, and deletes a node like [`Client::clean_up_confirmed`] if the lease still
    /// belongs to `session`. Otherwise nothing is sent and there is no reply: the ephemeral nodes of that
    /// session are deleted with it, and other nodes stay. Returns the state of the hold at that moment.
    ///
    /// # Panics
    /// In debug builds, if the hold belongs to another client.
    pub fn clean_up_held(
        &self,
        hold: Hold,
        session: SessionId,
        target: Cleanup,
    ) -> (HoldState, Option<Reply<()>>) {
        debug_assert!(hold.is_of(&self.inner.shared), "the hold belongs to another client");
        let path = target.path().clone();
        let (state, receiver) = hold.clean_up(session, self.full_target(target));
        (state, receiver.map(|receiver| self.cleaned_up(path, receiver)))
    }

    fn cleaned_up(&self, path: ZnodePath, receiver: oneshot::Receiver<Answer>) -> Reply<()> {
        Reply::new(receiver, OpCode::Delete, path, self.strip(), |_, _| Some(()))
    }

    // ----- writes -----------------------------------------------------------------------------

    /// Creates a node, with the client's [`DefaultAcl`].
    pub fn create(
        &self,
        path: &ZnodePath,
        data: impl Into<Bytes>,
        mode: CreateMode,
    ) -> Reply<Created> {
        self.create_with_acl(path, data, mode, self.default_acl())
    }

    /// Creates a node with an access control list. Modes with a time to live fail here; use
    /// [`Client::create_ttl`].
    pub fn create_with_acl(
        &self,
        path: &ZnodePath,
        data: impl Into<Bytes>,
        mode: CreateMode,
        acl: Vec<Acl>,
    ) -> Reply<Created> {
        let request = create_request(self.full(path), data.into(), mode, acl);
        let request = match mode {
            CreateMode::Container => Request::CreateContainer(request),
            _ => Request::Create2(request),
        };
        self.send(path, request, read_created)
    }

    /// Creates a node like [`Client::create`], replacing a sibling, and lists their parent right behind it,
    /// like [`Client::children`].
    ///
    /// A node is replaced if its delete was the last request of this client, with a [`Cleanup::Node`], and
    /// has not been transmitted. Delete and create are then one transaction. The times in the [`Stat`] are 0,
    /// because Apache ZooKeeper does not send them. If the delete is refused, the create fails with a
    /// retryable error. Without such a delete, the node is created by itself.
    ///
    /// If the replaced node is `old`, the parent is not listed: the caller may know the queue already, and
    /// has to list it otherwise.
    pub fn replace(
        &self,
        old: Option<&ZnodePath>,
        path: &ZnodePath,
        data: &Bytes,
        mode: CreateMode,
    ) -> (Reply<Created>, Option<Reply<Listing>>) {
        let listed = path.parent().unwrap_or_else(ZnodePath::root);
        let (full_path, full_listed) = (self.full_text(path), self.full_text(&listed));
        let old = old.map(|old| self.full_text(old));

        let create = Create { path: &full_path, data, mode, acl: self.acl.as_deref() };
        let list = List { path: &full_listed };
        let ops = [create.op(), list.op()];
        let (created, names) = self.inner.shared.replace(old.as_deref(), create, list);

        let created = Reply::new(created, ops[0], path.clone(), self.strip(), read_created);
        let names = names
            .map(|names| Reply::new(names, ops[1], listed.clone(), self.strip(), read_children));
        (created, names)
    }

    /// Creates a persistent node that the servers delete after it has had neither children nor changes for
    /// `ttl` (1 ms to about 34 years, in milliseconds). Servers refuse it unless TTL nodes are enabled.
    pub fn create_ttl(
        &self,
        path: &ZnodePath,
        data: impl Into<Bytes>,
        mode: CreateMode,
        ttl: Duration,
    ) -> Reply<Created> {
        let request = create_request(self.full(path), data.into(), mode, self.default_acl());
        self.send(path, Request::CreateTtl(with_ttl(request, ttl)), read_created)
    }

    /// Creates a node and its missing parents. Does nothing if the node exists. The parents are created in
    /// the same mode, without data. Costs one round trip, and two more for each missing parent.
    ///
    /// # Errors
    /// As [`Reply`], except that an existing node is a success.
    ///
    /// # Session loss
    /// As [`Reply`]. Nodes that were created stay, unless the mode is ephemeral.
    ///
    /// # Cancel safety
    /// Nodes that were created stay.
    pub async fn ensure(&self, path: &ZnodePath, mode: CreateMode) -> Result<(), Error> {
        let mut missing = vec![path.clone()];
        while let Some(path) = missing.last() {
            match self.create(path, Bytes::new(), mode).await {
                Err(error) if error.code() == Some(ErrorCode::NoNode) => {
                    match path.parent() {
                        Some(parent) => missing.push(parent),
                        // Below the root, only parents of the chroot can be missing.
                        None => self.make_above_chroot(error).await?,
                    }
                }
                Err(error) if error.code() != Some(ErrorCode::NodeExists) => return Err(error),
                _ => drop(missing.pop()),
            }
        }
        Ok(())
    }

    /// Creates the parents of the chroot. Only requests with absolute paths can reach them.
    async fn make_above_chroot(&self, missing: Error) -> Result<(), Error> {
        let mut above = Vec::new();
        let mut next = self.chroot().parent();
        while let Some(path) = next.filter(|path| !path.is_root()) {
            next = path.parent();
            above.push(path);
        }

        if above.is_empty() {
            return Err(missing);
        }

        for path in above.into_iter().rev() {
            let mode = CreateMode::Persistent;
            let request = create_request(path.to_string(), Bytes::new(), mode, self.default_acl());
            match self.send(&path, Request::Create2(request), |_, _| Some(())).await {
                Err(error) if error.code() != Some(ErrorCode::NodeExists) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Deletes a node without children. With `version`, only if the data version matches.
    pub fn delete(&self, path: &ZnodePath, version: Option<i32>) -> Reply<()> {
        let request = DeleteRequest { path: self.full(path), version: or_any(version) };
        self.send(path, Request::Delete(request), |_, _| Some(()))
    }

    /// Changes a node's data. With `version`, only if the data version matches.
    pub fn set_data(
        &self,
        path: &ZnodePath,
        data: impl Into<Bytes>,
        version: Option<i32>,
    ) -> Reply<Stat> {
        let (data, version) = (data.into().into(), or_any(version));
        let request = SetDataRequest { path: self.full(path), data, version };
        self.send(path, Request::SetData(request), read_stat)
    }

    /// Changes a node's access control list. With `version`, only if the version of the list matches.
    pub fn set_acl(&self, path: &ZnodePath, acl: Vec<Acl>, version: Option<i32>) -> Reply<Stat> {
        let (acl, version) = (acl.into(), or_any(version));
        let request = SetAclRequest { path: self.full(path), acl, version };
        self.send(path, Request::SetAcl(request), read_stat)
    }

    // ----- reads ------------------------------------------------------------------------------

    /// A node's stat; `None` if it does not exist. Costs one round trip.
    ///
    /// # Errors
    /// As [`Reply`], except that a missing node is not an error.
    ///
    /// # Session loss
    /// As [`Reply`].
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub async fn exists(&self, path: &ZnodePath) -> Result<Option<Stat>, Error> {
        present(self.stat(path).await)
    }

    /// A node's stat. Unlike [`Client::exists`], the request is sent when this is called, before requests
    /// that are made afterwards.
    pub fn stat(&self, path: &ZnodePath) -> Reply<Stat> {
        self.send(path, Request::Exists(self.read(path)), read_stat)
    }

    /// Like [`Client::exists`], with a watch that fires when the node is created, changed or deleted. Costs
    /// one round trip.
    ///
    /// A watch on a node that does not exist stays on the server until the node is created or the watcher is
    /// dropped.
    ///
    /// # Errors
    /// As [`Client::exists`]; no watch is set then.
    ///
    /// # Session loss
    /// As [`WatchedReply`].
    ///
    /// # Cancel safety
    /// Dropping it gives up the watch.
    pub async fn exists_watched(&self, path: &ZnodePath) -> Result<(Option<Stat>, Watcher), Error> {
        let request = Request::Exists(self.read(path));
        let (reply, watcher) = self.watch_once(path, request, WatchKind::Exists, read_stat);
        Ok((present(reply.await)?, watcher))
    }

    /// A node's data and stat.
    pub fn data(&self, path: &ZnodePath) -> Reply<(Bytes, Stat)> {
        self.send(path, Request::GetData(self.read(path)), read_data)
    }

    /// A node's data and stat, with a watch that fires when the node is changed or deleted. If the node does
    /// not exist, no watch is set.
    pub fn data_watched(&self, path: &ZnodePath) -> WatchedReply<(Bytes, Stat)> {
        let request = Request::GetData(self.read(path));
        let (reply, watcher) = self.watch_once(path, request, WatchKind::Data, read_data);
        WatchedReply::new(reply, watcher)
    }

    /// The names of a node's children, in arbitrary order, and the node's stat.
    pub fn children(&self, path: &ZnodePath) -> Reply<Listing> {
        self.send(path, Request::GetChildren2(self.read(path)), read_children)
    }

    /// The children of a node, with a watch that fires when a child is created or deleted, or the node is
    /// deleted. If the node does not exist, no watch is set.
    pub fn children_watched(&self, path: &ZnodePath) -> WatchedReply<Listing> {
        let request = Request::GetChildren2(self.read(path));
        let (reply, watcher) = self.watch_once(path, request, WatchKind::Children, read_children);
        WatchedReply::new(reply, watcher)
    }

    /// A node's access control list and stat.
    pub fn acl(&self, path: &ZnodePath) -> Reply<(Vec<Acl>, Stat)> {
        self.send(path, Request::GetAcl(self.at(path)), |response, _| {
            let Response::Acl { acl, stat } = response else { return None };
            Some((acl, stat))
        })
    }

    /// Waits until the server that this client is connected to has caught up with its leader. Reads that are
    /// made afterwards see everything that was written before.
    pub fn sync(&self, path: &ZnodePath) -> Reply<()> {
        self.send(path, Request::Sync(self.at(path)), |_, _| Some(()))
    }

    /// Makes several reads in one request; each has its own result. Requires servers 3.6 or newer.
    pub fn multi_read(&self, ops: Vec<ReadOp>) -> Reply<Vec<ReadResult>> {
        let full = |request: PathRequest| match ZnodePath::new(&request.path) {
            Ok(path) => self.at(&path),
            Err(_) => request,
        };
        let ops = ops.into_iter().map(|op| match op {
            ReadOp::GetData(request) => ReadOp::GetData(full(request)),
            ReadOp::GetChildren(request) => ReadOp::GetChildren(full(request)),
        });
        let request = Request::MultiRead(ops.collect());
        self.send(&ZnodePath::root(), request, |response, _| {
            let Response::MultiRead(results) = response else { return None };
            Some(results)
        })
    }

    /// The paths of this session's ephemeral nodes below a path. Requires servers 3.6 or newer.
    pub fn ephemerals(&self, path: &ZnodePath) -> Reply<Vec<String>> {
        self.send(path, Request::GetEphemerals(self.at(path)), |response, chroot| {
            let Response::Names(paths) = response else { return None };
            Some(paths.into_iter().map(|path| strip_chroot(path, chroot)).collect())
        })
    }

    /// The number of nodes below a node. Requires servers 3.6 or newer.
    pub fn descendants(&self, path: &ZnodePath) -> Reply<u32> {
        let request = Request::GetAllChildrenNumber(self.at(path));
        self.send(path, request, |response, _| match response {
            Response::Count(count) => u32::try_from(count).ok(),
            _ => None,
        })
    }

    /// The identities of the session. Requires servers 3.7 or newer.
    pub fn who_am_i(&self) -> Reply<Vec<ClientInfo>> {
        self.send(&ZnodePath::root(), Request::WhoAmI, |response, _| match response {
            Response::Identities(identities) => Some(identities),
            _ => None,
        })
    }

    /// Watches a node, or a node and everything below it, until the stream is dropped. Requires servers 3.6
    /// or newer. Costs one round trip.
    ///
    /// # Errors
    /// As [`Reply`]; no watch is set then.
    ///
    /// # Session loss
    /// As [`Reply`]. Later it ends the stream; see [`WatchStream::next`].
    ///
    /// # Cancel safety
    /// Dropping it gives up the watch.
    pub async fn watch(&self, path: &ZnodePath, mode: AddWatchMode) -> Result<WatchStream, Error> {
        let (sender, events) = mpsc::unbounded_channel();
        let (id, reply) = self.add_watch(path, mode, WatchSink::Stream(sender));
        let shared = Arc::clone(&self.inner.shared);
        let stream = WatchStream::new(shared, id, self.strip(), events);
        reply.await?;
        Ok(stream)
    }

    /// Watches like [`Client::watch`], but keeps the changed paths instead of the events, so that memory is
    /// bounded. The watch is set if the reply is not an error.
    pub fn watch_paths(&self, path: &ZnodePath, mode: AddWatchMode) -> (DirtyPaths, Reply<()>) {
        let (sender, receiver) = DirtyPaths::channel();
        let (id, reply) = self.add_watch(path, mode, WatchSink::Paths(sender));
        (receiver(Arc::clone(&self.inner.shared), id, self.strip()), reply)
    }

    fn add_watch(
        &self,
        path: &ZnodePath,
        mode: AddWatchMode,
        sink: WatchSink,
    ) -> (WatchId, Reply<()>) {
        let kind = match mode {
            AddWatchMode::Persistent => WatchKind::Persistent,
            AddWatchMode::PersistentRecursive => WatchKind::PersistentRecursive,
        };
        let request =
            Request::AddWatch(AddWatchRequest { path: self.full(path), mode: mode.code() });
        let (id, receiver) = self.inner.shared.submit_watching(request, kind, sink);
        (id, Reply::new(receiver, OpCode::AddWatch, path.clone(), None, |_, _| Some(())))
    }

    // ----- private ----------------------------------------------------------------------------

    /// The absolute path, as the servers know it.
    pub(crate) fn full(&self, path: &ZnodePath) -> String {
        self.full_text(path).into_owned()
    }

    fn full_text<'a>(&self, path: &'a ZnodePath) -> Cow<'a, str> {
        match self.inner.chroot.is_root() {
            true => path.as_str().into(),
            false => path.below(&self.inner.chroot).to_string().into(),
        }
    }

    fn full_target(&self, target: Cleanup) -> Cleanup {
        match self.inner.chroot.is_root() {
            true => target,
            false => target.below(&self.inner.chroot),
        }
    }

    /// The prefix to remove from the paths in replies; `None` without a chroot.
    pub(crate) fn strip(&self) -> Option<ZnodePath> {
        (!self.inner.chroot.is_root()).then(|| self.inner.chroot.clone())
    }

    pub(crate) fn send<T>(&self, path: &ZnodePath, request: Request, read: Read<T>) -> Reply<T> {
        let op = request.op();
        let receiver = self.inner.shared.submit(request);
        Reply::new(receiver, op, path.clone(), self.strip(), read)
    }

    /// Sends a request that is not about a particular node, optionally in one session only.
    pub(crate) fn send_in<T>(
        &self,
        session: Option<SessionId>,
        request: Request,
        read: Read<T>,
    ) -> Reply<T> {
        let Some(session) = session else { return self.send(&ZnodePath::root(), request, read) };
        let op = request.op();
        let receiver = self.inner.shared.submit_in(session, request);
        Reply::new(receiver, op, ZnodePath::root(), self.strip(), read)
    }

    fn watch_once<T>(
        &self,
        path: &ZnodePath,
        request: Request,
        kind: WatchKind,
        read: Read<T>,
    ) -> (Reply<T>, Watcher) {
        let op = request.op();
        let (sender, event) = oneshot::channel();
        let shared = &self.inner.shared;
        let (id, receiver) = shared.submit_watching(request, kind, WatchSink::Once(sender));
        let reply = Reply::new(receiver, op, path.clone(), self.strip(), read);
        (reply, Watcher::new(Arc::clone(shared), id, self.strip(), event))
    }

    fn at(&self, path: &ZnodePath) -> PathRequest {
        PathRequest { path: self.full(path) }
    }

    fn read(&self, path: &ZnodePath) -> PathWatchRequest {
        PathWatchRequest { path: self.full(path), watch: false }
    }
}

pub(crate) fn create_request(
    path: String,
    data: Bytes,
    mode: CreateMode,
    acl: Vec<Acl>,
) -> CreateRequest {
    CreateRequest { path, data: data.into(), acl: acl.into(), flags: mode.flags() }
}

pub(crate) fn with_ttl(request: CreateRequest, ttl: Duration) -> CreateTtlRequest {
    request.with_ttl(i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX))
}

fn read_created(response: Response, chroot: Option<&ZnodePath>) -> Option<Created> {
    let Response::Created { path, stat } = response else { return None };
    let path = ZnodePath::new(&strip_chroot(path, chroot)).ok()?;
    Some(Created { path, stat })
}

fn read_stat(response: Response, _: Option<&ZnodePath>) -> Option<Stat> {
    let Response::Stat(stat) = response else { return None };
    Some(stat)
}

fn read_data(response: Response, _: Option<&ZnodePath>) -> Option<(Bytes, Stat)> {
    let Response::Data { data, stat } = response else { return None };
    Some((data.into_bytes(), stat))
}

fn read_children(response: Response, _: Option<&ZnodePath>) -> Option<Listing> {
    let Response::Children { names, stat } = response else { return None };
    Some((names, stat))
}
