//! Each order is charged once, although its job may be worked on twice: the effect is in SQLite, keyed by the
//! item's id, and in one transaction with a check of the token.
//!
//! The key suppresses a repeated effect. The token refuses a consumer that has lost the item to another one, which
//! may be in the middle of the work.
//!
//! `cargo run --example queue_sqlite`

use std::error::Error;
use std::time::Duration;

use lockkeeper::{Client, Item, Queue};
use lockkeeper_engine::Engine;
use rusqlite::{Connection, params};

/// The outcome of a charge.
#[derive(Debug, PartialEq)]
enum Charge {
    Made,
    /// It was made before.
    Repeated,
    /// A later holder of the item has written.
    Stale,
}

/// Records that a consumer begins with an item: earlier holders are refused from now on.
fn begin(database: &Connection, item: &Item<u32>) -> rusqlite::Result<bool> {
    // As text of fixed length, which sorts like the number.
    let token = format!("{:039}", item.token().to_u128());
    let admitted = database.execute(
        "INSERT INTO fence VALUES (?1, ?2)
         ON CONFLICT (item) DO UPDATE SET token = ?2 WHERE token <= ?2",
        params![item.id(), token],
    )?;
    Ok(admitted > 0)
}

fn charge(database: &mut Connection, item: &Item<u32>) -> rusqlite::Result<Charge> {
    let transaction = database.transaction()?;
    if !begin(&transaction, item)? {
        return Ok(Charge::Stale);
    }
    let made = transaction.execute(
        "INSERT INTO charge VALUES (?1, ?2) ON CONFLICT (item) DO NOTHING",
        params![item.id(), item.value()],
    )?;
    transaction.commit()?;
    Ok(if made > 0 { Charge::Made } else { Charge::Repeated })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut database = Connection::open_in_memory()?;
    database.execute_batch(
        "CREATE TABLE fence (item TEXT PRIMARY KEY, token TEXT NOT NULL);
         CREATE TABLE charge (item TEXT PRIMARY KEY, amount INTEGER NOT NULL);",
    )?;
    let engine = Engine::builder().start().await?;
    let client = Client::connect(&engine.connect_string()).await?;
    let bob: Queue<u32> = Queue::new(&client, "/orders")?;
    bob.put(&30).await?;

    // Ann begins, and hangs for too long. Bob begins with the same item, and then Ann resumes.
    let hanging = Client::connect(&engine.connect_string()).await?;
    let ann =
        Queue::<u32>::builder(&hanging, "/orders").max_run(Duration::from_millis(50)).build()?;
    let late = ann.take().await?;
    begin(&database, &late)?;
    println!("Ann has lost the item: {}", late.lost().await);
    let item = bob.take().await?;
    assert_eq!((item.id(), item.attempt()), (late.id(), 2));
    begin(&database, &item)?;
    println!("Ann's late charge: {:?}", charge(&mut database, &late)?);
    println!("Bob's charge: {:?}", charge(&mut database, &item)?);
    // Bob dies here, before he calls `done`: his item comes back.
    drop(item);
    bob.put(&12).await?;

    for _ in 0..2 {
        let item = bob.take().await?;
        println!("attempt {}: {:?}", item.attempt(), charge(&mut database, &item)?);
        item.done().await?;
    }
    let sum: i64 = database.query_row("SELECT sum(amount) FROM charge", [], |row| row.get(0))?;
    println!("{sum} was charged");
    assert_eq!(sum, 42);
    Ok(())
}
