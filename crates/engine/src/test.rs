//! Engines for tests: start a new one with one call, and control faults and time.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = lockkeeper_engine::test::engine().await;
//! let address = engine.connect_string(); // for any ZooKeeper client
//! # assert!(address.starts_with("127.0.0.1:"));
//! # Ok(())
//! # }
//! ```
//!
//! | event | control |
//! |---|---|
//! | a client crashes and its session ends | [`Engine::expire_session`] |
//! | time passes: sessions expire, TTL nodes become overdue | [`Engine::skip_time`] |
//! | the network fails for a moment | [`Engine::drop_connection`], [`Engine::drop_connections`] |
//! | the disk stalls | [`Engine::pause_commits`], [`Engine::resume_commits`] |
//! | the disk fails | [`Engine::fail_next_commit`] |
//! | the server restarts | [`DurableEngine::restart`] |

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::settings::builder::Builder;
use crate::storage::Durability;

/// The settings of engines for tests: a free port, no data on a disk, and a tick of 50 ms, so that clients get the
/// session timeout that they request, from 100 ms to an hour, and sessions end soon after it.
pub fn builder() -> Builder {
    Engine::builder()
        .tick(Duration::from_millis(50))
        .min_session_timeout(Duration::from_millis(100))
        .max_session_timeout(Duration::from_secs(3_600))
        .allow_ttl_nodes()
        .reap_interval(Duration::from_millis(50))
}

/// Starts a new engine that keeps everything in memory; dropping it stops it.
///
/// # Panics
/// This machine has no free port or cannot start a thread.
pub async fn engine() -> Engine {
    match builder().start().await {
        Ok(engine) => engine,
        Err(e) => panic!("cannot start an engine for this test: {e}"),
    }
}

/// A new engine with a data directory of its own, which is removed when this is dropped.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use lockkeeper_engine::test::DurableEngine;
///
/// let mut engine = DurableEngine::start().await;
/// engine.fail_next_commit(); // what clients write next is not acknowledged
/// engine.restart().await; // what was acknowledged is there
/// assert_eq!(engine.sessions(), 0);
/// # }
/// ```
#[derive(Debug)]
pub struct DurableEngine {
    // Before the directory, so that the engine is dropped before the directory is removed.
    engine: Option<Engine>,
    builder: Builder,
    directory: TestDirectory,
}

impl DurableEngine {
    /// Starts an engine. It acknowledges writes that are in the operating system's memory: these survive a restart of
    /// the engine, and the disk is spared.
    ///
    /// # Panics
    /// This machine has no free port, cannot start a thread, or has no space for temporary files.
    pub async fn start() -> Self {
        Self::with(|builder| builder).await
    }

    /// Starts an engine with some settings changed.
    ///
    /// # Panics
    /// See [`DurableEngine::start`]; or the settings do not fit together.
    pub async fn with(change: impl FnOnce(Builder) -> Builder) -> Self {
        let directory = TestDirectory::new();
        let builder = change(builder().durability(Durability::Os)).data_dir(&directory.0);
        let engine = Some(start(&builder).await);
        Self { engine, builder, directory }
    }

    /// Stops the engine, if it has not ended by itself, and starts another one on the same directory, with another port
    /// unless the settings name one.
    ///
    /// # Panics
    /// The new engine does not start.
    pub async fn restart(&mut self) {
        if let Some(engine) = self.engine.take() {
            // An engine that was made to fail returns an error; the next one starts in any case.
            let _: Result<(), EngineError> = engine.stop().await;
        }
        self.engine = Some(start(&self.builder).await);
    }

    /// The data directory.
    pub fn directory(&self) -> &Path {
        &self.directory.0
    }
}

impl Deref for DurableEngine {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        self.engine.as_ref().expect("only absent during a restart")
    }
}

async fn start(builder: &Builder) -> Engine {
    match builder.clone().start().await {
        Ok(engine) => engine,
        Err(e) => panic!("cannot start an engine for this test: {e}"),
    }
}

/// A directory for temporary files, removed on drop. Files that the engine writes after its drop remain, because
/// dropping does not wait; the system removes them eventually.
#[derive(Debug)]
struct TestDirectory(PathBuf);

impl TestDirectory {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut name = [0; 8];
        getrandom::fill(&mut name).expect("the system's random source failed");
        let (pid, name) = (std::process::id(), u64::from_ne_bytes(name));
        let path = std::env::temp_dir().join(format!("lockkeeper-{pid}-{number}-{name:016x}"));
        fs::create_dir(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Self(path)
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
