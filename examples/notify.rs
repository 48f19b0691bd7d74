//! Programs that react to notifications, and miss none.
//!
//! `cargo run --example notify` starts a server of its own; with an argument such as
//! `127.0.0.1:2181`, it uses that one.

use std::error::Error;

use lockkeeper::{Client, Notify};
use lockkeeper_engine::Engine;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::builder().start().await?;
    let servers = std::env::args().nth(1).unwrap_or_else(|| engine.connect_string());
    let (importer, cleaner) = (Client::connect(&servers).await?, Client::connect(&servers).await?);

    // The reader remembers the number of the last notification, so it misses none while it is busy.
    let news = Notify::new(&cleaner, "/orders/news")?;
    let known = news.last().await?;

    // The writer notifies ten times: these may be one wake-up.
    let tells = Notify::new(&importer, "/orders/news")?;
    let mut last = known;
    for _ in 0..10 {
        last = tells.notify().await?;
    }

    let (mut known, mut looks) = (known, 0);
    while known < last {
        known = news.wait_past(known).await?;
        looks += 1;
    }
    println!("told 10 times, looked {looks} times, and nothing is missed");

    importer.close().await;
    cleaner.close().await;
    Ok(())
}
