//! Money moves between accounts that each have their own lock; concurrent transfers in both directions do not
//! deadlock.
//!
//! `cargo run --example multi_lock`

use std::error::Error;

use lockkeeper::{Client, CreateMode, MultiLock, ZnodePath};
use lockkeeper_engine::Engine;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let engine = Engine::builder().start().await?;
    let client = Client::connect(&engine.connect_string()).await?;
    let accounts = ["alice", "bob", "carol"];
    for name in accounts {
        client.ensure(&account(name)?.parent().ok_or("root")?, CreateMode::Persistent).await?;
        client.create(&account(name)?, "100", CreateMode::Persistent).await?;
    }

    let mut transfers = Vec::new();
    for round in 0..30 {
        let (from, to) = (accounts[round % 3], accounts[(round * 2 + 1) % 3]);
        if from != to {
            let client = client.clone();
            transfers.push(tokio::spawn(async move { transfer(&client, from, to, 1).await }));
        }
    }
    let count = transfers.len();
    for transfer in transfers {
        transfer.await??;
    }

    let mut total = 0;
    for name in accounts {
        let balance = balance(&client, name).await?;
        println!("{name}: {balance}");
        total += balance;
    }
    println!("{count} transfers, and the total is still {total}");
    client.close().await;
    Ok(())
}

async fn transfer(
    client: &Client,
    from: &str,
    to: &str,
    sum: i64,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let locks = [format!("/locks/accounts/{from}"), format!("/locks/accounts/{to}")];
    let lock = MultiLock::new(client, locks.iter().map(String::as_str))?;
    let guard = lock.acquire().await?;
    let (payer, payee) = (balance(client, from).await?, balance(client, to).await?);
    // Applied only while both locks are held, however long this program was suspended.
    let transaction = guard.transaction();
    let transaction = transaction.set_data(&account(from)?, (payer - sum).to_string(), None);
    transaction.set_data(&account(to)?, (payee + sum).to_string(), None).commit().await?;
    guard.release().await?;
    Ok(())
}

async fn balance(client: &Client, name: &str) -> Result<i64, Box<dyn Error + Send + Sync>> {
    let (data, _) = client.data(&account(name)?).await?;
    Ok(std::str::from_utf8(&data)?.parse()?)
}

fn account(name: &str) -> Result<ZnodePath, Box<dyn Error + Send + Sync>> {
    Ok(ZnodePath::new(&format!("/accounts/{name}"))?)
}
