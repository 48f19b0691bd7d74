//! The network: ordered within a connection, not between connections; late, cut, or silent.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use lockkeeper_testkit::sharing::queues::QUEUE;
use lockkeeper_tree::ConnectionId;
use lockkeeper_wire::{Decoder, Record as _, ReplyHeader, WatchEvent, xid};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep, sleep_until};

use crate::machine::true_time;

/// The arrivals at the servers: the server, and the message.
pub(crate) type Arrivals = mpsc::UnboundedSender<(usize, Arrival)>;

/// What reaches a server.
#[derive(Debug)]
pub(crate) enum Arrival {
    Connected(ConnectionId, mpsc::UnboundedSender<Message>),
    Bytes(ConnectionId, Bytes),
    Closed(ConnectionId),
}

/// What one side has handed over to the network.
#[derive(Debug)]
pub(crate) struct Message {
    sent: tokio::time::Instant,
    bytes: Bytes,
}

impl Message {
    pub(crate) fn now(bytes: Bytes) -> Self {
        Self { sent: tokio::time::Instant::now(), bytes }
    }
}

/// Where the servers listen; `None` while they are down.
#[derive(Debug, Default)]
pub(crate) struct Listener {
    inbox: Mutex<Option<Arrivals>>,
    connections: Mutex<u64>,
    /// Of everything that has arrived on either side.
    traffic: Mutex<DefaultHasher>,
    /// How many events of the queue's nodes have reached clients.
    queue_events: AtomicUsize,
}

/// Where a message arrives.
#[derive(Clone, Copy, Debug, Hash)]
enum Side {
    Server,
    Client,
}

impl Listener {
    pub(crate) fn open(&self) -> mpsc::UnboundedReceiver<(usize, Arrival)> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *self.inbox.lock().expect("the lock is not poisoned") = Some(sender);
        receiver
    }

    pub(crate) fn close(&self) {
        *self.inbox.lock().expect("the lock is not poisoned") = None;
    }

    /// A sum over every byte that has arrived, and when.
    pub(crate) fn traffic(&self) -> u64 {
        self.traffic.lock().expect("the lock is not poisoned").finish()
    }

    /// How many events of the queue's nodes have reached clients.
    pub(crate) fn queue_events(&self) -> usize {
        self.queue_events.load(Ordering::Relaxed)
    }

    fn count_events(&self, frames: Bytes) {
        let of_queue = events(frames).filter(|event| event.path.starts_with(QUEUE));
        self.queue_events.fetch_add(of_queue.count(), Ordering::Relaxed);
    }

    fn count(&self, at: Duration, to: (ConnectionId, Side), bytes: &[u8]) {
        let mut traffic = self.traffic.lock().expect("the lock is not poisoned");
        (at, to, bytes).hash(&mut *traffic);
    }

    fn accept(&self) -> Option<(ConnectionId, Arrivals)> {
        let inbox = self.inbox.lock().expect("the lock is not poisoned").clone()?;
        let mut connections = self.connections.lock().expect("the lock is not poisoned");
        *connections += 1;
        Some((ConnectionId(*connections), inbox))
    }
}

/// The way between one client and the servers.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) start: tokio::time::Instant,
    listener: Arc<Listener>,
    random: Mutex<fastrand::Rng>,
    lag: Mutex<Lag>,
    /// Whether new connections are refused.
    refuses: AtomicBool,
    /// Whether messages pass; while not, they wait, as with a transport that sends again.
    to_server: Valve,
    to_client: Valve,
    /// Told when all connections break.
    breaks: Arc<Notify>,
    /// Notified when all connections are silently dropped.
    forgets: Arc<Notify>,
}

/// How late messages are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lag {
    /// What most messages take at most.
    pub(crate) usual: Duration,
    /// What every message takes at most.
    pub(crate) longest: Duration,
}

