//! The session behind a mutex, shared by the handles of a client and its driver.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use lockkeeper_session::{
    Binding, Cleanup, Config, Contact, Credentials, Disconnect, Event, HoldId, Instant, LeaseState,
    NameUse, Outcome, RequestError, Session, WatchEvent, WatchId, WatchKind,
};
use lockkeeper_wire::{ErrorCode, Outgoing, Request, Response, SessionId, ZnodePath, Zxid};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use uuid::Uuid;

use crate::arrival::Arrival;
use crate::binding;
use crate::connect_string::Host;
use crate::identity::SessionIdentity;
use crate::path_sink::PathsSender;
use crate::runtime::Runtime;
use crate::status::{HoldState, Status};
use crate::watch_item::{WatchItem, WatchLost};

/// The reply of a server.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) result: Result<Response, RequestError>,
    /// The last transaction that the server had applied when it replied.
    pub(crate) zxid: Zxid,
    pub(crate) arrival: Arrival,
}

type Completion = oneshot::Sender<Answer>;

/// Where the events of a watch are sent.
#[derive(Debug)]
pub(crate) enum WatchSink {
    Once(oneshot::Sender<WatchEvent>),
    Stream(mpsc::UnboundedSender<Result<WatchItem, WatchLost>>),
    Paths(PathsSender),
}

struct Core {
    session: Session<Completion>,
    sinks: BTreeMap<WatchId, WatchSink>,
    /// The live holds whose nodes were found missing.
    gone: BTreeSet<HoldId>,
    /// The number of live holds.
    holds: usize,
    /// Tasks that wait until no hold is live.
    until_released: Vec<oneshot::Sender<()>>,
    /// How many times servers were found behind what was seen before.
    rewinds: u64,
    /// How many times the status has changed.
    changes: u64,
    /// How many replies and events have been delivered.
    arrivals: u64,
}

/// The current or last connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link {
    /// The number of connections so far.
    pub(crate) number: u64,
    /// The host; `None` before the first connection.
    pub(crate) host: Option<Host>,
    pub(crate) address: Option<IpAddr>,
}

/// The state shared by the handles of a client and its driver.
pub(crate) struct Shared {
    runtime: Arc<dyn Runtime>,
    /// The tokio runtime of the driver.
    tokio_runtime: Handle,
    core: Mutex<Core>,
    /// Wakes the driver: there may be something to transmit, or an earlier timeout.
    wake: Notify,
    status: watch::Sender<Status>,
    link: Mutex<Link>,
}

// Only the status is shown: requests may contain secrets, and every handle contains this type.
lockkeeper_wire::impl_debug!(Shared, self => status: *self.status.borrow());

impl Shared {
    pub(crate) fn new(runtime: Arc<dyn Runtime>, config: Config) -> Self {
        let session = Session::new(config, runtime.now());
        Self::of(runtime, session)
    }

    /// Resumes a session that servers already know.
    pub(crate) fn resuming(
        runtime: Arc<dyn Runtime>,
        mut config: Config,
        identity: &SessionIdentity,
    ) -> Self {
        config.session_timeout = identity.timeout;
        let (id, password) = (identity.id, identity.password.clone());
        let session = Session::resuming(config, id, password, runtime.now());
        Self::of(runtime, session)
    }

    fn of(runtime: Arc<dyn Runtime>, session: Session<Completion>) -> Self {
        let core = Core {
            session,
            sinks: BTreeMap::new(),
            gone: BTreeSet::new(),
            holds: 0,
            until_released: Vec::new(),
            rewinds: 0,
            changes: 0,
            arrivals: 0,
        };

        let (contact, session) = (Contact::Disconnected, SessionId::NONE);
        let status = Status { contact, session, rewinds: 0, change: 0 };

        Self {
            runtime,
            tokio_runtime: Handle::current(),
            core: Mutex::new(core),
            wake: Notify::new(),
            status: watch::Sender::new(status),
            link: Mutex::default(),
        }
    }

