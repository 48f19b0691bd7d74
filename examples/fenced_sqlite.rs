//! A SQLite table that checks fencing tokens: the late write of a holder that was paused is
//! refused, in the transaction that would have made it.
//!
//! `cargo run --example fenced_sqlite`

use std::error::Error;
use std::time::Duration;

use lockkeeper::{Client, FencingToken, Mutex, revoke};
use lockkeeper_engine::Engine;
use rusqlite::{Connection, Transaction, params};

/// Changes the accounts, unless a later holder of their lock has written.
fn fenced(
    database: &mut Connection,
    token: FencingToken,
    change: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<usize>,
) -> Result<(), Box<dyn Error>> {
    let transaction = database.transaction()?;
    // As text of fixed length, which sorts like the number.
    let shown = format!("{:030}", token.to_u128());
    let admitted = transaction.execute(
        "INSERT INTO fence VALUES ('accounts', ?1)
         ON CONFLICT (resource) DO UPDATE SET token = ?1 WHERE token <= ?1",
        params![shown],
    )?;
    if admitted == 0 {
        return Err(format!("token {token} is stale: a later holder was here").into());
    }
    change(&transaction)?;
    transaction.commit()?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut database = Connection::open_in_memory()?;
    database.execute_batch(
        "CREATE TABLE fence (resource TEXT PRIMARY KEY, token TEXT NOT NULL);
         CREATE TABLE account (name TEXT PRIMARY KEY, balance INTEGER NOT NULL);
         INSERT INTO account VALUES ('carol', 100);",
    )?;
    let engine = Engine::builder().start().await?;
    let client = Client::connect(&engine.connect_string()).await?;
    let set = |balance: i64| {
        move |t: &Transaction<'_>| t.execute("UPDATE account SET balance = ?1", params![balance])
    };

    // Alice reads the balance under the lock, and is paused before she writes.
    let alice = Mutex::new(&client, "/locks/accounts")?.acquire().await?;
    let (hers, read) = (alice.token(), 100);

    // Her session has expired for the servers, so the lock is Bob's, who takes 30.
    revoke::revoke_within(&client, alice.path(), Duration::ZERO).await?;
    let bob = Mutex::new(&client, "/locks/accounts")?.acquire().await?;
    fenced(&mut database, bob.token(), set(100 - 30))?;
    println!("Bob took 30, with token {}", bob.token());

    // Alice resumes where she was, and would undo that.
    let late = fenced(&mut database, hers, set(read - 50)).expect_err("a later holder has written");
    println!("Alice's late write was refused: {late}");
    let balance: i64 = database.query_row("SELECT balance FROM account", [], |row| row.get(0))?;
    println!("the balance is {balance}");

    bob.release().await?;
    client.close().await;
    Ok(())
}
