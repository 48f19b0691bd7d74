//! The network: ordered within a connection, not between connections; late, cut, or silent.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use lockkeeper_tree::ConnectionId;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep, sleep_until};

use crate::world::true_time;

/// What reaches a server.
#[derive(Debug)]
pub(crate) enum Arrival {
    Connected(ConnectionId, mpsc::UnboundedSender<Bytes>),
    Bytes(ConnectionId, Bytes),
    Closed(ConnectionId),
}

/// Where the server listens; `None` while it is down.
#[derive(Debug, Default)]
pub(crate) struct Listener {
    inbox: Mutex<Option<mpsc::UnboundedSender<Arrival>>>,
    connections: Mutex<u64>,
    /// Of everything that has arrived on either side.
    traffic: Mutex<DefaultHasher>,
}

/// Where a message arrives.
#[derive(Clone, Copy, Debug, Hash)]
enum Side {
    Server,
    Client,
}

impl Listener {
    pub(crate) fn open(&self) -> mpsc::UnboundedReceiver<Arrival> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *self.inbox.lock().expect("nobody panics with it") = Some(sender);
        receiver
    }

    pub(crate) fn close(&self) {
        *self.inbox.lock().expect("nobody panics with it") = None;
    }

    /// A sum over every byte that has arrived, and when.
    pub(crate) fn traffic(&self) -> u64 {
        self.traffic.lock().expect("nobody panics with it").finish()
    }

    fn count(&self, at: Duration, to: (ConnectionId, Side), bytes: &[u8]) {
        let mut traffic = self.traffic.lock().expect("nobody panics with it");
        (at, to, bytes).hash(&mut *traffic);
    }

    fn accept(&self) -> Option<(ConnectionId, mpsc::UnboundedSender<Arrival>)> {
        let inbox = self.inbox.lock().expect("nobody panics with it").clone()?;
        let mut connections = self.connections.lock().expect("nobody panics with it");
        *connections += 1;
        Some((ConnectionId(*connections), inbox))
    }
}

/// The way between one client and the server.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) start: tokio::time::Instant,
    listener: Arc<Listener>,
    random: Mutex<fastrand::Rng>,
    /// The longest usual delay of a message.
    delay: Duration,
    /// Whether messages pass; while not, they wait, as with a transport that sends again.
    to_server: Valve,
    to_client: Valve,
    /// Told when all connections break.
    breaks: Arc<Notify>,
}

/// Open or closed. It wakes those who wait in the order in which they came, which a watch channel
/// does not: its order is drawn from a source that no seed controls.
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
        delay: Duration,
    ) -> Self {
        let (to_server, to_client) = (Valve::open(), Valve::open());
        let (random, breaks) = (Mutex::new(random), Arc::default());
        Self { start, listener, random, delay, to_server, to_client, breaks }
    }

    /// Lets messages pass or wait, in each direction.
    pub(crate) fn set(&self, to_server: bool, to_client: bool) {
        self.to_server.set(to_server);
        self.to_client.set(to_client);
    }

    /// Breaks all connections; what is on its way is lost.
    pub(crate) fn break_all(&self) {
        self.breaks.notify_waiters();
    }

    fn count(&self, to: (ConnectionId, Side), bytes: &[u8]) {
        self.listener.count(true_time(self.start), to, bytes);
    }

    fn lag(&self) -> Duration {
        let mut random = self.random.lock().expect("nobody panics with it");
        // Most messages are fast, a few are very late.
        let share = match random.u8(0..50) {
            0 => 20.0 * random.f64(),
            _ => random.f64(),
        };
        self.delay.mul_f64(share)
    }

    pub(crate) async fn connect(self: &Arc<Self>) -> io::Result<Pipe> {
        sleep(self.lag()).await;
        self.to_server.passes().await;
        sleep(self.lag()).await;
        self.to_client.passes().await;
        let Some((id, inbox)) = self.listener.accept() else {
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        // From now on, not from when the tasks first run.
        let up_breaks = Arc::clone(&self.breaks).notified_owned();
        let down_breaks = Arc::clone(&self.breaks).notified_owned();
        let (to_server, from_client) = mpsc::unbounded_channel();
        let (to_client, from_server) = mpsc::unbounded_channel();
        let (deliver, delivered) = mpsc::unbounded_channel();
        let _ = inbox.send(Arrival::Connected(id, to_client));
        let (upwards, downwards) = (Arc::clone(self), Arc::clone(self));
        tokio::spawn(async move {
            let arrive = |bytes: Bytes| {
                upwards.count((id, Side::Server), &bytes);
                inbox.send(Arrival::Bytes(id, bytes)).is_ok()
            };
            let open = &upwards.to_server;
            let broken = upwards.carry(from_client, open, up_breaks, arrive).await;
            if broken {
                // The other side of a broken connection may hear of it late.
                let late = upwards.lag() * 20;
                sleep(late).await;
            }
            let _ = inbox.send(Arrival::Closed(id));
        });
        tokio::spawn(async move {
            let arrive = |bytes: Bytes| {
                downwards.count((id, Side::Client), &bytes);
                deliver.send(bytes).is_ok()
            };
            let open = &downwards.to_client;
            downwards.carry(from_server, open, down_breaks, arrive).await;
        });
        Ok(Pipe { incoming: delivered, outgoing: Some(to_server), rest: Bytes::new() })
    }

    /// Carries messages until one end is gone (`false`) or the connection breaks (`true`).
    async fn carry(
        &self,
        mut messages: mpsc::UnboundedReceiver<Bytes>,
        open: &Valve,
        breaks: OwnedNotified,
        mut arrive: impl FnMut(Bytes) -> bool,
    ) -> bool {
        let forward = async {
            let mut earliest = tokio::time::Instant::now();
            while let Some(first) = messages.recv().await {
                earliest = earliest.max(tokio::time::Instant::now() + self.lag());
                sleep_until(earliest).await;
                open.passes().await;
                if !arrive(first) {
                    return;
                }
            }
            sleep_until(earliest.max(tokio::time::Instant::now() + self.lag())).await;
            open.passes().await;
        };
        tokio::select! {
            biased;
            () = breaks => true,
            () = forward => false,
        }
    }
}

/// A client's end of a connection.
#[derive(Debug)]
pub(crate) struct Pipe {
    incoming: mpsc::UnboundedReceiver<Bytes>,
    outgoing: Option<mpsc::UnboundedSender<Bytes>>,
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
        let sent = self.outgoing.as_ref().map(|out| out.send(Bytes::copy_from_slice(bytes)));
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