    /// The process-local identity of the session.
    pub(crate) fn local_id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// The current time by the client's clock.
    pub(crate) fn now(&self) -> Instant {
        self.runtime.now()
    }

    /// The environment: time, connections and tasks.
    pub(crate) fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.runtime
    }

    /// The current or last connection.
    pub(crate) fn link(&self) -> Link {
        self.lock_link().clone()
    }

    pub(crate) fn link_number(&self) -> u64 {
        self.lock_link().number
    }

    /// A unique identifier.
    pub(crate) fn unique_id(&self) -> Uuid {
        self.runtime.unique_id()
    }

    /// The tokio runtime in which the client was connected.
    pub(crate) fn tokio_runtime(&self) -> &Handle {
        &self.tokio_runtime
    }

    pub(crate) fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    pub(crate) fn contact(&self) -> Contact {
        self.status.borrow().contact
    }

    // ----- used by handles --------------------------------------------------------------------

    pub(crate) fn submit(&self, request: Request) -> oneshot::Receiver<Answer> {
        let (sender, receiver) = oneshot::channel();
        self.act_bound(|core, now| core.session.submit(now, request, sender));
        receiver
    }

    /// Submits a request that is sent in this session or fails.
    pub(crate) fn submit_in(
        &self,
        session: SessionId,
        request: Request,
    ) -> oneshot::Receiver<Answer> {
        let (sender, receiver) = oneshot::channel();
        self.act_bound(|core, now| {
            if core.session.id() == session {
                return core.session.submit(now, request, sender);
            }
            let ended = RequestError::SessionExpired(Outcome::NotApplied);
            // The receiver still exists.
            let answer = Answer { result: Err(ended), zxid: Zxid(0), arrival: Arrival::START };
            let _ = sender.send(answer);
        });
        receiver
    }

    /// Submits a create that may replace a node, and a listing right behind it unless the replaced node is
    /// `old`.
    pub(crate) fn replace(
        &self,
        old: Option<&str>,
        create: impl Outgoing,
        listing: impl Outgoing,
    ) -> (oneshot::Receiver<Answer>, Option<oneshot::Receiver<Answer>>) {
        let (create_sender, created) = oneshot::channel();
        let (listing_sender, listed) = oneshot::channel();
        let is_listed = self.act_bound(|core, now| {
            let is_old = core.session.replace(now, old, create, create_sender);
            if !is_old {
                core.session.submit_borrowed(now, listing, listing_sender);
            }
            !is_old
        });
        (created, is_listed.then_some(listed))
    }

    pub(crate) fn submit_watching(
        &self,
        request: Request,
        kind: WatchKind,
        sink: WatchSink,
    ) -> (WatchId, oneshot::Receiver<Answer>) {
        let (sender, receiver) = oneshot::channel();
        let id = self.act_bound(|core, now| {
            let id = core.session.submit_watching(now, request, kind, sender);
            core.sinks.insert(id, sink);
            id
        });
        (id, receiver)
    }

    pub(crate) fn unwatch(&self, id: WatchId) {
        self.act(|core, now| {
            core.sinks.remove(&id);
            core.session.unwatch(now, id);
        });
    }

    pub(crate) fn hold(&self, path: ZnodePath, name: NameUse) -> HoldId {
        self.act(|core, now| core.hold(now, path, name))
    }

    pub(crate) fn hold_if_left(
        &self,
        path: ZnodePath,
        name: NameUse,
        left: Duration,
    ) -> (Option<HoldId>, HoldState) {
        self.act(|core, now| {
            // While the session is closing, a server may end it before this client learns of it.
            let is_left = !core.session.is_closing() && core.session.lease().remaining(now) >= left;
            let id = is_left.then(|| core.hold(now, path, name));
            (id, core.hold_state(id, now))
        })
    }

    pub(crate) fn time_to_proof(&self, left: Duration) -> Option<Duration> {
        let core = self.lock();
        // Read after locking, as below.
        let now = self.runtime.now();
        core.session.proves_from(left, now).map(|from| from.since(now))
    }

    pub(crate) fn hold_state(&self, id: HoldId) -> HoldState {
        let core = self.lock();
        // Read after locking, since the lease is updated under the lock: a deadline must not be compared with
        // a time before it was granted.
        let now = self.runtime.now();
        core.hold_state(Some(id), now)
    }

    pub(crate) fn ride_out(&self, id: HoldId, czxid: Zxid) -> bool {
        // The driver is not woken: nothing has to be sent earlier.
        let mut core = self.lock();
        let now = self.runtime.now();
        core.session.ride_out(now, id, czxid)
    }

    pub(crate) fn hand_over(&self, id: HoldId) -> Option<Binding> {
        self.lock().session.hand_over(id)
    }

    pub(crate) fn end_at_deadline(&self, id: HoldId) {
        self.lock().session.end_at_deadline(id);
    }

    pub(crate) fn give_up(&self, id: HoldId) {
        self.lock().session.unhold(id);
    }

    pub(crate) fn found_missing(&self, id: HoldId) {
        self.act(|core, _| core.session.found_missing(id));
    }

    pub(crate) fn is_gone(&self, id: HoldId) -> bool {
        self.lock().gone.contains(&id)
    }

    pub(crate) fn unhold(&self, id: HoldId) {
        // Neither the time nor the driver is needed: nothing has to be sent earlier.
        self.lock().unhold(id);
    }

    /// Ends a hold, and cleans up if the lease still belongs to this session. Returns the last state of the
    /// hold.
    pub(crate) fn unhold_and_clean_up(
        &self,
        id: HoldId,
        session: SessionId,
        target: Cleanup,
    ) -> (HoldState, Option<oneshot::Receiver<Answer>>) {
        self.act(|core, now| {
            let state = core.hold_state(Some(id), now);
            core.unhold(id);
            if state.lease.session != session {
                return (state, None);
            }
            let (sender, receiver) = oneshot::channel();
            core.session.clean_up(now, target, Some(sender));
            (state, Some(receiver))
        })
    }

    pub(crate) fn clean_up(&self, target: Cleanup) {
        self.act(|core, now| core.session.clean_up(now, target, None));
    }

    pub(crate) fn clean_up_confirmed(&self, target: Cleanup) -> oneshot::Receiver<Answer> {
        let (sender, receiver) = oneshot::channel();
        self.act(|core, now| core.session.clean_up(now, target, Some(sender)));
        receiver
    }

    pub(crate) fn authenticate(&self, credentials: Credentials) {
        self.act(|core, now| core.session.authenticate(now, credentials));
    }

    pub(crate) fn close(&self) {
        self.act(Core::close);
    }

    /// The number of live holds.
    pub(crate) fn holds(&self) -> usize {
        self.lock().holds
    }

    /// Closes the session if nothing is held, which is also so in a closed one. Otherwise returns a receiver
    /// that completes when that may have changed.
    pub(crate) fn close_if_released(&self) -> Result<(), oneshot::Receiver<()>> {
        self.act(|core, now| {
            if core.holds == 0 || core.session.is_closing() {
                core.close(now);
                return Ok(());
            }
            let (sender, receiver) = oneshot::channel();
            core.until_released.retain(|waiting| !waiting.is_closed());
            core.until_released.push(sender);
            Err(receiver)
        })
    }

    /// Reads the session without changing it.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&Session<Completion>) -> R) -> R {
        read(&self.lock().session)
    }

    pub(crate) fn lease(&self) -> LeaseState {
        self.read(Session::lease)
    }

    // ----- used by the driver -----------------------------------------------------------------

    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    pub(crate) fn linked(&self, host: &Host, address: Option<IpAddr>) {
        let mut link = self.lock_link();
        *link = Link { number: link.number + 1, host: Some(host.clone()), address };
    }

    pub(crate) fn connected(&self) {
        self.inform(|core, now| core.session.handle_connected(now));
    }

    pub(crate) fn disconnected(&self) {
        self.inform(|core, now| core.session.handle_disconnected(now));
    }

    /// The driver has ended.
    pub(crate) fn abandoned(&self) {
        self.inform(|core, now| core.session.abandon(now));
    }

    pub(crate) fn refused(&self) {
        self.inform(|core, now| core.session.handle_refused(now));
    }

    pub(crate) fn input(&self, input: &mut BytesMut) -> Result<(), Disconnect> {
        self.inform(|core, now| core.session.handle_input(now, input))
    }

    pub(crate) fn timeout(&self) -> Result<(), Disconnect> {
        self.inform(|core, now| core.session.handle_timeout(now))
    }

    /// Takes the bytes to transmit, and returns when the next timeout is due.
    pub(crate) fn poll(&self, output: &mut BytesMut) -> Option<Instant> {
        let session = &mut self.lock().session;
        while let Some(bytes) = session.poll_transmit() {
            if output.is_empty() {
                *output = bytes;
            } else {
                output.extend_from_slice(&bytes);
            }
        }
        session.poll_timeout()
    }

    // ----- private ----------------------------------------------------------------------------

    fn lock(&self) -> MutexGuard<'_, Core> {
        // Guards are dropped during unwinding and must still queue their deletes.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Like `act`, for requests: those made by work that runs under a hold are bound to it.
    fn act_bound<R>(&self, action: impl FnOnce(&mut Core, Instant) -> R) -> R {
        let bound = binding::holds_of(self.local_id());
        self.act(|core, now| {
            core.session.bind(bound);
            let result = action(core, now);
            core.session.bind(Vec::new());
            result
        })
    }

    fn act<R>(&self, action: impl FnOnce(&mut Core, Instant) -> R) -> R {
        let result = self.inform(action);
        self.wake.notify_one();
        result
    }

    fn inform<R>(&self, action: impl FnOnce(&mut Core, Instant) -> R) -> R {
        let mut core = self.lock();
        // Read under the lock, so that time never runs backwards for the session.
        let now = self.runtime.now();
        let result = action(&mut core, now);
        let status = core.dispatch().then(|| core.next_status());

        // Published after unlocking, because a caller that reads the status may wait for the session's lock.
        // Another task may already have published a newer status.
        drop(core);
        if let Some(new) = status {
            self.status.send_if_modified(|status| {
                let newer = new.change > status.change;
                if newer {
                    *status = new;
                }
                newer
            });
        }
        result
    }
}

