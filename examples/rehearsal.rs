//! A program's own test that its job stops when the lock is lost: each kind of loss is rehearsed against an engine
//! in this process.
//!
//! `cargo run --example rehearsal --features rehearsal`

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockkeeper::{Client, CreateMode, LossReason, Mutex, Rehearsal, TransactionError, ZnodePath};
use lockkeeper_engine::Engine;

/// Whether the job is working.
static WORKING: AtomicBool = AtomicBool::new(false);

/// The job under test: it works while it holds the lock, and returns why it stopped.
async fn job(client: Client) -> Result<LossReason, Box<dyn Error + Send + Sync>> {
    let guard = Mutex::new(&client, "/locks/job")?.acquire().await?;
    let work = async {
        WORKING.store(true, Ordering::Relaxed);
        std::future::pending::<()>().await;
    };
    let stopped = guard.run(work).await;
    WORKING.store(false, Ordering::Relaxed);
    Ok(stopped.expect_err("the work never ends"))
}

/// Waits until the job works.
async fn working() {
    while !WORKING.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let engine = Engine::builder().start().await?;
    let rehearsal = Rehearsal::new();
    let client = Client::builder().rehearsal(&rehearsal).connect(&engine.connect_string()).await?;
    let other = Client::connect(&engine.connect_string()).await?;
    let others = Mutex::new(&other, "/locks/job")?;

    // The servers end the session. The other program gets the lock, and the job has stopped.
    let running = tokio::spawn(job(client.clone()));
    working().await;
    rehearsal.expire_session().await?;
    println!("the session has expired, and the job has stopped: {}", running.await??);
    others.acquire().await?.release().await?;

    // The network is down for longer than the lease lasts.
    let running = tokio::spawn(job(client.clone()));
    working().await;
    rehearsal.cut_off();
    rehearsal.pause(client.session_timeout());
    println!("the client was cut off, and the job has stopped: {}", running.await??);
    rehearsal.reconnect();

    // The machine is suspended for a while, and the network works.
    let running = tokio::spawn(job(client.clone()));
    working().await;
    rehearsal.pause(client.session_timeout());
    println!("the program was suspended, and the job has stopped: {}", running.await??);

    // A write is applied, and its reply is lost: is it done twice?
    let bill = ZnodePath::new("/bill")?;
    client.create(&bill, "open", CreateMode::Persistent).await?;
    let guard = Mutex::new(&client, "/locks/bill")?.acquire().await?;
    rehearsal.lose_next_reply();
    let paid = guard.transaction().set_data(&bill, "paid", Some(0)).commit().await;
    assert!(matches!(paid, Err(TransactionError::Request(_))), "{paid:?}");
    let (text, stat) = client.data(&bill).await?;
    assert_eq!((&text[..], stat.version), (&b"paid"[..], 1));
    println!("the reply was lost, and the bill is paid once");

    guard.release().await?;
    client.close().await;
    other.close().await;
    engine.stop().await?;
    Ok(())
}
