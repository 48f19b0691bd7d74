//! A lock that two programs share: one works, the other waits.
//!
//! `cargo run --example mutex` starts a server of its own; with an argument such as
//! `127.0.0.1:2181`, it uses that one.

use std::error::Error;
use std::time::Duration;

use lockkeeper::{Client, Mutex};
use lockkeeper_engine::Engine;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::builder().start().await?;
    let servers = std::env::args().nth(1).unwrap_or_else(|| engine.connect_string());
    // Like two programs, each with its own session.
    let (alice, bob) = (Client::connect(&servers).await?, Client::connect(&servers).await?);

    let lock = Mutex::builder(&alice, "/locks/orders").label("alice").build()?;
    let guard = lock.acquire().await?;
    println!("alice holds {}, token {}", guard.path(), guard.token());

    let waiting = tokio::spawn(async move {
        let lock = Mutex::new(&bob, "/locks/orders")?;
        println!("bob: free? {}", lock.try_acquire().await?.is_some());
        let start = bob.now();
        let guard = lock.acquire_timeout(Duration::from_secs(10)).await?;
        println!("bob holds it after {:.0?}, token {}", bob.now().since(start), guard.token());
        guard.release().await?;
        bob.close().await;
        Ok::<_, Box<dyn Error + Send + Sync>>(())
    });

    // The work is dropped at the moment the lock is lost.
    let work = tokio::time::sleep(Duration::from_millis(200));
    match guard.run(work).await {
        Ok(()) => println!("alice is done; {:.1?} of the lease were left", guard.remaining()),
        Err(reason) => println!("alice lost it: {reason}"),
    }
    guard.release().await?;

    waiting.await?.map_err(|error| error.to_string())?;
    alice.close().await;
    Ok(())
}