impl Core {
    fn hold_state(&self, id: Option<HoldId>, now: Instant) -> HoldState {
        let session = &self.session;
        // Closing ends all holds at once: when the servers end the session is not known.
        let contact = if session.is_closing() { Contact::Closed } else { session.contact() };
        HoldState {
            contact,
            lease: session.lease(),
            timing: session.timing(),
            proof: id.and_then(|id| session.proof(id)),
            is_gone: id.is_some_and(|id| self.gone.contains(&id)),
            now,
        }
    }

    fn hold(&mut self, now: Instant, path: ZnodePath, name: NameUse) -> HoldId {
        self.holds += 1;
        self.session.hold(now, path, name)
    }

    fn close(&mut self, now: Instant) {
        self.session.close(now);
        // The remaining holds end with the session.
        self.until_released.clear();
    }

    fn unhold(&mut self, id: HoldId) {
        self.gone.remove(&id);
        self.session.unhold(id);
        self.holds -= 1;
        if self.holds == 0 {
            // Dropping the senders wakes the receivers.
            self.until_released.clear();
        }
    }

    fn next_status(&mut self) -> Status {
        self.changes += 1;
        let (contact, session) = (self.session.contact(), self.session.id());
        Status { contact, session, rewinds: self.rewinds, change: self.changes }
    }

