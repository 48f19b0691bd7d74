//! One server for all tests of a process.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use tokio::sync::OnceCell;

use super::server::ZooKeeper;

/// The server that all tests of this process share, started by the first one that asks. It ends
/// with the process. Nobody kills or pauses it, and each test keeps to a chroot of its own:
/// [`shared_chroot`].
///
/// # Errors
///
/// As [`ZooKeeper::standalone`]; the next call tries again.
pub async fn shared() -> Result<&'static ZooKeeper> {
    static SERVER: OnceCell<ZooKeeper> = OnceCell::const_new();
    SERVER.get_or_try_init(ZooKeeper::standalone).await
}

/// The connection string of the shared server with a chroot that nobody else has, and that exists.
///
/// # Errors
///
/// As [`shared`], or the server does not create the chroot's node.
pub async fn shared_chroot() -> Result<String> {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    shared().await?.chroot(&format!("test-{number}")).await
}
