//! The locks and the other recipes in programs without async.
//!
//! A [`Client`] of this module is a [`lockkeeper::Client`](crate::Client) with a thread that serves its
//! connection. Locks are made with it as with any client. [`wait`](crate::Client::wait) waits for whatever
//! their methods return.
//!
//! # Guarantees
//!
//! - Those of each lock, and the same API.
//! - Any thread can wait, and several can wait at the same time.
//! - A guard that is dropped on any thread releases its lock.
//! - When the client is dropped, the locks that it still holds are released before the program goes on, unless
//!   no server confirms this within a second.
//!
//! # Not guaranteed
//!
//! Work does not stop by itself when a lock is lost: a thread cannot be stopped from outside. Call
//! [`Guard::ensure`](crate::Guard::ensure) or [`Guard::checkpoint`](crate::Guard::checkpoint) before each step,
//! or use tokens. [`Guard::run`](crate::Guard::run) and [`Election::lead`](crate::Election::lead) stop their
//! work only where it awaits something, and at the deadline also there: a leader that is to wait an outage out
//! says so ([`ride_out`](crate::ElectionBuilder::ride_out)).
//!
//! # Cost
//!
//! That of each lock, and a thread for each client that is connected here.
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

/// How long a client waits, when it is dropped, until its session is closed.
const CLOSING_LIMIT: Duration = Duration::from_secs(1);

/// The owner of a session, for programs without async; used as the [`lockkeeper::Client`](crate::Client) that it
/// is. Threads share it by reference.
///
/// When it is dropped, it ends the session as [`close`](crate::Client::close) does, and waits for that, for a
/// second at most. So keep it for as long as its locks, and do not move it into a task of its own runtime. Clones are of the client within, and do not keep the
/// session open.
#[derive(Debug)]
#[must_use = "the session is closed when it is dropped"]
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

    /// Makes a client without waiting for a server, as [`ClientBuilder::connect_later`].
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

    /// Connects in a runtime that a thread drives for as long as there is anything of the client.
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
            // What is left of a client after its session has been closed still answers: that it is closed.
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
        // A program may end right after this, and the thread releases the locks.
        let (closed, is_closed) = mpsc::channel();
        let client = self.0.clone();
        self.0.tokio_runtime().spawn(async move {
            client.close().await;
            let _ = closed.send(());
        });
        let _ = is_closed.recv_timeout(CLOSING_LIMIT);
    }
}