    /// Delivers all events. Returns whether the status changed.
    fn dispatch(&mut self) -> bool {
        let mut changed = false;
        while let Some(event) = self.session.poll_event() {
            self.arrivals += 1;
            let arrival = Arrival(self.arrivals);
            match event {
                // A caller that stopped waiting has dropped the receiver.
                Event::Reply { token, result, zxid } => {
                    drop(token.send(Answer { result, zxid, arrival }));
                }
                Event::Watch { id, event } => self.deliver(id, event, arrival),
                Event::Rearmed { id } => self.rearmed(id, arrival),
                Event::NotRearmed { id, code } => self.refuse(id, code),
                other => {
                    log(&other);
                    #[cfg(feature = "metrics")]
                    figure(&other);
                    self.note(&other);
                    changed = true;
                }
            }
        }
        changed
    }

    fn deliver(&mut self, id: WatchId, event: WatchEvent, arrival: Arrival) {
        match self.sinks.get(&id) {
            Some(WatchSink::Stream(sender)) => drop(sender.send(Ok(WatchItem::Event(event)))),
            Some(WatchSink::Paths(sender)) => sender.changed(event.path, event.kind, arrival),
            Some(WatchSink::Once(_)) => {
                if let Some(WatchSink::Once(sender)) = self.sinks.remove(&id) {
                    drop(sender.send(event));
                }
            }
            None => {}
        }
    }

