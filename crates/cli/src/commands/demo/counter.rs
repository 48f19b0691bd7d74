//! A proxy that counts messages: clients connect to it, and it connects to the servers.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkeeper::{ConnectError, ConnectString, ZnodePath};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;

use crate::shared::exit::{Exit, Failure};

/// Numbers of messages that are not requests: notifications from a server, and pings.
const NOTIFICATION: i32 = -1;
const PING: i32 = -2;

/// The reads that may set a watch: exists, getData, getChildren and getChildren2.
const READS: [i32; 4] = [3, 4, 8, 12];
/// create, delete, setData, multi, create2, createContainer, createTTL.
const WRITES: [i32; 7] = [1, 2, 5, 14, 15, 19, 21];
const SYNC: i32 = 9;

/// The maximum message length, in bytes. Real messages are shorter.
const MAX_BYTES: u32 = 64 * 1024 * 1024;

/// A listener that forwards all messages and counts them.
#[derive(Debug)]
pub(super) struct Counter {
    port: u16,
    chroot: ZnodePath,
    tally: Tally,
    link: watch::Sender<Link>,
}

/// The state of connections. A connection that was started in an earlier state is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Link {
    drops: u64,
    is_cut: bool,
}

/// The counts so far; receivers wait for changes.
type Tally = Arc<watch::Sender<Counts>>;

/// What was forwarded up to one point in time. Pings are not counted, because they depend on time alone, and neither
/// are syncs, which the demo uses for waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) notifications: u64,
    pub(super) requests: u64,
    pub(super) bytes: u64,
    /// Watches that a server has set.
    pub(super) watches: u64,
    /// Write requests.
    pub(super) writes: u64,
    /// Client connections.
    pub(super) connections: u64,
}

impl Counter {
    /// Listens on the loopback interface.
    pub(super) async fn start(servers: &str) -> Result<Self, Failure> {
        let servers: ConnectString = servers.parse().map_err(ConnectError::from)?;
        let hosts: Vec<String> = servers.hosts.iter().map(ToString::to_string).collect();
        let refused = |error: io::Error| {
            Failure::new(Exit::System, format!("cannot listen on the loopback interface: {error}"))
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(refused)?;
        let port = listener.local_addr().map_err(refused)?.port();
        let (tally, link) = (Tally::default(), watch::Sender::default());
        tokio::spawn(accept(listener, hosts, tally.clone(), link.subscribe()));
        Ok(Self { port, chroot: servers.chroot, tally, link })
    }

    /// The connection string for clients that are counted.
    pub(super) fn connect_string(&self) -> String {
        let chroot = if self.chroot.is_root() { "" } else { self.chroot.as_str() };
        format!("127.0.0.1:{}{chroot}", self.port)
    }

    /// Closes every connection. Clients may reconnect.
    pub(super) fn drop_connections(&self) {
        self.link.send_modify(|link| link.drops += 1);
    }

    /// Closes every connection, and rejects new ones.
    pub(super) fn cut_off(&self) {
        self.link.send_modify(|link| link.is_cut = true);
    }

    /// The counts so far.
    pub(super) fn counts(&self) -> Counts {
        *self.tally.borrow()
    }

    /// Waits until the counts satisfy a condition.
    pub(super) async fn wait_for(&self, is_so: impl FnMut(&Counts) -> bool) {
        // The sender is in `self`, so this cannot fail.
        let _ = self.tally.subscribe().wait_for(is_so).await;
    }
}

impl Counts {
    /// The difference since an earlier point in time.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            notifications: self.notifications - before.notifications,
            requests: self.requests - before.requests,
            bytes: self.bytes - before.bytes,
            watches: self.watches - before.watches,
            writes: self.writes - before.writes,
            connections: self.connections - before.connections,
        }
    }
}

/// One connection.
#[derive(Debug)]
struct CountedConnection<'a> {
    tally: &'a watch::Sender<Counts>,
    /// Pending requests whose reply affects a count, by their numbers.
    open: Mutex<HashMap<i32, Open>>,
}

