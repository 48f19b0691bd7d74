//! Counts what goes over the wire: clients connect to this, and it to the servers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper::{ConnectError, ConnectString, ZnodePath};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::time::sleep;

use crate::exit::{Exit, Failure};

/// Numbers of messages that are no requests: notifications from a server, and pings.
const NOTIFICATION: i32 = -1;
const PING: i32 = -2;

/// No message is as long as this, in bytes.
const LONGEST: u32 = 64 * 1024 * 1024;

/// After so long without a message nothing more is to come.
const SILENCE: Duration = Duration::from_millis(100);

/// A listener that passes everything on, and counts it.
#[derive(Debug)]
pub(super) struct Counter {
    port: u16,
    chroot: ZnodePath,
    tally: Arc<Tally>,
}

/// What went through, pings excepted.
#[derive(Debug, Default)]
struct Tally {
    notifications: AtomicU64,
    requests: AtomicU64,
    bytes: AtomicU64,
}

/// The same at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) notifications: u64,
    pub(super) requests: u64,
    pub(super) bytes: u64,
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
        let tally = Arc::new(Tally::default());
        tokio::spawn(accept(listener, hosts, tally.clone()));
        Ok(Self { port, chroot: servers.chroot, tally })
    }

    /// Where clients connect to be counted.
    pub(super) fn connect_string(&self) -> String {
        let chroot = if self.chroot.is_root() { "" } else { self.chroot.as_str() };
        format!("127.0.0.1:{}{chroot}", self.port)
    }

    /// What went through so far, when nothing goes through any more.
    pub(super) async fn settled(&self) -> Counts {
        let mut before = self.tally.counts();
        loop {
            sleep(SILENCE).await;
            let now = self.tally.counts();
            if now == before {
                return now;
            }
            before = now;
        }
    }
}

impl Counts {
    /// What came since.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            notifications: self.notifications - before.notifications,
            requests: self.requests - before.requests,
            bytes: self.bytes - before.bytes,
        }
    }
}

impl Tally {
    fn counts(&self) -> Counts {
        Counts {
            notifications: self.notifications.load(Ordering::Relaxed),
            requests: self.requests.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    fn request(&self, number: i32, bytes: u64) {
        if number != PING {
            self.requests.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn answer(&self, number: i32, bytes: u64) {
        if number == NOTIFICATION {
            self.notifications.fetch_add(1, Ordering::Relaxed);
        }
        if number != PING {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

async fn accept(listener: TcpListener, hosts: Vec<String>, tally: Arc<Tally>) {
    // Ends with the listener, and so with this process: an error means that it has no files left,
    // and then the client that cannot connect tells the user.
    while let Ok((client, _)) = listener.accept().await {
        let (hosts, tally) = (hosts.clone(), tally.clone());
        tokio::spawn(async move {
            // Whichever side ends, the other notices by the closed connection.
            let _ = connect(client, &hosts, &tally).await;
        });
    }
}

/// Connects to the first server that is there.
async fn connect(client: TcpStream, hosts: &[String], tally: &Tally) -> io::Result<()> {
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
    tally: &Tally,
) -> io::Result<()> {
    let ((from_client, to_client), (from_server, to_server)) = (split(client), split(server));
    tokio::select! {
        ended = pump(from_client, to_server, |number, bytes| tally.request(number, bytes)) => ended,
        ended = pump(from_server, to_client, |number, bytes| tally.answer(number, bytes)) => ended,
    }
}

/// Passes messages on. Each begins with its length, and all but the first, the handshake, with a
/// number after that.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    count: impl Fn(i32, u64),
) -> io::Result<()> {
    let mut is_handshake = true;
    loop {
        let length = from.read_u32().await?;
        if length > LONGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut message = length.to_be_bytes().to_vec();
        (&mut from).take(u64::from(length)).read_to_end(&mut message).await?;
        if let (false, Some(number)) = (is_handshake, message[4..].first_chunk()) {
            count(i32::from_be_bytes(*number), u64::from(length) + 4);
        }
        is_handshake = false;
        to.write_all(&message).await?;
    }
}
