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

/// What a create made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// The node, with the number of a sequential one.
    pub path: ZnodePath,
    /// Its stat.
    pub stat: Stat,
}

/// The names of a node's children, in no order, and the [`Stat`] of the node.
pub type Listing = (Vec<String>, Stat);

/// A session with a ZooKeeper service. Cheap to clone; all clones share the session.
///
/// Requests are queued for sending when a method is called, in that order, and answered in that
/// order: see [`Reply`]. Without a connection they wait for one, for a session timeout at most. So a program
/// that repeats what failed makes one attempt in a session timeout while the servers are away;
/// [`Client::reachable`] waits until they are back.
///
/// When the session has expired, a new one is started by itself: the client goes on, but nothing
/// that belonged to the old session (ephemeral nodes, watches, locks) does. When the last clone is
/// dropped, the session is closed in the background; use [`Client::close`] to wait for that.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
    /// What [`DefaultAcl::entries`] says, unless that is that everyone may do everything.
    acl: Option<Arc<[Acl]>>,
}

struct Inner {
    shared: Arc<Shared>,
    chroot: ZnodePath,
    service: Service,
}

/// Its session, and whether it is connected.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client(session {}, {:?})", self.session_id(), self.contact())
    }
}

/// A client whose session it does not keep from being closed.
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