impl Lag {
    fn any(self, random: &mut fastrand::Rng) -> Duration {
        // Most messages are fast, a few are very late.
        let share = match random.u8(0..50) {
            0 => 20.0 * random.f64(),
            _ => random.f64(),
        };
        self.usual.mul_f64(share).min(self.longest)
    }
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// One side has closed it.
    Closed,
    /// What was on its way is lost, and both sides hear of it.
    Broken,
    /// What is sent from now on is lost too, and neither side hears of it.
    Forgotten,
}

/// What may end a connection.
struct Ends {
    breaks: OwnedNotified,
    forgets: OwnedNotified,
}

/// Open or closed. It wakes its waiters in their order of arrival. A watch channel does not:
/// its order depends on a source of randomness that the seed does not control.
#[derive(Debug)]
struct Valve {
    open: AtomicBool,
    opened: Notify,
}

impl Valve {
    fn open() -> Self {
        Self { open: AtomicBool::new(true), opened: Notify::new() }
    }

    fn set(&self, open: bool) {
        self.open.store(open, Ordering::SeqCst);
        if open {
            self.opened.notify_waiters();
        }
    }

    async fn passes(&self) {
        // One thread runs everything, so nothing happens between the look and the wait.
        while !self.open.load(Ordering::SeqCst) {
            self.opened.notified().await;
        }
    }
}

impl Route {
    pub(crate) fn new(
        start: tokio::time::Instant,
        listener: Arc<Listener>,
        random: fastrand::Rng,
        lag: Lag,
    ) -> Self {
        Self {
            start,
            listener,
            random: Mutex::new(random),
            lag: Mutex::new(lag),
            refuses: AtomicBool::new(false),
            to_server: Valve::open(),
            to_client: Valve::open(),
            breaks: Arc::default(),
            forgets: Arc::default(),
        }
    }

    /// Lets messages pass or wait, in each direction.
    pub(crate) fn set(&self, to_server: bool, to_client: bool) {
        self.to_server.set(to_server);
        self.to_client.set(to_client);
    }

    /// Breaks all connections. Messages in flight are lost.
    pub(crate) fn break_all(&self) {
        self.breaks.notify_waiters();
    }

    /// Loses whatever is sent over all connections there are, without a word. New ones work.
    pub(crate) fn forget_all(&self) {
        self.forgets.notify_waiters();
    }

    /// Breaks all connections, and refuses new ones until they are accepted again.
    pub(crate) fn refuse(&self) {
        self.refuses.store(true, Ordering::SeqCst);
        self.break_all();
    }

    /// Accepts new connections.
    pub(crate) fn accept(&self) {
        self.refuses.store(false, Ordering::SeqCst);
    }

    pub(crate) fn set_lag(&self, lag: Lag) {
        *self.lag.lock().expect("the lock is not poisoned") = lag;
    }

    fn ends(&self) -> Ends {
        let (breaks, forgets) = (Arc::clone(&self.breaks), Arc::clone(&self.forgets));
        Ends { breaks: breaks.notified_owned(), forgets: forgets.notified_owned() }
    }

    fn count(&self, to: (ConnectionId, Side), bytes: &[u8]) {
        self.listener.count(true_time(self.start), to, bytes);
    }

    fn lag(&self) -> Duration {
        let lag = *self.lag.lock().expect("the lock is not poisoned");
        lag.any(&mut self.random.lock().expect("the lock is not poisoned"))
    }

