//! One server for all tests of a process.

use anyhow::Result;
use tokio::sync::OnceCell;

use super::ZooKeeper;

/// The server that all tests of this process share, started by the first one that asks. It ends
/// with the process. Each test works under a path of its own, and neither kills nor pauses it.
///
/// # Errors
///
/// As [`ZooKeeper::standalone`]; the next call tries again.
pub async fn shared() -> Result<&'static ZooKeeper> {
    static SERVER: OnceCell<ZooKeeper> = OnceCell::const_new();
    SERVER.get_or_try_init(ZooKeeper::standalone).await
}
