//! Workers that are listed while they run, and come back when the servers lose their session.
//!
//! `cargo run --example presence` starts a server of its own; with an argument such as
//! `127.0.0.1:2181`, it uses that one.

use std::error::Error;

use lockkeeper::{Change, Client, Presence, PresenceState, TreeCache};
use lockkeeper_engine::Engine;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::builder().start().await?;
    let servers = std::env::args().nth(1).unwrap_or_else(|| engine.connect_string());
    let (worker, watcher) = (Client::connect(&servers).await?, Client::connect(&servers).await?);

    let workers = TreeCache::builder(&watcher, "/present").max_depth(1).open().await?;
    let mut changes = workers.changes();

    // After a crash, the node of the last run may still exist: it is replaced at once.
    let options = Presence::builder(&worker, "/present/host-7").data("host-7 10.0.0.7:80");
    let presence = options.replaces(|data| data.starts_with(b"host-7 ")).start().await?;
    if let PresenceState::Present { czxid } = presence.state() {
        println!("present since transaction {czxid}");
    }

    // Another client sees it come, and go.
    let mut seen = Vec::new();
    while !seen.contains(&"/present/host-7".to_owned()) {
        seen.extend(changes.next().await?.changes.iter().map(|change| change.path().to_owned()));
    }
    println!("seen: {}", seen.join(", "));
    presence.end().await?;
    let update = changes.next().await?;
    let gone = update.changes.iter().any(|change| matches!(change, Change::Deleted { .. }));
    println!("gone: {gone}");

    drop((changes, workers));
    worker.close().await;
    watcher.close().await;
    Ok(())
}
