//! Locks and other recipes for programs without async.
//!
//! A [`Client`] of this module is a [`lockkeeper::Client`](crate::Client) with a thread that drives its
//! connection. Create locks with it as with any client, and use [`wait`](crate::Client::wait) to wait for the
//! futures that their methods return.
//!
//! # Guarantees
//!
//! - Those of each lock, with the same API.
//! - Any thread can wait, and several can wait at the same time.
//! - A guard that is dropped on any thread releases its lock.
//! - When the client is dropped, the locks that it still holds are released before `drop` returns, unless no
//!   server confirms this within a second.
//!
//! # Not guaranteed
//!
//! The loss of a lock does not stop the work of a thread. Call [`Guard::ensure`](crate::Guard::ensure) or
//! [`Guard::checkpoint`](crate::Guard::checkpoint) before each step, or use fencing tokens.
//! [`Guard::run`](crate::Guard::run) and [`Election::lead`](crate::Election::lead) stop their work only at an
//! `.await`. By default they also stop at the deadline; to continue after an outage, use
//! [`ride_out`](crate::ElectionBuilder::ride_out) for an election.
//!
//! # Cost
//!
//! That of each lock, and one thread per client.
//!
//! # Examples
//!
//! ```
//! # let (send, servers) = std::sync::mpsc::channel();
//! # let (done, wait) = tokio::sync::oneshot::channel::<()>();
//! # let server = std::thread::spawn(move || {
//! #     tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! #         let engine = lockkeeper_engine::Engine::builder().start().await.unwrap();
//! #         send.send(engine.connect_string()).unwrap();
//! #         wait.await.ok();
//! #     })
//! # });
//! # let servers = servers.recv()?;
//! use std::time::Duration;
//!
//! use lockkeeper::{Mutex, blocking};
//!
//! let client = blocking::Client::connect(&servers)?;
//! let lock = Mutex::new(&client, "/locks/orders")?;
//!
//! let guard = client.wait(lock.acquire())?;
//! println!("held; fencing token {}", guard.token());
//! for _step in 0..3 {
//!     // One second for the next step; an outage of up to a minute is waited out.
//!     client.wait(guard.checkpoint(Duration::from_secs(1), Duration::from_secs(60)))?;
//! }
//! client.wait(guard.release())?;
//! # drop(client);
//! # done.send(()).ok();
//! # server.join().unwrap();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::future::Future;
use std::ops::Deref;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lockkeeper_client::{ClientBuilder, ConnectError, Status};
use tokio::runtime::Builder;
use tokio::sync::{oneshot, watch};

/// How long the drop of a client waits until its session is closed.
const CLOSING_LIMIT: Duration = Duration::from_secs(1);

/// A client for programs without async, with a runtime of its own. It dereferences to
/// [`lockkeeper::Client`](crate::Client). Threads share it by reference.
///
/// Dropping it ends the session like [`close`](crate::Client::close), and waits for that for at most a
/// second. So keep it at least as long as its locks, and do not move it into a task of its own runtime. A
/// clone is a clone of the inner client and does not keep the session open.
#[derive(Debug)]
#[must_use = "the session is closed when this is dropped"]
pub struct Client(lockkeeper_client::Client);

impl Client {
    /// Connects with the default options.
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`], and if the thread cannot be started.
    ///
    /// # Panics
    /// In async code.
    #[track_caller]
    pub fn connect(servers: &str) -> Result<Self, ConnectError> {
        Self::connect_with(lockkeeper_client::Client::builder(), servers)
    }

    /// Connects with options.
    ///
    /// # Errors
    /// As [`Client::connect`].
    ///
    /// # Panics
    /// In async code.
    #[track_caller]
    pub fn connect_with(options: ClientBuilder, servers: &str) -> Result<Self, ConnectError> {
        Self::served(options.connect(servers))
    }

    /// Creates a client without waiting for a server, like [`ClientBuilder::connect_later`].
    ///
    /// # Errors
    /// As [`ClientBuilder::connect_later`], and if the thread cannot be started.
    ///
    /// # Panics
    /// In async code.
    #[track_caller]
    pub fn connect_later(options: ClientBuilder, servers: &str) -> Result<Self, ConnectError> {
        Self::served(async { options.connect_later(servers) })
    }

    /// Connects in a runtime that a thread drives as long as the client exists.
    #[track_caller]
    fn served(
        connect: impl Future<Output = Result<lockkeeper_client::Client, ConnectError>>,
    ) -> Result<Self, ConnectError> {
        let failed = |error: std::io::Error| ConnectError::Io(error.to_string());
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();

        let (connected, status) = oneshot::channel::<watch::Receiver<Status>>();
        let serve = async {
            let Ok(mut status) = status.await else { return };
            // Clones of a client whose session has been closed must still return errors.
            while status.changed().await.is_ok() {}
        };
        let thread = thread::Builder::new().name("lockkeeper".into());
        thread.spawn(move || runtime.block_on(serve)).map_err(failed)?;

        let client = handle.block_on(connect)?;
        let _ = connected.send(client.status());
        Ok(Self(client))
    }
}

impl Deref for Client {
    type Target = lockkeeper_client::Client;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // The program may end right after this, and the thread releases the locks.
        let (closed, is_closed) = mpsc::channel();
        let client = self.0.clone();
        self.0.tokio_runtime().spawn(async move {
            client.close().await;
            let _ = closed.send(());
        });
        let _ = is_closed.recv_timeout(CLOSING_LIMIT);
    }
}