#[derive(Clone, Copy, Debug)]
enum Open {
    Sync,
    /// A read that sets a watch, unless it fails.
    Watch,
}

impl CountedConnection<'_> {
    /// Counts a client's message: its length, its number, the operation.
    fn request(&self, message: &[u8]) {
        let (Some(number), Some(code)) = (field(message, 4), field(message, 8)) else { return };
        match code {
            _ if number == PING => return,
            SYNC => {
                self.open().insert(number, Open::Sync);
                return;
            }
            // Their last byte requests a watch.
            _ if READS.contains(&code) && message.ends_with(&[1]) => {
                self.open().insert(number, Open::Watch);
            }
            _ => {}
        }

        self.tally.send_modify(|counts| {
            counts.requests += 1;
            counts.writes += u64::from(WRITES.contains(&code));
            counts.bytes += message.len() as u64;
        });
    }

    /// Counts a server's message: its length, the number of the request, eight bytes of the transaction's number, an
    /// error.
    fn answer(&self, message: &[u8]) {
        let (Some(number), Some(error)) = (field(message, 4), field(message, 16)) else { return };
        let open = self.open().remove(&number);
        if number == PING || matches!(open, Some(Open::Sync)) {
            return;
        }
        self.tally.send_modify(|counts| {
            counts.notifications += u64::from(number == NOTIFICATION);
            counts.watches += u64::from(matches!(open, Some(Open::Watch)) && error == 0);
            counts.bytes += message.len() as u64;
        });
    }

    fn open(&self) -> MutexGuard<'_, HashMap<i32, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number at this offset of a message.
fn field(message: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(*message.get(at..)?.first_chunk()?))
}

async fn accept(
    listener: TcpListener,
    hosts: Vec<String>,
    tally: Tally,
    link: watch::Receiver<Link>,
) {
    // The loop ends with the listener. An error means that this process has too many open files; the client that
    // cannot connect then reports it.
    while let Ok((client, _)) = listener.accept().await {
        let (hosts, tally, mut link) = (hosts.clone(), tally.clone(), link.clone());
        let now = *link.borrow();
        if now.is_cut {
            continue;
        }
        tally.send_modify(|counts| counts.connections += 1);
        tokio::spawn(async move {
            // When one side closes, the other one notices the closed connection. If the counter was dropped, the
            // connection stays open, so that its client can close its session.
            tokio::select! {
                _ = connect(client, &hosts, &tally) => {}
                Ok(_) = link.wait_for(|link| *link != now) => {}
            }
        });
    }
}

/// Connects to the first server that accepts.
async fn connect(
    client: TcpStream,
    hosts: &[String],
    tally: &watch::Sender<Counts>,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    for host in hosts {
        if let Some(path) = host.strip_prefix("unix:") {
            if let Ok(server) = UnixStream::connect(path).await {
                return pass(client, server, tally).await;
            }
        } else if let Ok(server) = TcpStream::connect(host).await {
            server.set_nodelay(true)?;
            return pass(client, server, tally).await;
        }
    }
    Ok(())
}

async fn pass(
    client: TcpStream,
    server: impl AsyncRead + AsyncWrite + Unpin,
    tally: &watch::Sender<Counts>,
) -> io::Result<()> {
    let ((from_client, to_client), (from_server, to_server)) = (split(client), split(server));
    let conversation = CountedConnection { tally, open: Mutex::default() };
    tokio::select! {
        ended = pump(from_client, to_server, |message| conversation.request(message)) => ended,
        ended = pump(from_server, to_client, |message| conversation.answer(message)) => ended,
    }
}

/// Forwards messages, and counts each one before. A message begins with its length. The first one is the handshake,
/// which is not counted.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    count: impl Fn(&[u8]),
) -> io::Result<()> {
    let mut is_handshake = true;
    loop {
        let length = from.read_u32().await?;
        if length > MAX_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut message = length.to_be_bytes().to_vec();
        (&mut from).take(u64::from(length)).read_to_end(&mut message).await?;
        if !is_handshake {
            count(&message);
        }
        is_handshake = false;
        to.write_all(&message).await?;
    }
}
