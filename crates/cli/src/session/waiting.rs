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
    /// Wait no longer than this
    #[arg(id = "wait", short, long = "wait", visible_alias = "timeout", value_name = "DURATION",
          value_parser = names::duration, allow_hyphen_values = true)]
    pub(crate) limit: Option<Duration>,

    /// The exit code if the lock was not free
    #[arg(short = 'E', long, value_name = "N", default_value_t = Exit::No.code())]
    pub(crate) conflict_exit_code: u8,

    /// As the options of all commands say.
    #[arg(skip)]
    pub(crate) quiet: bool,

    /// Whether a wait in a deadlock is given up.
    #[arg(skip)]
    pub(crate) detects_deadlocks: bool,
}

impl WaitOptions {
    /// Opens a session within the limit, of which the rest is left.
    pub(crate) async fn connect(&mut self, global: &Global) -> Result<Connection, Failure> {
        self.quiet = global.quiet;
        let connection = Connection::open_within(global, &mut self.limit).await?;
        connection.introduce_engine(global);
        Ok(connection)
    }
}

/// After this, the user is told whom the command is waiting for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// The pause before what failed for now is asked for again.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Tells the user what they are waiting for, once and unless they want it `quiet`; and never ends.
pub(crate) async fn notice(quiet: bool, what: impl Future<Output = String>) -> Infallible {
    sleep(PATIENCE).await;
    if !quiet {
        tell(&what.await);
    }
    pending().await
}

/// Ends after the limit, if there is one.
pub(crate) async fn over(limit: Option<Duration>) {
    match limit {
        Some(limit) => sleep(limit).await,
        None => pending().await,
    }
}

/// Who holds a lock and who waits for it; `None` if there is nothing, or it cannot be seen now.
pub(crate) async fn queue(client: &Client, lock: &ZnodePath) -> Option<LockQueue> {
    timeout(PATIENCE, LockQueue::inspect(client, lock)).await.ok()?.ok()?
}

/// Whether the next request waits for a connection.
pub(crate) fn is_passing(error: &Error) -> bool {
    error.is_session_expired() || (error.is_retryable() && !error.is_unreachable())
}

/// Returns when a request that failed may be made again: after a moment, and under a limit also when servers
/// that were away can be reached.
///
/// # Errors
/// The error of the request, if it fails for good.
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
