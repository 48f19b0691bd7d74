//! Each order is charged once, although its job may be worked on twice, as in `queue_sqlite`: the effect is in
//! PostgreSQL, keyed by the item's id, and in one transaction with a check of the token.
//!
//! `cargo run --example queue_postgres -- "host=127.0.0.1 user=postgres dbname=postgres"`

use std::error::Error;
use std::time::Duration;

use lockkeeper::{Client, Item, Queue};
use lockkeeper_engine::Engine;
use tokio_postgres::{Client as Database, GenericClient, NoTls};

/// The outcome of a charge.
#[derive(Debug, PartialEq)]
enum Charge {
    Made,
    /// It was made before.
    Repeated,
    /// A later holder of the item has written.
    Stale,
}

type Failure = Box<dyn Error>;

/// Records that a consumer begins with an item: earlier holders are refused from now on. In a transaction, the row
/// stays locked until its end, so that no other consumer acts between the check and the effect.
async fn begin(database: &impl GenericClient, item: &Item<i32>) -> Result<bool, Failure> {
    // As text of fixed length, which sorts like the number.
    let token = format!("{:039}", item.token().to_u128());
    let fence = "INSERT INTO pg_temp.fence AS old VALUES ($1, $2)
                 ON CONFLICT (item) DO UPDATE SET token = $2 WHERE old.token <= $2";
    Ok(database.execute(fence, &[&item.id(), &token]).await? > 0)
}

async fn charge(database: &mut Database, item: &Item<i32>) -> Result<Charge, Failure> {
    let transaction = database.transaction().await?;
    if !begin(&transaction, item).await? {
        return Ok(Charge::Stale);
    }
    let effect = "INSERT INTO pg_temp.charge VALUES ($1, $2) ON CONFLICT (item) DO NOTHING";
    let made = transaction.execute(effect, &[&item.id(), item.value()]).await?;
    transaction.commit().await?;
    Ok(if made > 0 { Charge::Made } else { Charge::Repeated })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let parameters = std::env::args().nth(1).ok_or("usage: queue_postgres PARAMETERS")?;
    let (mut database, connection) = tokio_postgres::connect(&parameters, NoTls).await?;
    // A failure of the connection is returned by the next query.
    tokio::spawn(async move { drop(connection.await) });
    // Real tables are not temporary. The collation "C" sorts by digits.
    let tables = r#"CREATE TEMPORARY TABLE fence (item text PRIMARY KEY, token text COLLATE "C" NOT NULL);
                    CREATE TEMPORARY TABLE charge (item text PRIMARY KEY, amount integer NOT NULL);"#;
    database.batch_execute(tables).await?;
    let engine = Engine::builder().start().await?;
    let client = Client::connect(&engine.connect_string()).await?;
    let bob: Queue<i32> = Queue::new(&client, "/orders")?;
    bob.put(&30).await?;

    // Ann begins, and hangs for too long. Bob begins with the same item, and then Ann resumes.
    let hanging = Client::connect(&engine.connect_string()).await?;
    let ann =
        Queue::<i32>::builder(&hanging, "/orders").max_run(Duration::from_millis(50)).build()?;
    let late = ann.take().await?;
    begin(&database, &late).await?;
    println!("Ann has lost the item: {}", late.lost().await);
    let item = bob.take().await?;
    begin(&database, &item).await?;
    println!("Ann's late charge: {:?}", charge(&mut database, &late).await?);
    println!("Bob's charge: {:?}", charge(&mut database, &item).await?);
    // Bob dies here, before he calls `done`: his item comes back.
    drop(item);
    bob.put(&12).await?;

    for _ in 0..2 {
        let item = bob.take().await?;
        println!("attempt {}: {:?}", item.attempt(), charge(&mut database, &item).await?);
        item.done().await?;
    }
    let sum: i64 = database.query_one("SELECT sum(amount) FROM pg_temp.charge", &[]).await?.get(0);
    println!("{sum} was charged");
    assert_eq!(sum, 42);
    Ok(())
}
