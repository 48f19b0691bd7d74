//! Advisory locks in PostgreSQL: they belong to a connection, and are nowhere on the disk.

use std::sync::Arc;

use crate::measure::Lock;
use anyhow::{Result, ensure};
use tokio_postgres::{Client, NoTls, Statement};

/// A connection with its two statements.
pub(crate) struct PostgresSession {
    client: Client,
    lock: Statement,
    unlock: Statement,
}

/// A connection.
pub(crate) async fn connect(address: &str) -> Result<Client> {
    let (host, port) = address.split_once(':').unwrap_or((address, "5432"));
    let parameters = format!("host={host} port={port} user=postgres dbname=postgres");
    let (client, connection) = tokio_postgres::connect(&parameters, NoTls).await?;
    // Its end shows as an error of the next query.
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

impl PostgresSession {
    /// Connects.
    pub(crate) async fn connect(address: &str) -> Result<Arc<Self>> {
        let client = connect(address).await?;
        let lock = client.prepare("select pg_advisory_lock($1)").await?;
        let unlock = client.prepare("select pg_advisory_unlock($1)").await?;
        Ok(Arc::new(Self { client, lock, unlock }))
    }

    pub(crate) async fn lock(&self, key: i64) -> Result<()> {
        self.client.query_one(&self.lock, &[&key]).await?;
        Ok(())
    }
}

/// A lock.
pub(crate) struct PostgresLock {
    pub(crate) session: Arc<PostgresSession>,
    pub(crate) key: i64,
}

impl Lock for PostgresLock {
    type Guard = ();

    async fn acquire(&mut self) -> Result<()> {
        self.session.lock(self.key).await
    }

    async fn release(&mut self, (): ()) -> Result<()> {
        let session = &self.session;
        let row = session.client.query_one(&session.unlock, &[&self.key]).await?;
        ensure!(row.get::<_, bool>(0), "the lock was not held");
        Ok(())
    }

    fn let_go(&mut self, (): ()) {
        unreachable!("PostgreSQL is measured with the release awaited only");
    }
}
