//! The program of the README: a lock, work that ends with it, and a server in the same process.

use std::error::Error;

use lockkeeper::{Client, FencingToken, Mutex};
use lockkeeper_engine::Engine;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // A server in this process. With servers of your own: Client::connect("zk1:2181,zk2:2181").
    let engine = Engine::builder().start().await?;
    let client = Client::connect(&engine.connect_string()).await?;
    let lock = Mutex::new(&client, "/locks/orders")?;

    let guard = lock.acquire().await?;
    // `ship` is dropped, wherever it is, at the moment the lock is lost.
    match guard.run(ship(guard.token())).await {
        Ok(()) => println!("shipped; {:.0?} of the lease were left", guard.remaining()),
        Err(reason) => println!("stopped, as the lock was lost: {reason}"),
    }
    guard.release().await?;
    client.close().await;
    Ok(())
}

async fn ship(token: FencingToken) {
    println!("shipping under the token {token}");
}