/// The version in a request, and what stands for any.
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

    /// What is known of the service that the servers are.
    pub(crate) fn service(&self) -> &Service {
        &self.inner.service
    }

    // ----- the session ------------------------------------------------------------------------

    /// How the client stands with its servers, now and with every change.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.inner.shared.status()
    }

    /// Whether there is a connection: the present [`Status::contact`], for less than a receiver
    /// costs.
    pub fn contact(&self) -> Contact {
        self.inner.shared.contact()
    }

    /// Waits until a server has the session, and returns whether one has: `false` if the client is closed, which
    /// ends the wait too. For programs that have no use for errors while servers are away. Returns at once while
    /// there is a connection. Makes no request.
    ///
    /// # Session loss
    /// Goes on until the next session has a connection.
    ///
    /// # Cancel safety
    /// Safe: call it again.
    pub async fn reachable(&self) -> bool {
        let mut status = self.status();
        let is_decided = |contact| matches!(contact, Contact::Connected | Contact::Closed);
        let decided = status.wait_for(|status| is_decided(status.contact)).await;
        decided.is_ok_and(|status| status.contact == Contact::Connected)
    }

    /// Whether it is closed: by this program, which may not be done yet ([`Client::close`]); as the runtime in
    /// which it was connected has ended; or after a server refused its credentials. Every request fails from
    /// then on.
    pub fn is_closed(&self) -> bool {
        self.inner.shared.look(Session::is_closing)
    }

    /// The tokio runtime in which the client was connected, and which serves its connection. What goes on
    /// by itself as long as the client does belongs there: another runtime, such as that of a caller, may
    /// end earlier, or stand still.
    pub fn tokio_runtime(&self) -> &tokio::runtime::Handle {
        self.inner.shared.home()
    }

    /// Waits for a future on a thread of a program without async, and returns its output:
    /// `client.wait(lock.acquire())`. The future runs on this thread. Its timers and tasks are those of the
    /// runtime in which the client was connected, which has to run on another thread: that of
    /// `lockkeeper::blocking::Client` does.
    ///
    /// # Panics
    /// In async code, where `.await` is used instead. A thread that waited here could not run its other tasks,
    /// one of which may have what is waited for. And if the runtime in which the client was connected has ended.
    #[track_caller]
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        self.tokio_runtime().block_on(future)
    }

    /// The session, or [`SessionId::NONE`] while there is none.
    pub fn session_id(&self) -> SessionId {
        self.inner.shared.look(|session| session.id())
    }

    /// The last transaction that a server is known to have applied, by the answers of this session;
    /// 0 before the first one. Other servers of an ensemble may be ahead: after [`Client::sync`],
    /// it is no smaller than any transaction from before the call.
    pub fn last_zxid(&self) -> Zxid {
        self.inner.shared.look(|session| session.last_zxid())
    }

    /// The last transaction that any session of this client has seen, since servers last lost their
    /// data as [`Status::rewinds`] counts it.
    #[doc(hidden)]
    pub fn newest_zxid(&self) -> Zxid {
        self.inner.shared.look(|session| session.newest_zxid())
    }

    /// What another process needs to end the session; `None` while there is none.
    pub fn session_identity(&self) -> Option<SessionIdentity> {
        self.inner.shared.look(|session| {
            let (id, timeout) = (session.id(), session.timeout());
            let password = session.password().clone();
            (id != SessionId::NONE).then_some(SessionIdentity { id, password, timeout })
        })
    }

    /// Whether both are clones of one client.
    pub fn is_clone_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// The session timeout that was negotiated.
    pub fn session_timeout(&self) -> Duration {
        self.inner.shared.look(|session| session.timeout())
    }

    /// Until when no server can have expired the session; see
    /// [`LeaseMode`](crate::LeaseMode).
    pub fn lease(&self) -> LeaseState {
        self.inner.shared.lease()
    }

    /// How the session timeout that the servers granted is divided: the lease that a proof of life
    /// gives, how often it is renewed, and the longest outage that takes no lock away.
    pub fn timing(&self) -> Timing {
        self.inner.shared.look(Session::timing)
    }

    /// The largest message that it sends or takes, in bytes.
    pub fn max_frame(&self) -> usize {
        self.inner.shared.look(|session| session.config().max_frame)
    }

    /// The clock that leases are measured by.
    pub fn clock(&self) -> Clock {
        Clock
    }

    /// The time now, by that clock.
    pub fn now(&self) -> Instant {
        self.inner.shared.now()
    }

    /// An identifier that nobody else has, for names: at random, but in simulations.
    #[doc(hidden)]
    pub fn unique_id(&self) -> Uuid {
        self.inner.shared.unique_id()
    }

    /// Whether what is asked for now, on this thread, is bound to a hold of this client; see
    /// [`bound_to`](crate::bound_to).
    pub fn is_bound(&self) -> bool {
        !crate::binding::holds_of(self.inner.shared.address()).is_empty()
    }

    /// The path below which all paths of this client are.
    pub fn chroot(&self) -> &ZnodePath {
        &self.inner.chroot
    }

    /// Whether the servers keep their quotas and configuration there. What is `/zookeeper` below a chroot is not.
    #[doc(hidden)]
    pub fn is_servers_own(&self, path: &ZnodePath) -> bool {
        path.below(self.chroot()).is_reserved()
    }

    /// Whether a program can have what is below the path to itself: not below the root of the whole tree, nor in
    /// what the servers keep.
    #[doc(hidden)]
    pub fn is_own_base(&self, path: &ZnodePath) -> bool {
        !path.below(self.chroot()).is_root() && !self.is_servers_own(path)
    }

    /// The same client, which creates znodes with another access control list unless a request
    /// names one.
    #[must_use]
    pub fn with_default_acl(&self, acl: &DefaultAcl) -> Self {
        Self { inner: Arc::clone(&self.inner), acl: acl.to_shared() }
    }

    /// The access control list of the znodes that it creates, unless a request names another.
    pub fn default_acl(&self) -> Vec<Acl> {
        self.acl.as_deref().map_or_else(Acl::open, <[Acl]>::to_vec)
    }

    /// Whether everyone may do everything with the znodes that it creates.
    pub fn creates_open(&self) -> bool {
        self.acl.is_none()
    }

    /// Ends the session: waits until everything that must be deleted is, then closes it. Costs one
    /// round trip after these deletions. Without a server it takes a session timeout at most, after which
    /// the session expires by itself.
    ///
    /// Locks that are held are lost, and their guards say so; to wait until they have been given back,
    /// see [`Client::close_when_released`].
    ///
    /// # Session loss
    /// Ends the wait: there is nothing left to close.
    ///
    /// # Cancel safety
    /// The closing goes on in the background.
    pub async fn close(&self) {
        self.inner.shared.close();
        let mut status = self.status();
        // It is closed too when the driver's runtime has ended.
        let _ = status.wait_for(|status| status.contact == Contact::Closed).await;
    }

    /// Waits until nothing is held any more, and then ends the session as [`Client::close`] does.
    /// Nothing is held when the last guard of a lock and the last [`Hold`] have been released or
    /// dropped. A lock that lingers is held until its node is given up. A task that waits for a lock
    /// holds nothing: if it gets the lock in time, this method waits for it too, and otherwise its
    /// acquire fails because the client was closed. Call this when no task acquires locks any more. Makes
    /// no request while something is held; then it costs what [`Client::close`] does. With a client that is
    /// closed, or is closed meanwhile, it waits only for the end of that.
    ///
    /// # Errors
    /// If something is held when `timeout` has passed. The client is not closed then, and goes on.
    ///
    /// # Session loss
    /// The locks are lost, and count as held until their guards are dropped.
    ///
    /// # Cancel safety
    /// Safe as long as something is held; then as [`Client::close`].
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

    /// Shows credentials to this and every later server. On the wire they are in the clear.
    pub fn authenticate(&self, scheme: &str, secret: impl Into<Bytes>) {
        let credentials = Credentials { scheme: scheme.into(), secret: secret.into() };
        self.inner.shared.authenticate(credentials);
    }

    /// Has the session prove again and again that the node exists, once in each
    /// [renewal interval](Timing::renewal_interval); that moves [`Client::lease`] under
    /// [`LeaseMode::Quorum`](crate::LeaseMode::Quorum). Costs one committed write each time, for
    /// all holds of the session together, and one read beside it for each node whose name is
    /// [used again](NameUse::Reused).
    pub fn hold(&self, path: &ZnodePath, name: NameUse) -> Hold {
        let id = self.inner.shared.hold(path.below(&self.inner.chroot), name);
        Hold::new(Arc::clone(&self.inner.shared), id)
    }

    /// Holds a node as [`Client::hold`] does, if at least `left` is left of the session's lease.
    /// Returns the state of both at the same moment.
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

    /// After what time a committed write shows that the session lives for `left` more: zero, unless what was
    /// heard of the servers has still to reach their leader. `None` if nothing that was heard is recent
    /// enough, as after this program stood still: a request has to be answered first.
    pub fn time_to_proof(&self, left: Duration) -> Option<Duration> {
        self.inner.shared.time_to_proof(left)
    }

    pub(crate) fn found_missing(&self, hold: HoldId) {
        self.inner.shared.found_missing(hold);
    }

    /// Deletes something before the session ends, over as many connections as it takes. Needs no
    /// runtime, so that it can be called from `Drop`.
    pub fn clean_up(&self, target: Cleanup) {
        self.inner.shared.clean_up(self.full_target(target));
    }

    /// [`Client::clean_up`], with a reply when the deletion is certain. Dropping the reply does not
    /// stop it; nor does its error if no server could be reached for a session timeout, after which
    /// nobody is told any more.
    pub fn clean_up_confirmed(&self, target: Cleanup) -> Reply<()> {
        let path = target.path().clone();
        let receiver = self.inner.shared.clean_up_confirmed(self.full_target(target));
        self.cleaned_up(path, receiver)
    }

    /// Ends a hold of this client, and deletes something as [`Client::clean_up_confirmed`] does if
    /// the lease is still that of `session`. If not, nothing is sent and there is no answer: the
    /// ephemeral nodes of that session go with it, and anything else stays. Returns the state of the
    /// hold at that moment.
    ///
    /// # Panics
    /// In debug builds, if it is another client's hold.
    pub fn clean_up_held(
        &self,
        hold: Hold,
        session: SessionId,
        target: Cleanup,
    ) -> (HoldState, Option<Reply<()>>) {
        debug_assert!(hold.is_of(&self.inner.shared), "the hold is another client's");
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

    /// Creates a node with an access control list. The modes with a time to live need
    /// [`Client::create_ttl`] and are answered with an error here.
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

    /// Creates a node as [`Client::create`] does, in the place of one beside it, and lists their
    /// parent right behind it, as [`Client::children`] does.
    ///
    /// A node is replaced if its deletion was the last request of this client, with a
    /// [`Cleanup::Node`], and has not been transmitted. Deletion and creation are then one
    /// transaction. The times in the [`Stat`] are 0, because Apache ZooKeeper does not send them. If
    /// the deletion is refused, the create fails with a retryable error. If there is no such
    /// deletion, the node is created all the same.
    ///
    /// If the node that is replaced is `old`, there is no listing: its holder may know the queue
    /// already, and has to list it if not.
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

    /// Creates a persistent node that the servers delete when it has been without children and
    /// untouched for `ttl` (1 ms to about 34 years; in milliseconds). Servers refuse it unless TTL
    /// nodes are enabled.
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

    /// Creates a node and whatever is missing above it; does nothing if it exists. Those above are
    /// created in the same mode, with no data. Costs one round trip, and two more for each node that is
    /// missing above it.
    ///
    /// # Errors
    /// As [`Reply`], except that an existing node is none.
    ///
    /// # Session loss
    /// As [`Reply`]. What was created stays, unless the mode is an ephemeral one.
    ///
    /// # Cancel safety
    /// What was created stays.
    pub async fn ensure(&self, path: &ZnodePath, mode: CreateMode) -> Result<(), Error> {
        let mut missing = vec![path.clone()];
        while let Some(path) = missing.last() {
            match self.create(path, Bytes::new(), mode).await {
                Err(error) if error.code() == Some(ErrorCode::NoNode) => {
                    match path.parent() {
                        Some(parent) => missing.push(parent),
                        // Only what is above the chroot can be missing above the root.
                        None => self.make_above_chroot(error).await?,
                    }
                }
                Err(error) if error.code() != Some(ErrorCode::NodeExists) => return Err(error),
                _ => drop(missing.pop()),
            }
        }
        Ok(())
    }

    /// Creates the parents of the chroot, which only requests with whole paths can reach.
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

    /// Deletes a node that has no children. `version`: only if its data version is this one.
    pub fn delete(&self, path: &ZnodePath, version: Option<i32>) -> Reply<()> {
        let request = DeleteRequest { path: self.full(path), version: or_any(version) };
        self.send(path, Request::Delete(request), |_, _| Some(()))
    }

    /// Changes a node's data. `version`: only if its data version is this one.
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

    /// Changes a node's access control list. `version`: only if the list's version is this one.
    pub fn set_acl(&self, path: &ZnodePath, acl: Vec<Acl>, version: Option<i32>) -> Reply<Stat> {
        let (acl, version) = (acl.into(), or_any(version));
        let request = SetAclRequest { path: self.full(path), acl, version };
        self.send(path, Request::SetAcl(request), read_stat)
    }

    // ----- reads ------------------------------------------------------------------------------

    /// A node's stat; `None` if it does not exist. Costs one round trip.
    ///
    /// # Errors
    /// As [`Reply`], except that a missing node is none.
    ///
    /// # Session loss
    /// As [`Reply`].
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub async fn exists(&self, path: &ZnodePath) -> Result<Option<Stat>, Error> {
        present(self.stat(path).await)
    }

    /// A node's stat. Unlike [`Client::exists`], it is sent before it is awaited, in front of what is sent
    /// after it.
    pub fn stat(&self, path: &ZnodePath) -> Reply<Stat> {
        self.send(path, Request::Exists(self.read(path)), read_stat)
    }

    /// [`Client::exists`], with a watch that fires when the node is created, changed or deleted. Costs one
    /// round trip.
    ///
    /// A watch on a node that does not exist stays on the server until the node is created or the
    /// watcher dropped.
    ///
    /// # Errors
    /// As [`Client::exists`]; then there is no watch.
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

    /// The same, with a watch that fires when the node is changed or deleted. If the node does
    /// not exist there is no watch.
    pub fn data_watched(&self, path: &ZnodePath) -> WatchedReply<(Bytes, Stat)> {
        let request = Request::GetData(self.read(path));
        let (reply, watcher) = self.watch_once(path, request, WatchKind::Data, read_data);
        WatchedReply::new(reply, watcher)
    }

    /// The names of a node's children, in no order, and the node's stat.
    pub fn children(&self, path: &ZnodePath) -> Reply<Listing> {
        self.send(path, Request::GetChildren2(self.read(path)), read_children)
    }

    /// The same, with a watch that fires when a child comes or goes, or the node is deleted. If
    /// the node does not exist there is no watch.
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

    /// Lets the server that this client talks to catch up with its leader, so that reads made
    /// after it see everything that was written before it.
    pub fn sync(&self, path: &ZnodePath) -> Reply<()> {
        self.send(path, Request::Sync(self.at(path)), |_, _| Some(()))
    }

    /// Does several reads at once; each has a result of its own. Needs servers 3.6 or newer.
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

    /// This session's ephemeral nodes below a path. Needs servers 3.6 or newer.
    pub fn ephemerals(&self, path: &ZnodePath) -> Reply<Vec<String>> {
        self.send(path, Request::GetEphemerals(self.at(path)), |response, chroot| {
            let Response::Names(paths) = response else { return None };
            Some(paths.into_iter().map(|path| strip_chroot(path, chroot)).collect())
        })
    }

    /// How many nodes are below a node. Needs servers 3.6 or newer.
    pub fn descendants(&self, path: &ZnodePath) -> Reply<u32> {
        let request = Request::GetAllChildrenNumber(self.at(path));
        self.send(path, request, |response, _| match response {
            Response::Count(count) => u32::try_from(count).ok(),
            _ => None,
        })
    }

    /// As whom the session has authenticated. Needs servers 3.7 or newer.
    pub fn who_am_i(&self) -> Reply<Vec<ClientInfo>> {
        self.send(&ZnodePath::root(), Request::WhoAmI, |response, _| match response {
            Response::Identities(identities) => Some(identities),
            _ => None,
        })
    }

    /// Watches a node, or everything from it downwards, until the stream is dropped. Needs servers
    /// 3.6 or newer. Costs one round trip.
    ///
    /// # Errors
    /// As [`Reply`]; then there is no watch.
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

    /// Watches as [`Client::watch`] does, and keeps the paths that something happened to instead of
    /// the events, so that memory is bounded. There is a watch if the answer is no error.
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

    // ----- inside -----------------------------------------------------------------------------

    /// A path as the servers know it.
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

    /// What is to be taken off the paths in answers, if there is anything.
    pub(crate) fn strip(&self) -> Option<ZnodePath> {
        (!self.inner.chroot.is_root()).then(|| self.inner.chroot.clone())
    }

    pub(crate) fn send<T>(&self, path: &ZnodePath, request: Request, read: Read<T>) -> Reply<T> {
        let op = request.op();
        let receiver = self.inner.shared.submit(request);
        Reply::new(receiver, op, path.clone(), self.strip(), read)
    }

    /// Sends a request about no node in particular, in this session only if there is one.
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
