//! A relay between clients and a ZooKeeper server that counts bytes and watch events.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use lockkeeper_wire::xid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A relay; it ends when it is dropped.
pub(crate) struct Tap {
    address: SocketAddr,
    counts: Arc<Counts>,
    listening: JoinHandle<()>,
}

struct Counts {
    to_server: AtomicU64,
    to_clients: AtomicU64,
    events: AtomicU64,
    /// When the last bytes passed, in nanoseconds from the epoch.
    last_nanos: AtomicU64,
    epoch: Instant,
}

impl Counts {
    fn new() -> Self {
        Self {
            to_server: AtomicU64::new(0),
            to_clients: AtomicU64::new(0),
            events: AtomicU64::new(0),
            last_nanos: AtomicU64::new(0),
            epoch: Instant::now(),
        }
    }

    fn passed(&self, direction: &AtomicU64, bytes: &[u8]) {
        direction.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let nanos = self.epoch.elapsed().as_nanos();
        self.last_nanos.store(u64::try_from(nanos).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl Tap {
    /// Starts a relay to the server at `target`.
    pub(crate) async fn start(target: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let counts = Arc::new(Counts::new());
        let listening = tokio::spawn(listen(listener, target.to_owned(), counts.clone()));
        Ok(Self { address, counts, listening })
    }

    /// Where clients connect.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Bytes in both directions since the start.
    pub(crate) fn bytes(&self) -> u64 {
        let Counts { to_server, to_clients, .. } = &*self.counts;
        to_server.load(Ordering::Relaxed) + to_clients.load(Ordering::Relaxed)
    }

    /// Waits until nothing has passed for `pause`, and returns when the last bytes did.
    pub(crate) async fn quiet(&self, pause: Duration) -> Instant {
        loop {
            let nanos = self.counts.last_nanos.load(Ordering::Relaxed);
            let last = self.counts.epoch + Duration::from_nanos(nanos);
            match pause.checked_sub(last.elapsed()) {
                None | Some(Duration::ZERO) => return last,
                Some(left) => tokio::time::sleep(left).await,
            }
        }
    }

    /// Waits until nothing moves any more.
    pub(crate) async fn settle(&self) {
        loop {
            let before = self.bytes();
            tokio::time::sleep(Duration::from_millis(100)).await;
            // Pings and heartbeats never rest where there are a thousand sessions, but they are small.
            if self.bytes() - before < 10_000 {
                return;
            }
        }
    }

    /// Watch events since the start.
    pub(crate) fn events(&self) -> u64 {
        self.counts.events.load(Ordering::Relaxed)
    }
}

async fn listen(listener: TcpListener, target: String, counts: Arc<Counts>) {
    while let Ok((client, _)) = listener.accept().await {
        let (target, counts) = (target.clone(), counts.clone());
        // However a connection ends, both sides see it closed.
        tokio::spawn(async move { drop(relay(client, &target, &counts).await) });
    }
}

async fn relay(client: TcpStream, target: &str, counts: &Counts) -> Result<()> {
    let server = TcpStream::connect(target).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();

    let mut frames = Frames::default();
    tokio::select! {
        result = copy(from_client, to_server, |bytes| {
            counts.passed(&counts.to_server, bytes);
        }) => result,
        result = copy(from_server, to_client, |bytes| {
            counts.passed(&counts.to_clients, bytes);
            counts.events.fetch_add(frames.events(bytes), Ordering::Relaxed);
        }) => result,
    }
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut look: impl FnMut(&[u8]),
) -> Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        look(&buffer[..count]);
        to.write_all(&buffer[..count]).await?;
    }
}

/// How far a stream of frames was read: only lengths and what comes right after them are looked at.
#[derive(Default)]
struct Frames {
    /// The next frame's length and first word, as far as they are there.
    head: Vec<u8>,
    /// What is left of the present frame.
    left: usize,
    /// The first frame is the handshake's answer, whose first word is another thing.
    greeted: bool,
}

impl Frames {
    /// How many watch events begin in these bytes.
    fn events(&mut self, mut bytes: &[u8]) -> u64 {
        const HEAD: usize = 8;
        let mut events = 0;
        while !bytes.is_empty() {
            if self.left > 0 {
                let step = self.left.min(bytes.len());
                self.left -= step;
                bytes = &bytes[step..];
                continue;
            }

            let step = (HEAD - self.head.len()).min(bytes.len());
            self.head.extend_from_slice(&bytes[..step]);
            bytes = &bytes[step..];
            if let Some((length, word)) = self.head.split_first_chunk::<4>()
                && let Ok(word) = <[u8; 4]>::try_from(word)
            {
                let is_event = i32::from_be_bytes(word) == xid::NOTIFICATION;
                events += u64::from(self.greeted && is_event);
                self.left = (u32::from_be_bytes(*length) as usize).saturating_sub(4);
                self.greeted = true;
                self.head.clear();
            }
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_however_the_stream_is_cut() {
        let mut stream = Vec::new();
        for (word, rest) in [(-1_i32, 33), (1, 12), (-1, 40), (2, 100), (-1, 8)] {
            stream.extend_from_slice(&(4 + rest as u32).to_be_bytes());
            stream.extend_from_slice(&word.to_be_bytes());
            stream.extend(std::iter::repeat_n(0xFF, rest));
        }
        for size in [1, 3, 7, 64, stream.len()] {
            let mut frames = Frames::default();
            let events: u64 = stream.chunks(size).map(|bytes| frames.events(bytes)).sum();
            assert_eq!(events, 2, "the first frame is the handshake's; cut at {size}");
        }
    }
}