    pub(crate) async fn connect(self: &Arc<Self>, server: usize) -> io::Result<Pipe> {
        sleep(self.lag()).await;
        self.to_server.passes().await;
        sleep(self.lag()).await;
        self.to_client.passes().await;
        let accepted = (!self.refuses.load(Ordering::SeqCst)).then(|| self.listener.accept());
        let Some((id, inbox)) = accepted.flatten() else {
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        // From now on, not from when the tasks first run.
        let (up_ends, down_ends) = (self.ends(), self.ends());
        let (to_server, from_client) = mpsc::unbounded_channel();
        let (to_client, from_server) = mpsc::unbounded_channel();
        let (deliver, delivered) = mpsc::unbounded_channel();
        let _ = inbox.send((server, Arrival::Connected(id, to_client)));
        let (upwards, downwards) = (Arc::clone(self), Arc::clone(self));
        tokio::spawn(async move {
            let arrive = |bytes: Bytes| {
                upwards.count((id, Side::Server), &bytes);
                inbox.send((server, Arrival::Bytes(id, bytes))).is_ok()
            };
            let open = &upwards.to_server;
            let end = upwards.carry(from_client, open, up_ends, arrive).await;
            if end == End::Broken {
                // The other side of a broken connection may hear of it late.
                let late = upwards.lag() * 20;
                sleep(late).await;
            }
            let _ = inbox.send((server, Arrival::Closed(id)));
        });
        tokio::spawn(async move {
            let arrive = |bytes: Bytes| {
                downwards.count((id, Side::Client), &bytes);
                downwards.listener.count_events(bytes.clone());
                deliver.send(bytes).is_ok()
            };
            let open = &downwards.to_client;
            downwards.carry(from_server, open, down_ends, arrive).await;
        });
        Ok(Pipe { incoming: delivered, outgoing: Some(to_server), rest: Bytes::new() })
    }

    /// Carries messages for as long as the connection works, and drops them for as long as it only
    /// seems to.
    async fn carry(
        &self,
        mut messages: mpsc::UnboundedReceiver<Message>,
        open: &Valve,
        ends: Ends,
        mut arrive: impl FnMut(Bytes) -> bool,
    ) -> End {
        let forward = async {
            let mut earliest = tokio::time::Instant::now();
            while let Some(first) = messages.recv().await {
                // From when it was sent: one that waits behind another is not later for it.
                earliest = earliest.max(first.sent + self.lag());
                sleep_until(earliest).await;
                open.passes().await;
                if !arrive(first.bytes) {
                    return;
                }
            }
            sleep_until(earliest.max(tokio::time::Instant::now() + self.lag())).await;
            open.passes().await;
        };
        let end = tokio::select! {
            biased;
            () = ends.breaks => End::Broken,
            () = ends.forgets => End::Forgotten,
            () = forward => End::Closed,
        };

        if end == End::Forgotten {
            while messages.recv().await.is_some() {}
        }
        end
    }
}

/// The events among these frames.
fn events(mut frames: Bytes) -> impl Iterator<Item = WatchEvent> {
    let frames = std::iter::from_fn(move || {
        let length = usize::try_from(frames.try_get_u32().ok()?).ok()?;
        Some(frames.split_to(length.min(frames.len())))
    });
    frames.filter_map(|frame| {
        let mut frame = Decoder::new(frame);
        let header = ReplyHeader::decode(&mut frame).ok()?;
        (header.xid == xid::NOTIFICATION).then(|| WatchEvent::decode(&mut frame).ok())?
    })
}

/// A client's end of a connection.
#[derive(Debug)]
pub(crate) struct Pipe {
    incoming: mpsc::UnboundedReceiver<Bytes>,
    outgoing: Option<mpsc::UnboundedSender<Message>>,
    rest: Bytes,
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.rest.is_empty() {
            match ready!(self.incoming.poll_recv(context)) {
                Some(bytes) => self.rest = bytes,
                None => return Poll::Ready(Ok(())),
            }
        }
        let take = self.rest.len().min(buffer.remaining());
        buffer.put_slice(&self.rest[..take]);
        self.rest.advance(take);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let sent =
            self.outgoing.as_ref().map(|out| out.send(Message::now(Bytes::copy_from_slice(bytes))));
        match sent {
            Some(Ok(())) => Poll::Ready(Ok(bytes.len())),
            _ => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outgoing = None;
        Poll::Ready(Ok(()))
    }
}