    fn rearmed(&mut self, id: WatchId, arrival: Arrival) {
        match self.sinks.get(&id) {
            Some(WatchSink::Stream(sender)) => drop(sender.send(Ok(WatchItem::Rearmed))),
            Some(WatchSink::Paths(sender)) => sender.rearmed(arrival),
            Some(WatchSink::Once(_)) | None => {}
        }
    }

    fn refuse(&mut self, id: WatchId, code: ErrorCode) {
        let lost = WatchLost::Refused(code);
        match self.sinks.remove(&id) {
            Some(WatchSink::Stream(sender)) => drop(sender.send(Err(lost))),
            Some(WatchSink::Paths(sender)) => sender.end(lost),
            Some(WatchSink::Once(_)) | None => {}
        }
    }

    fn note(&mut self, event: &Event<Completion>) {
        match event {
            Event::NodeGone { id } => {
                self.gone.insert(*id);
            }
            Event::Rewound { .. } => self.rewinds += 1,
            Event::Expired { .. } => self.sinks.clear(),
            Event::Closed => {
                self.sinks.clear();
                self.until_released.clear();
            }
            _ => {}
        }
    }
}

#[cfg(feature = "metrics")]
fn figure(event: &Event<Completion>) {
    match event {
        Event::Disconnected => crate::metrics::count(crate::metrics::DISCONNECTS, Vec::new()),
        Event::Expired { .. } => crate::metrics::count(crate::metrics::EXPIRED, Vec::new()),
        _ => {}
    }
}

fn log(event: &Event<Completion>) {
    match event {
        Event::Connected { session, is_new: true } => tracing::info!(%session, "new session"),
        Event::Connected { session, is_new: false } => tracing::info!(%session, "session resumed"),
        Event::Disconnected => tracing::warn!("disconnected"),
        Event::Unreachable => tracing::error!("no server reachable for a session timeout"),
        Event::Expired { session } => tracing::error!(%session, "session expired"),
        Event::Rewound { seen, now } => tracing::warn!(
            %seen, %now,
            "the servers are behind what this client has seen: they were wiped, restored or \
             replaced, and fencing tokens start again from lower values"
        ),
        Event::CheckRefused { path, code, .. } => tracing::error!(
            %path, %code,
            "this client lacks the permission to check the node of a lock that it holds, so the lock is lost; \
             check the node's access control list"
        ),
        Event::CleanupRefused { path, code } => {
            tracing::error!(path, %code, "a node could not be deleted");
        }
        _ => {}
    }
}
