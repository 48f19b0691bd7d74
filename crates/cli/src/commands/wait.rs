//! `lockkeeper wait`: waits until a lock is free, without acquiring it.

use std::time::Duration;

use clap::Args;
use lockkeeper::inspect::{self, LockQueue};
use lockkeeper::overview::PathUse;
use lockkeeper::{Client, Error, ZnodePath};

use crate::session::connect::Connection;
use crate::session::path_use;
use crate::session::waiting::WaitOptions;
use crate::session::{nested, waiting};
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::output::tell;
use crate::shared::{names, view};

const NOTES: &str = "\
Another program may acquire the lock as soon as this command returns. Use `lockkeeper run` for work that must \
not overlap with other holders.

If the last holder ended without releasing the lock, and it had a lock delay (run --lock-delay), the lock is free \
when that delay has passed. The delay counts from when this command first sees it.

Exit codes: 0, the lock is free; 1, or the code of -E, it was not free in time; 75, no server answered.";

/// Wait until a lock is free, without acquiring it
#[derive(Debug, Args)]
#[command(after_long_help = NOTES)]
pub(crate) struct WaitUntilFreeOptions {
    /// The lock
    #[arg(value_parser = names::lock)]
    lock: ZnodePath,

    #[command(flatten)]
    wait: WaitOptions,
}

/// Waits until the lock is free.
pub(crate) async fn wait(
    global: &Global,
    mut options: WaitUntilFreeOptions,
) -> Result<u8, Failure> {
    let connection = options.wait.connect(global).await?;
    let result = within(&connection, &options).await;
    connection.close().await;
    result
}

async fn within(connection: &Connection, options: &WaitUntilFreeOptions) -> Result<u8, Failure> {
    let (client, lock) = (&connection.client, &options.lock);
    let WaitOptions { limit: given, conflict_exit_code, quiet, .. } = options.wait;
    path_use::check(client, lock, PathUse::Lock).await?;
    if given.is_none() {
        nested::check(connection, lock, |_| false).await?;
    }

    // A free lock is free even if the time limit is zero.
    let limit = given.filter(|limit| !limit.is_zero());
    if given != limit && is_free(client, lock, limit).await? {
        return Ok(Exit::Ok.code());
    }

    let what = async { format!("waiting until {lock} is free{}", held_by(client, lock).await) };
    tokio::select! {
        free = until_free(client, lock, limit) => {
            free?;
            return Ok(Exit::Ok.code());
        }
        failure = connection.keep_engine() => return Err(failure),
        never = waiting::notice(quiet, what) => match never {},
        () = waiting::over(given) => {}
    }

    connection.still_there(lock.as_str())?;
    if !quiet {
        tell(&format!("{lock} is not free{}", held_by(client, lock).await));
    }
    Ok(conflict_exit_code)
}

async fn until_free(
    client: &Client,
    lock: &ZnodePath,
    limit: Option<Duration>,
) -> Result<(), Error> {
    while let Err(error) = inspect::wait_until_free(client, lock).await {
        waiting::outlast(client, error, limit).await?;
    }
    Ok(())
}

async fn is_free(
    client: &Client,
    lock: &ZnodePath,
    limit: Option<Duration>,
) -> Result<bool, Error> {
    loop {
        match LockQueue::inspect(client, lock).await {
            Ok(queue) => return Ok(queue.is_none_or(|queue| view::is_free(&queue))),
            Err(error) => waiting::outlast(client, error, limit).await?,
        }
    }
}

/// ", held by ..."; empty if the queue cannot be read now.
async fn held_by(client: &Client, lock: &ZnodePath) -> String {
    let queue = waiting::queue(client, lock).await;
    queue.as_ref().map(view::held_by).unwrap_or_default()
}
