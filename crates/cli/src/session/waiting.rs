//! What all waits for a lock have in common.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use clap::Args;
use lockkeeper::inspect::LockQueue;
use lockkeeper::{Client, Error, ZnodePath};
use tokio::time::{sleep, timeout};

use crate::session::connect::Connection;
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::names;
use crate::shared::output::tell;

/// The options of every command that waits for a lock.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct WaitOptions {
    /// The maximum time to wait
    #[arg(id = "wait", short, long = "wait", visible_alias = "timeout", value_name = "DURATION",
          value_parser = names::duration, allow_hyphen_values = true)]
    pub(crate) limit: Option<Duration>,

    /// The exit code if the lock was not free
    #[arg(short = 'E', long, value_name = "N", default_value_t = Exit::No.code())]
    pub(crate) conflict_exit_code: u8,

    /// The value of the global option.
    #[arg(skip)]
    pub(crate) quiet: bool,

    /// Whether to give up a wait that is part of a deadlock.
    #[arg(skip)]
    pub(crate) detects_deadlocks: bool,
}

impl WaitOptions {
    /// Opens a session within the time limit, and subtracts the time that this takes.
    pub(crate) async fn connect(&mut self, global: &Global) -> Result<Connection, Failure> {
        self.quiet = global.quiet;
        let connection = Connection::open_within(global, &mut self.limit).await?;
        connection.introduce_engine(global);
        Ok(connection)
    }
}

/// How long a wait may take before a notice names the holders.
pub(crate) const NOTICE_DELAY: Duration = Duration::from_secs(1);

/// The pause before a request that failed temporarily is repeated.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Prints what the command waits for, once and unless `quiet` is set. Never returns.
pub(crate) async fn notice(quiet: bool, what: impl Future<Output = String>) -> Infallible {
    sleep(NOTICE_DELAY).await;
    if !quiet {
        tell(&what.await);
    }
    pending().await
}

/// Returns after the time limit, if there is one.
pub(crate) async fn over(limit: Option<Duration>) {
    match limit {
        Some(limit) => sleep(limit).await,
        None => pending().await,
    }
}

/// The holders and waiters of a lock; `None` if it does not exist or cannot be read now.
pub(crate) async fn queue(client: &Client, lock: &ZnodePath) -> Option<LockQueue> {
    timeout(NOTICE_DELAY, LockQueue::inspect(client, lock)).await.ok()?.ok()?
}

/// Whether the next request waits for a connection.
pub(crate) fn is_passing(error: &Error) -> bool {
    error.is_session_expired() || (error.is_retryable() && !error.is_unreachable())
}

/// Returns when a failed request can be repeated: after a moment, or after servers that were unreachable can be reached
/// again within the time limit.
///
/// # Errors
/// The error of the request, if it is permanent.
pub(crate) async fn outlast(
    client: &Client,
    error: Error,
    limit: Option<Duration>,
) -> Result<(), Error> {
    if limit.is_some() && error.is_unreachable() {
        client.reachable().await;
    } else if !is_passing(&error) {
        return Err(error);
    }
    sleep(LOOK_AGAIN).await;
    Ok(())
}
