//! A table of PostgreSQL: a consumer locks rows with `FOR UPDATE SKIP LOCKED`, and deletes them in the same
//! transaction.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinSet;
use tokio_postgres::types::ToSql;

use super::items::{Consumers, Items, put_until_done};
use crate::locks::postgres::connect;
use crate::measure::{Measured, Plan};

/// The connections of those who put.
const PUTTING: usize = 16;

/// How long a consumer that found nothing waits.
const PAUSE: Duration = Duration::from_millis(1);

/// Each consumer has a connection.
pub(crate) async fn measure(
    address: &str,
    table: &str,
    consumers: Consumers,
    plan: Plan,
) -> Result<Measured> {
    let client = connect(address).await?;
    let columns = "(id bigserial primary key, content bytea not null)";
    client.batch_execute(&format!("create table {table} {columns}")).await?;
    let (items, mut consuming) = (Items::new(), JoinSet::new());
    for _ in 0..consumers.count {
        let (client, table) = (connect(address).await?, table.to_owned());
        consuming.spawn(consume(client, table, consumers.at_once(), items.clone()));
    }

    let insert = format!("insert into {table} (content) values ($1)");
    let mut putting = Vec::new();
    for _ in 0..PUTTING {
        let client = connect(address).await?;
        let statement = client.prepare(&insert).await?;
        putting.push(Arc::new((client, statement)));
    }
    let put = move |content: bytes::Bytes| {
        let connection = Arc::clone(&putting[fastrand::usize(..PUTTING)]);
        async move {
            let (client, statement) = &*connection;
            client.execute(statement, &[&&content[..]]).await?;
            Ok(())
        }
    };
    let measured = put_until_done(&items, consuming, put, plan).await?;
    client.batch_execute(&format!("drop table {table}")).await?;
    Ok(measured)
}

async fn consume(
    client: tokio_postgres::Client,
    table: String,
    at_once: usize,
    items: Items,
) -> Result<()> {
    let select = format!(
        "select id, content from {table} order by id limit {at_once} for update skip locked"
    );
    let select = client.prepare(&select).await?;
    let delete = client.prepare(&format!("delete from {table} where id = any($1)")).await?;
    loop {
        // Sent in one go, as the two at the end are.
        let (begun, rows) =
            tokio::join!(biased; client.batch_execute("begin"), client.query(&select, &[]));
        begun?;
        let rows = rows?;
        let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        let parameters: [&(dyn ToSql + Sync); 1] = [&ids];
        let (deleted, committed) = tokio::join! { biased;
            client.execute(&delete, &parameters),
            client.batch_execute("commit")
        };
        deleted?;
        committed?;
        for row in &rows {
            items.done(row.get(1))?;
        }
        if rows.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
    }
}
