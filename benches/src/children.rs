//! What this program does as a child of itself: what is measured in a process of its own, and is no
//! program by itself.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Result;
use lockkeeper::{Client, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::processors;

/// What a child prints when it is ready, with what it has to say behind it.
pub(crate) const READY: &str = "ready ";

/// Sends back whatever comes, on one thread, which stays on this processor: what a round trip costs
/// at the least.
///
/// # Errors
/// If no port is free, or the processor is not for this process.
pub async fn echo(processor: usize) -> Result<()> {
    processors::pin(processor)?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    ready(&listener.local_addr()?.to_string());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // The end of one connection is no reason to end the others.
        tokio::spawn(async move { drop(echo_one(stream).await) });
    }
}

async fn echo_one(mut stream: TcpStream) -> Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..count]).await?;
    }
}

/// Acquires a lock, says so, and holds it until the parent kills it.
///
/// # Errors
/// If it cannot be acquired, or is lost.
pub async fn hold(servers: &str, path: &str, session_timeout: Duration) -> Result<()> {
    let builder = Client::builder().session_timeout(session_timeout);
    // Whatever tick is assumed, this holder trusts its lease no further than it needs to.
    let client = builder.server_tick(Duration::from_millis(100)).connect(servers).await?;
    let guard = Mutex::new(&client, path)?.acquire().await?;
    ready(&client.session_timeout().as_millis().to_string());
    anyhow::bail!("the lock was lost: {:?}", guard.lost().await);
}

fn ready(what: &str) {
    println!("{READY}{what}");
    // Nothing is buffered for a parent that waits for the line.
    let _ = std::io::stdout().flush();
}
