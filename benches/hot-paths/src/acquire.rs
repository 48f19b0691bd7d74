//! A whole client and a whole server: a lock that nobody else wants is acquired and released.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use lockkeeper::{Client, Host, Instant, Mutex};
use lockkeeper_client::runtime::{Boxed, Runtime, Transport};
use lockkeeper_tree::{Config, Now, Output, Server};
use lockkeeper_wire::{MAX_FRAME, split_frame};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use uuid::Uuid;

use crate::tree::{CONNECTION, Zeros};

/// Time stands still, so no timer is ever due. Connections end in a server of this process.
#[derive(Debug, Default)]
struct Still(AtomicU64);

impl Runtime for Still {
    fn now(&self) -> Instant {
        Instant::from_start(Duration::from_secs(100))
    }

    fn connect<'a>(
        &'a self,
        _host: &'a Host,
        _address: Option<IpAddr>,
    ) -> Boxed<'a, io::Result<Transport>> {
        let (ours, theirs) = duplex(1 << 16);
        tokio::spawn(serve(theirs));
        Box::pin(async { Ok(Transport::Other(Box::new(ours), None)) })
    }

    fn unique_id(&self) -> Uuid {
        Uuid::from_u128(self.0.fetch_add(1, Ordering::Relaxed).into())
    }

    fn spawn(&self, task: Boxed<'static, ()>) {
        tokio::spawn(task);
    }
}

/// Answers one client until it leaves.
async fn serve(mut stream: DuplexStream) {
    let mut server = Server::new(Config::default(), Box::new(Zeros));
    let now = Now { monotonic: Duration::from_secs(100), unix_ms: 1_000_000 };
    server.connected(CONNECTION, None);
    let mut input = BytesMut::new();
    while stream.read_buf(&mut input).await.is_ok_and(|read| read > 0) {
        while let Ok(Some(frame)) = split_frame(&mut input, MAX_FRAME) {
            server.handle_frame(now, CONNECTION, frame);
        }
        drop(server.take_changes());
        for (_, output) in server.take_outputs() {
            if let Output::Send(frames) = output {
                stream.write_all(&frames).await.expect("the client reads");
            }
        }
    }
}

/// Acquires a lock and releases it.
pub(crate) fn cycle(iterations: u32) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(async {
        let client = Client::builder().runtime(Arc::new(Still::default()));
        let client = client.connect("127.0.0.1:1").await.expect("a connection");
        let lock = Mutex::new(&client, "/lock").expect("a good path");
        for _ in 0..iterations {
            let guard = lock.acquire().await.expect("a lock");
            guard.release().await.expect("a release");
        }
    });
}
