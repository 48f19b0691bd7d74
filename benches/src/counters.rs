//! Tasks that add 1 to one counter.

use std::sync::Arc;

use anyhow::Result;
use lockkeeper::{Client, Counter, CreateMode, ErrorCode, ZnodePath};
use redis::aio::MultiplexedConnection;
use tokio::sync::Mutex;

use crate::measure::{Measured, Plan, repeat};

/// The same node, and the same key, for everybody.
const PATH: &str = "/bench-counter";

/// The same, for bare requests.
const BARE: &str = "/bench-bare-counter";

/// So many tasks of one process, by one handle.
pub(crate) async fn add(client: &Client, tasks: usize, plan: Plan) -> Result<Measured> {
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

/// Bare requests in place of a counter: a write over the version that is known, and when somebody was
/// quicker, a read and the next write. It knows no lost replies, and nobody gets out of another's way.
pub(crate) async fn compare_and_set(client: &Client, tasks: usize, plan: Plan) -> Result<Measured> {
    let path = ZnodePath::new(BARE)?;
    let zero = 0_i64.to_be_bytes().to_vec();
    match client.create(&path, zero, CreateMode::Persistent).await {
        Err(error) if error.code() != Some(ErrorCode::NodeExists) => return Err(error.into()),
        _ => {}
    }
    let tasks = (0..tasks).map(|_| {
        let known = Arc::new(Mutex::new(None));
        let (client, path) = (client.clone(), path.clone());
        move || {
            let (client, path, known) = (client.clone(), path.clone(), Arc::clone(&known));
            async move { bare_add(&client, &path, &mut *known.lock().await).await }
        }
    });
    repeat(tasks.collect(), plan).await
}

/// The most that one version of one node allows a process: one bare write under way at a time, each with
/// the adds of all tasks in it.
pub(crate) async fn write_together(client: &Client, tasks: usize, plan: Plan) -> Result<Measured> {
    let mut added = compare_and_set(client, 1, plan).await?;
    added.per_second *= tasks as f64;
    Ok(added)
}

async fn bare_add(client: &Client, path: &ZnodePath, known: &mut Option<(i64, i32)>) -> Result<()> {
    loop {
        let (value, version) = match *known {
            Some(known) => known,
            None => {
                let (data, stat) = client.data(path).await?;
                (i64::from_be_bytes(data[..].try_into()?), stat.version)
            }
        };
        let data = (value + 1).to_be_bytes().to_vec();
        match client.set_data(path, data, Some(version)).await {
            Ok(stat) => {
                *known = Some((value + 1, stat.version));
                return Ok(());
            }
            Err(error) if error.code() == Some(ErrorCode::BadVersion) => *known = None,
            Err(error) => return Err(error.into()),
        }
    }
}

/// So many tasks of one connection to Redis.
pub(crate) async fn increment(
    connection: &MultiplexedConnection,
    tasks: usize,
    plan: Plan,
) -> Result<Measured> {
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
