//! A PostgreSQL of our own, as the suites start it.

use anyhow::Result;
use lockkeeper_testkit::postgres::{PostgresServer, programs};

use super::server::{Server, version as version_of};

pub(super) async fn start() -> Result<Server> {
    let PostgresServer { process, port, folder } = PostgresServer::start().await?;
    Ok(Server { process, address: format!("127.0.0.1:{port}"), _folder: Some(folder) })
}

pub(super) fn version() -> String {
    let program = programs().unwrap_or_default().join("postgres");
    version_of("PostgreSQL", program, &["--version"])
}
