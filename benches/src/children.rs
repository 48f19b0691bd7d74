//! What this program does as a child of itself: what is measured in a process of its own, and is no
//! program by itself.

use std::io::{self, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use lockkeeper::{Client, Mutex, TreeCache};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::counters;
use crate::measure::{Measured, Plan, Recorder};
use crate::memory::Memory;
use crate::orders::Answer;
use crate::processors;
use crate::queues;
use crate::subscribers::{self, Kind};

/// What a child prints when it is ready, with what it has to say behind it.
pub(crate) const READY: &str = "ready ";

/// Sends back whatever comes, on one thread, which stays on this processor: what a round trip costs
/// at the least.
///
/// # Errors
/// If no port is free, or the processor is not for this process.
pub(crate) async fn echo(processor: usize) -> Result<()> {
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
pub(crate) async fn hold(servers: &str, path: &str, session_timeout: Duration) -> Result<()> {
    let builder = Client::builder().session_timeout(session_timeout);
    // Whatever tick is assumed, this holder trusts its lease no further than it needs to.
    let client = builder.server_tick(Duration::from_millis(100)).connect(servers).await?;
    let guard = Mutex::new(&client, path)?.acquire().await?;
    ready(&client.session_timeout().as_millis().to_string());
    anyhow::bail!("the lock was lost: {:?}", guard.lost().await);
}

/// Adds to a counter, or does so by bare requests, as its parent orders, in the way of the programs in
/// other languages, until its input ends.
///
/// # Errors
/// If there is no server, or an order is not understood.
pub(crate) async fn count(servers: &str) -> Result<()> {
    let client = Client::connect(servers).await?;
    let mut orders = orders();
    while let Some(order) = orders.recv().await {
        let words: Vec<&str> = order.split(' ').collect();
        let [what @ ("counter" | "bare"), tasks, warm_up, measure] = words[..] else {
            bail!("no such order: {order}")
        };
        let millis = |text: &str| text.parse().map(Duration::from_millis);
        let plan = Plan { warm_up: millis(warm_up)?, measure: millis(measure)? };
        let added = match what {
            "bare" => counters::compare_and_set(&client, tasks.parse()?, plan).await,
            _ => counters::add(&client, tasks.parse()?, plan).await,
        };
        let answer = match added {
            Ok(measured) => Answer { error: None, measured },
            Err(error) => Answer { error: Some(format!("{error:#}")), ..Answer::default() },
        };
        say(&serde_json::to_string(&answer)?);
    }
    client.close().await;
    Ok(())
}

/// Opens a cache, and says how many nodes it has, and how many milliseconds and bytes it took.
///
/// # Errors
/// If there is no server, or no complete snapshot.
pub(crate) async fn cache(servers: &str, path: &str) -> Result<()> {
    let client = Client::connect(servers).await?;
    let (own, start) = (std::process::id(), Instant::now());
    let before = Memory::of(own)?.private;
    let cache = TreeCache::builder(&client, path).max_nodes(usize::MAX).open().await?;
    let (took, after) = (start.elapsed(), Memory::of(own)?.private);
    let (nodes, millis) = (cache.snapshot().len(), took.as_secs_f64() * 1e3);
    ready(&format!("{nodes} {millis} {}", after.saturating_sub(before)));
    // Until the parent kills it.
    std::future::pending().await
}

/// Takes so many items of a queue, each of which it records as done and replaces by another one; then says how many
/// bytes of memory this process has for itself.
///
/// # Errors
/// If there is no server, or an item cannot be taken.
pub(crate) async fn consume(servers: &str, path: &str, count: usize) -> Result<()> {
    let client = Client::connect(servers).await?;
    let queue = queues::ours::queue(&client, path)?;
    for _ in 0..count {
        let item = queue.take().await?;
        item.done().await?;
        queue.put(item.value()).await?;
    }
    ready(&Memory::of(std::process::id())?.private.to_string());
    // Until the parent kills it.
    std::future::pending().await
}

/// So many subscribers of one value, through one connection. For each line of input it says how long
/// after the next value was published the last of them had it, until its input ends.
///
/// # Errors
/// If there is no server.
pub(crate) async fn subscribe(servers: &str, count: usize, kind: Kind) -> Result<()> {
    let client = Client::connect(servers).await?;
    let mut all = subscribers::start(&client, count, kind);
    let mut orders = orders();
    while orders.recv().await.is_some() {
        let recorder = Recorder::new();
        recorder.record(all.all_told().await?);
        let measured = Measured { latency: recorder.summary(), ..Measured::default() };
        let answer = Answer { error: None, measured };
        say(&serde_json::to_string(&answer)?);
    }
    client.close().await;
    Ok(())
}

/// The lines of the input, until its end.
fn orders() -> mpsc::UnboundedReceiver<String> {
    let (sender, orders) = mpsc::unbounded_channel();
    // A thread, as input can be waited for in no other way. It ends with the process.
    thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    orders
}

fn ready(what: &str) {
    say(&format!("{READY}{what}"));
}

fn say(line: &str) {
    println!("{line}");
    // Nothing is buffered for a parent that waits for the line.
    let _ = std::io::stdout().flush();
}
