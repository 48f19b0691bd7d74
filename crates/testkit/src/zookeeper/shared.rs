//! One server for all tests of a process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use tokio::sync::OnceCell;

use super::config::Config;
use super::server::ZooKeeper;

/// The server that all tests of this process share, started by the first one that asks. It ends with the process. No
/// test kills or pauses it, and each test uses a chroot of its own: [`shared_chroot`].
///
/// # Errors
///
/// See [`Config::standalone`]; the next call tries again.
pub async fn shared() -> Result<&'static ZooKeeper> {
    static SERVER: OnceCell<ZooKeeper> = OnceCell::const_new();
    SERVER.get_or_try_init(|| Config::new().standalone()).await
}

/// How often the shared servers search for overdue nodes.
pub const REAPING: Duration = Duration::from_millis(100);

/// Like [`shared_chroot`], on another server, which supports nodes with a time to live.
///
/// # Errors
///
/// See [`shared_chroot`].
pub async fn shared_reaping_chroot() -> Result<String> {
    static SERVER: OnceCell<ZooKeeper> = OnceCell::const_new();
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let start = || {
        let often = format!("-Dznode.container.checkIntervalMs={}", REAPING.as_millis());
        Config::new().extended_types().jvm_argument(&often).standalone()
    };
    let server = SERVER.get_or_try_init(start).await?;
    server.chroot(&format!("test-{}", NEXT.fetch_add(1, Ordering::Relaxed))).await
}

/// The connection string of the shared server with an existing chroot that no other test uses.
///
/// # Errors
///
/// See [`shared`]; or the server does not create the chroot's node.
pub async fn shared_chroot() -> Result<String> {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    shared().await?.chroot(&format!("test-{number}")).await
}
