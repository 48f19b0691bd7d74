//! [`Rehearsal`]: injected faults, for tests of programs that hold locks.
//!
//! A client in rehearsal uses a [`Runtime`] that wraps the real one: its clock can be advanced, and each
//! connection goes through a [`relay`], which can close it.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lockkeeper_session::Instant;
use lockkeeper_wire::{
    ConnectRequest, ConnectResponse, Decoder, Op, Record as _, ReplyHeader, Request, RequestHeader,
    split_frame, write_frame,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::sync::watch;
use uuid::Uuid;

use crate::client::{Client, WeakClient};
use crate::connect_string::Host;
use crate::identity::SessionIdentity;
use crate::runtime::{Boxed, Runtime, Stream, Transport};

/// Injects the faults of networks, servers and machines into a client, at a moment that a test chooses. For
/// tests of programs that hold locks: does the work stop when the lock is lost?
///
/// Requires the feature `rehearsal`, which is for `[dev-dependencies]`: without it, a program cannot contain
/// this code. It works with every server, such as the embedded engine. A rehearsal belongs to one client,
/// which receives it with [`ClientBuilder::rehearsal`](crate::ClientBuilder::rehearsal); the other clients of
/// a test play the other programs.
///
/// # Guarantees
///
/// A lock is lost in the same order as in production: its holder can know of the loss before another client
/// acquires the lock.
///
/// # Not guaranteed
///
/// - [`Clock`](crate::Clock) and the timers of tokio do not advance with the client's clock. Code under test
///   must ask the guard how much time remains, or call [`Client::now`].
/// - Connections are slower than without a rehearsal.
///
/// # Examples
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use lockkeeper_client::{Client, Rehearsal};
///
/// let rehearsal = Rehearsal::new();
/// let client = Client::builder().rehearsal(&rehearsal).connect("127.0.0.1:2181").await?;
///
/// rehearsal.cut_off();
/// // … what does the program do?
/// rehearsal.reconnect();
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Rehearsal {
    faults: Arc<Faults>,
}

impl Rehearsal {
    /// A rehearsal without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Closes the client's connection, and makes all servers unreachable until [`Rehearsal::reconnect`] is
    /// called. The locks are lost at their deadlines, within the session timeout; [`Rehearsal::pause`]
    /// shortens a test.
    pub fn cut_off(&self) {
        self.faults.network.send_modify(|network| {
            network.is_cut_off = true;
            network.cuts += 1;
        });
    }

    /// Makes the servers reachable again.
    pub fn reconnect(&self) {
        self.faults.network.send_modify(|network| network.is_cut_off = false);
    }

    /// Closes the connection when the server replies to the client's next write (a create, a delete, new data
    /// or a transaction with one of these). The write has been applied, but the client does not know. Reads,
    /// heartbeats and requests that are already in flight do not count.
    pub fn lose_next_reply(&self) {
        self.faults.loses_next.store(true, Ordering::Relaxed);
    }

    /// Advances the client's clock, as if the program had been paused or its machine suspended for this long.
    /// A lock whose lease ends within that time is lost when this method returns; a task that waits for the
    /// loss is woken within a second. The servers do not notice.
    pub fn pause(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.faults.ahead.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Expires the client's session, like servers that have not heard of it for a session timeout: the client
    /// is cut off, its clock advances by that time, the servers end the session with all its ephemeral nodes,
    /// and the servers become reachable again, unless the client was cut off before. Costs a connection and
    /// two round trips.
    ///
    /// # Errors
    /// If the client does not have a session, or its last server is unreachable.
    ///
    /// # Session loss
    /// The session expires; that is the purpose of this method.
    ///
    /// # Cancel safety
    /// Dropping the future may leave the client cut off.
    pub async fn expire_session(&self) -> io::Result<()> {
        let no_session =
            || io::Error::new(io::ErrorKind::NotConnected, "the client does not have a session");
        let (runtime, client) = self.faults.client().ok_or_else(no_session)?;
        let identity = client.session_identity().ok_or_else(no_session)?;
        let link = client.shared().link();
        let host = link.host.ok_or_else(no_session)?;

        let was_cut_off = self.faults.network.borrow().is_cut_off;
        self.cut_off();
        self.pause(identity.timeout);
        let ended = async {
            // A server may still be about to resume the session for an earlier connection.
            let server = async || runtime.connect(&host, link.address).await;
            while !end_session(server().await?.into_stream(), &identity).await? {}
            Ok(())
        };
        let ended = ended.await;
        if !was_cut_off {
            self.reconnect();
        }
        ended
    }

    /// Wraps the runtime of a client in this rehearsal.
    pub(crate) fn around(&self, runtime: Arc<dyn Runtime>) -> Arc<dyn Runtime> {
        Arc::new(Rehearsed { runtime, faults: Arc::clone(&self.faults) })
    }

    /// Sets the client whose session can be expired.
    pub(crate) fn is_of(&self, client: &Client, runtime: &Arc<dyn Runtime>) {
        let mut own = self.faults.client.lock().unwrap_or_else(PoisonError::into_inner);
        *own = Some((Arc::clone(runtime), client.downgrade()));
    }
}

/// The faults to inject.
#[derive(Debug, Default)]
struct Faults {
    network: watch::Sender<Network>,
    /// How far the client's clock is ahead, in nanoseconds.
    ahead: AtomicU64,
    /// Whether to close the connection at the reply to the next write.
    loses_next: AtomicBool,
    /// The client, and its unwrapped runtime.
    client: Mutex<Option<(Arc<dyn Runtime>, WeakClient)>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Network {
    is_cut_off: bool,
    /// Increases when all connections are to be closed.
    cuts: u64,
}

impl Faults {
    fn client(&self) -> Option<(Arc<dyn Runtime>, Client)> {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let (runtime, client) = client.as_ref()?;
        Some((Arc::clone(runtime), client.upgrade()?))
    }
}

/// The runtime of a client in rehearsal.
#[derive(Debug)]
struct Rehearsed {
    runtime: Arc<dyn Runtime>,
    faults: Arc<Faults>,
}

impl Runtime for Rehearsed {
    fn now(&self) -> Instant {
        self.runtime.now() + Duration::from_nanos(self.faults.ahead.load(Ordering::Relaxed))
    }

    fn connect<'a>(
        &'a self,
        host: &'a Host,
        address: Option<IpAddr>,
    ) -> Boxed<'a, io::Result<Transport>> {
        Box::pin(async move {
            // Subscribed before the connection is opened, so that a cut in between closes it.
            let network = self.faults.network.subscribe();
            if network.borrow().is_cut_off {
                return Err(io::Error::other("a rehearsal has cut the client off"));
            }
            let server = self.runtime.connect(host, address).await?;
            let (address, faults) = (server.address(), Arc::clone(&self.faults));
            let (near, far) = tokio::io::duplex(64 * 1024);
            self.runtime.spawn(Box::pin(relay(far, server.into_stream(), faults, network)));
            Ok(Transport::Other(Box::new(near), address))
        })
    }

    fn addresses<'a>(&'a self, host: &'a Host) -> Boxed<'a, Vec<IpAddr>> {
        self.runtime.addresses(host)
    }

    fn unique_id(&self) -> Uuid {
        self.runtime.unique_id()
    }

    fn spawn(&self, task: Boxed<'static, ()>) {
        self.runtime.spawn(task);
    }
}

/// One connection, until either side closes it, it is cut, or a reply is to be lost. Both sides then see it
/// closed.
async fn relay(
    client: DuplexStream,
    server: Box<dyn Stream>,
    faults: Arc<Faults>,
    mut network: watch::Receiver<Network>,
) {
    let (from_client, to_client) = tokio::io::split(client);
    let (from_server, to_server) = tokio::io::split(server);
    let lost = Mutex::default();
    let cuts = network.borrow().cuts;
    tokio::select! {
        biased;
        _ = network.wait_for(|network| network.cuts != cuts) => {}
        _ = requests(from_client, to_server, &faults, &lost) => {}
        _ = replies(from_server, to_client, &lost) => {}
    }
}

/// The xid of the request at whose reply the connection is closed.
type Lost = Mutex<Option<i32>>;

async fn requests(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    faults: &Faults,
    lost: &Lost,
) -> io::Result<()> {
    let mut input = BytesMut::new();
    let handshake = next_frame(&mut from, &mut input).await?;
    forward(&mut to, &handshake).await?;
    loop {
        let frame = next_frame(&mut from, &mut input).await?;
        let mut body = Decoder::new(frame.clone());
        let header = RequestHeader::decode(&mut body).map_err(io::Error::other)?;
        let loses = |_| faults.loses_next.swap(false, Ordering::Relaxed);
        if Request::decode(header.op, &mut body).ok().filter(is_write).is_some_and(loses) {
            *lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(header.xid);
        }
        forward(&mut to, &frame).await?;
    }
}

async fn replies(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    lost: &Lost,
) -> io::Result<()> {
    let mut input = BytesMut::new();
    let handshake = next_frame(&mut from, &mut input).await?;
    forward(&mut to, &handshake).await?;
    loop {
        let frame = next_frame(&mut from, &mut input).await?;
        let header = ReplyHeader::decode(&mut Decoder::new(frame.clone()));
        let xid = header.map_err(io::Error::other)?.xid;
        if *lost.lock().unwrap_or_else(PoisonError::into_inner) == Some(xid) {
            return Ok(());
        }
        forward(&mut to, &frame).await?;
    }
}

/// Whether the request changes data if it succeeds. A heartbeat only checks.
fn is_write(request: &Request) -> bool {
    match request {
        Request::Multi(steps) => steps.iter().any(|step| !matches!(step, Op::Check(_))),
        Request::Create(_)
        | Request::Create2(_)
        | Request::CreateContainer(_)
        | Request::CreateTtl(_)
        | Request::Delete(_)
        | Request::SetData(_)
        | Request::SetAcl(_) => true,
        _ => false,
    }
}

async fn next_frame(
    from: &mut (impl AsyncRead + Unpin),
    input: &mut BytesMut,
) -> io::Result<Bytes> {
    loop {
        if let Some(frame) = split_frame(input, usize::MAX).map_err(io::Error::other)? {
            return Ok(frame);
        }
        if from.read_buf(input).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

async fn forward(to: &mut (impl AsyncWrite + Unpin), frame: &Bytes) -> io::Result<()> {
    let mut output = BytesMut::new();
    write_frame(&mut output, |out| out.extend_from_slice(frame));
    to.write_all(&output).await?;
    to.flush().await
}

/// Resumes a session and closes it. Returns whether the server confirms the end.
async fn end_session(mut server: Box<dyn Stream>, identity: &SessionIdentity) -> io::Result<bool> {
    let (session_id, password) = (identity.id, identity.password.clone());
    let timeout = i32::try_from(identity.timeout.as_millis()).unwrap_or(i32::MAX);
    let request = ConnectRequest { session_id, password, ..ConnectRequest::new_session(timeout) };
    let mut output = BytesMut::new();
    write_frame(&mut output, |out| request.encode(out));
    write_frame(&mut output, |out| Request::CloseSession.encode(1, out));
    server.write_all(&output).await?;
    server.flush().await?;

    let mut input = BytesMut::new();
    // A server that does not accept the session closes the connection.
    let Ok(handshake) = next_frame(&mut server, &mut input).await else { return Ok(false) };
    // The reply to the close, and the end of the connection.
    while next_frame(&mut server, &mut input).await.is_ok() {}
    let response = ConnectResponse::decode(&mut Decoder::new(handshake));
    Ok(response.map_err(io::Error::other)?.timeout_ms == 0)
}
