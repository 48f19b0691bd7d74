//! Tasks that add 1 to one counter.

use anyhow::Result;
use lockkeeper::{Client, Counter};
use redis::aio::MultiplexedConnection;

use crate::measure::{Plan, Repeats, repeat};

/// The same node, and the same key, for everybody.
const PATH: &str = "/bench-counter";

/// So many tasks of one process, by one handle.
pub(crate) async fn add(client: &Client, tasks: usize, plan: Plan) -> Result<Repeats> {
    let counter = Counter::new(client, PATH)?;
    let add = move || {
        let counter = counter.clone();
        async move {
            counter.add(1).await?;
            Ok(())
        }
    };
    repeat(vec![add; tasks], plan).await
}

/// So many tasks of one connection to Redis.
pub(crate) async fn increment(
    connection: &MultiplexedConnection,
    tasks: usize,
    plan: Plan,
) -> Result<Repeats> {
    let connection = connection.clone();
    let increment = move || {
        let mut connection = connection.clone();
        async move {
            let _: i64 = redis::cmd("INCR").arg(PATH).query_async(&mut connection).await?;
            Ok(())
        }
    };
    repeat(vec![increment; tasks], plan).await
}
