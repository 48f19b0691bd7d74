//! A relay between clients and a ZooKeeper server that counts bytes, frames and watch events.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::BytesMut;
use lockkeeper_wire::{FrameError, split_frame, xid};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A relay; it ends when it is dropped.
pub(crate) struct Tap {
    address: SocketAddr,
    passed: Arc<watch::Sender<Passed>>,
    listening: JoinHandle<()>,
}

/// What has passed since the start.
#[derive(Clone, Copy)]
pub(crate) struct Passed {
    pub(crate) to_server: u64,
    pub(crate) to_clients: u64,
    /// Frames to clients.
    pub(crate) frames: u64,
    /// The watch events among them.
    pub(crate) events: u64,
    /// When the last bytes did.
    last: Instant,
}

impl Passed {
    /// Bytes in both directions.
    pub(crate) fn bytes(&self) -> u64 {
        self.to_server + self.to_clients
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
        let nothing =
            Passed { to_server: 0, to_clients: 0, frames: 0, events: 0, last: Instant::now() };
        let passed = Arc::new(watch::Sender::new(nothing));
        let listening = tokio::spawn(listen(listener, target.to_owned(), passed.clone()));
        Ok(Self { address, passed, listening })
    }

    /// Where clients connect.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn passed(&self) -> Passed {
        *self.passed.borrow()
    }

    /// Waits until so many watch events have passed.
    pub(crate) async fn events(&self, count: u64) -> Result<()> {
        self.passed.subscribe().wait_for(|passed| passed.events >= count).await?;
        Ok(())
    }

    /// Waits until nothing has passed for `pause`, and returns when the last bytes did.
    pub(crate) async fn quiet(&self, pause: Duration) -> Instant {
        loop {
            let last = self.passed().last;
            match pause.checked_sub(last.elapsed()) {
                None | Some(Duration::ZERO) => return last,
                Some(left) => tokio::time::sleep(left).await,
            }
        }
    }

    /// Waits until nothing moves any more.
    pub(crate) async fn settle(&self) {
        loop {
            let before = self.passed().bytes();
            tokio::time::sleep(Duration::from_millis(100)).await;
            // Pings and heartbeats never rest where there are a thousand sessions, but they are small.
            if self.passed().bytes() - before < 10_000 {
                return;
            }
        }
    }
}

async fn listen(listener: TcpListener, target: String, passed: Arc<watch::Sender<Passed>>) {
    while let Ok((client, _)) = listener.accept().await {
        let (target, passed) = (target.clone(), passed.clone());
        // However a connection ends, both sides see it closed.
        tokio::spawn(async move { drop(relay(client, &target, &passed).await) });
    }
}

async fn relay(client: TcpStream, target: &str, passed: &watch::Sender<Passed>) -> Result<()> {
    let server = TcpStream::connect(target).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();

    let mut stream = Frames::default();
    tokio::select! {
        result = copy(from_client, to_server, |bytes| {
            passed.send_modify(|passed| {
                passed.to_server += bytes.len() as u64;
                passed.last = Instant::now();
            });
            Ok(())
        }) => result,
        result = copy(from_server, to_client, |bytes| {
            let (frames, events) = stream.count(bytes)?;
            passed.send_modify(|passed| {
                passed.to_clients += bytes.len() as u64;
                passed.frames += frames;
                passed.events += events;
                passed.last = Instant::now();
            });
            Ok(())
        }) => result,
    }
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut look: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        look(&buffer[..count])?;
        to.write_all(&buffer[..count]).await?;
    }
}

/// What a server sends, as far as its frames are not whole yet.
#[derive(Default)]
struct Frames {
    buffer: BytesMut,
    /// The first frame is the handshake's answer, whose first word is another thing.
    greeted: bool,
}

impl Frames {
    /// How many frames end in these bytes, and how many of them are watch events.
    fn count(&mut self, bytes: &[u8]) -> Result<(u64, u64), FrameError> {
        self.buffer.extend_from_slice(bytes);
        let (mut frames, mut events) = (0, 0);
        while let Some(frame) = split_frame(&mut self.buffer, i32::MAX as usize)? {
            let is_event = frame.starts_with(&xid::NOTIFICATION.to_be_bytes());
            frames += 1;
            events += u64::from(self.greeted && is_event);
            self.greeted = true;
        }
        Ok((frames, events))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_and_events_are_counted_however_the_stream_is_cut() {
        let mut stream = Vec::new();
        for (word, rest) in [(-1_i32, 33), (1, 12), (-1, 40), (2, 100), (-1, 8)] {
            stream.extend_from_slice(&(4 + rest as u32).to_be_bytes());
            stream.extend_from_slice(&word.to_be_bytes());
            stream.extend(std::iter::repeat_n(0xFF, rest));
        }
        for size in [1, 3, 7, 64, stream.len()] {
            let mut frames = Frames::default();
            let counts = stream.chunks(size).map(|bytes| frames.count(bytes).unwrap());
            let sum = counts.reduce(|all, more| (all.0 + more.0, all.1 + more.1));
            assert_eq!(sum, Some((5, 2)), "the first frame is the handshake's; cut at {size}");
        }
    }
}
