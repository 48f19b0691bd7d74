//! Configuration that a running program always has in memory, with notifications of changes.
//!
//! `cargo run --example live_view` starts a server of its own; with an argument such as
//! `127.0.0.1:2181`, it uses that one.

use std::error::Error;

use lockkeeper::{Client, CreateMode, TreeCache, ZnodePath};
use lockkeeper_engine::Engine;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::builder().start().await?;
    let servers = std::env::args().nth(1).unwrap_or_else(|| engine.connect_string());
    let (service, operator) = (Client::connect(&servers).await?, Client::connect(&servers).await?);
    let (colour, size) = (ZnodePath::new("/live/colour")?, ZnodePath::new("/live/size")?);
    operator.ensure(&colour, CreateMode::Persistent).await?;
    operator.ensure(&size, CreateMode::Persistent).await?;

    // The service: the view is complete when it is open, and stays readable during an outage.
    let config = TreeCache::builder(&service, "/live").max_nodes(1_000).open().await?;
    let mut changes = config.changes();

    // The operator changes two values in one transaction.
    let both = operator.transaction().set_data(&colour, "red", None);
    both.set_data(&size, "12", None).commit().await?;

    // The service never sees one change without the other.
    let update = changes.next().await?;
    for change in &update.changes {
        println!("{} changed", change.path());
    }
    for (name, node) in config.snapshot().children("/live") {
        println!("{name} = {}", String::from_utf8_lossy(node.data()));
    }
    println!("current: {}, as of transaction {}", config.is_current(), config.snapshot().zxid());

    drop((changes, config));
    operator.delete(&colour, None).await?;
    operator.delete(&size, None).await?;
    service.close().await;
    operator.close().await;
    Ok(())
}
