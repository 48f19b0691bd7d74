//! A lock that its owner can enter again: a report that holds it calls a backup that also takes it.
//!
//! `cargo run --example reentrant`

use std::error::Error;

use lockkeeper::{Client, Owner, ReentrantMutex};
use lockkeeper_engine::Engine;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::builder().start().await?;
    let client = Client::connect(&engine.connect_string()).await?;
    let lock = ReentrantMutex::new(&client, "/locks/accounts")?;

    let (night, morning) = (Owner::new("night shift"), Owner::new("morning shift"));
    report(&lock, &night).await?;

    // An entry can outlive the code that created it; then the owner releases it.
    lock.acquire(&night).await?.keep();
    println!("free for others? {}", lock.try_acquire(&morning).await?.is_some());
    let refused = lock.release(&morning).await;
    println!("{}", refused.expect_err("it is the night shift's"));
    lock.release(&night).await?;
    println!("free for others? {}", lock.try_acquire(&morning).await?.is_some());

    client.close().await;
    Ok(())
}

async fn report(lock: &ReentrantMutex, owner: &Owner) -> Result<(), Box<dyn Error>> {
    let guard = lock.acquire(owner).await?;
    println!("report: {owner} has {} entries, token {}", lock.entries(owner), guard.token());
    backup(lock, owner).await?;
    guard.release().await?;
    println!("report: {owner} has {} entries", lock.entries(owner));
    Ok(())
}

/// Also called on its own, so it takes the lock.
async fn backup(lock: &ReentrantMutex, owner: &Owner) -> Result<(), Box<dyn Error>> {
    let guard = lock.acquire(owner).await?;
    println!("backup: {owner} has {} entries, token {}", lock.entries(owner), guard.token());
    guard.release().await?;
    Ok(())
}
