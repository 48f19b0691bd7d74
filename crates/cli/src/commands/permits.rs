//! `lockkeeper permits`: the number of permits of a lock.

use clap::{Args, Subcommand};
use lockkeeper::inspect::LockQueue;
use lockkeeper::{Client, ErrorCode, Kind, Profile, Semaphore, SemaphoreProfile, Usage, ZnodePath};
use serde::Serialize;

use crate::session::connect::Connection;
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::{names, output, view};

const SHOW_NOTES: &str = "\
The number is stored in the lock's znode by the first run with --permits, or by lockkeeper permits set. \
It stays for about a minute after the last use. Exit code: 1 if no number is stored.";

const SET_NOTES: &str = "\
Waiting runs notice the change immediately. No run loses a permit: after a reduction, more permits may be held for a \
while than exist. lockkeeper show lists runs that hold too many as waiting, and revoke does not ask them, because \
their nodes look like those of waiting runs. Later runs must pass the new number to --permits, or use \
--any-permits.";

/// A subcommand of `permits`.
#[derive(Debug, Subcommand)]
pub(crate) enum PermitsTask {
    /// Show the number of permits of a lock
    #[command(after_long_help = SHOW_NOTES)]
    Show(SemaphoreLock),
    /// Change the number of permits of a lock
    #[command(after_long_help = SET_NOTES)]
    Set {
        #[command(flatten)]
        lock: SemaphoreLock,

        /// The new number of permits
        #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        permits: u32,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SemaphoreLock {
    /// The lock
    #[arg(value_parser = names::lock)]
    lock: ZnodePath,
}

/// The number as JSON. The field names are stable.
#[derive(Debug, Serialize)]
struct ShownPermits<'a> {
    lock: &'a str,
    /// `null` if no number is stored.
    permits: Option<u32>,
}

/// Shows the number, or changes it.
pub(crate) async fn permits(global: &Global, task: PermitsTask) -> Result<u8, Failure> {
    let (lock, wanted) = match task {
        PermitsTask::Show(SemaphoreLock { lock }) => (lock, None),
        PermitsTask::Set { lock: SemaphoreLock { lock }, permits } => (lock, Some(permits)),
    };
    let number = Connection::during(global, async |connection| {
        let client = &connection.client;
        let stored = stored(client, &lock, wanted.is_some()).await?;
        let Some(wanted) = wanted else { return Ok(stored) };
        Semaphore::new(client, lock.as_str(), wanted)?.set_permits(wanted).await?;
        if stored.is_some_and(|stored| stored > wanted) {
            output::tell(&format!(
                "{lock}: runs that hold more than {} keep their permits until they end, and are shown as waiting",
                view::permits(wanted)
            ));
        }
        Ok(Some(wanted))
    });
    let number = number.await?;

    let lock = lock.as_str();
    output::show(global, &ShownPermits { lock, permits: number }, || match number {
        Some(number) => format!("{lock}: {}\n", view::permits(number)),
        None => format!("{lock}: no number of permits is stored\n"),
    })?;
    Ok(if number.is_some() { Exit::Ok } else { Exit::No }.code())
}

/// The stored number; `None` if the lock is not in use.
///
/// Rejects a lock of another kind, and one whose programs do not read the stored number; if it `is_changed`, also one
/// whose programs read it only once.
async fn stored(
    client: &Client,
    lock: &ZnodePath,
    is_changed: bool,
) -> Result<Option<u32>, Failure> {
    let refuse = |why: &str| Err(Failure::new(Exit::Data, format!("{lock} {why}")));
    let Some(queue) = LockQueue::inspect(client, lock).await? else { return Ok(None) };
    if queue.is_node() {
        return refuse("is held as a single znode, without permits");
    }

    let names = match client.children(lock).await {
        Ok((names, _)) => names,
        Err(error) if error.code() == Some(ErrorCode::NoNode) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let is_curators = |name: &String| SemaphoreProfile::CURATORS_CHILDREN.contains(&name.as_str());
    if !names.is_empty() && names.iter().all(is_curators) {
        return refuse(
            "is a semaphore in Curator's layout, which does not store the number of permits: each program \
             has its own number",
        );
    }

    let is_lease = |kind| kind == Kind::Lease;
    let is_kazoos = queue.profile == Some(Profile::Kazoo)
        && queue.entries.first().is_some_and(|entry| is_lease(entry.kind));
    if is_changed && (is_kazoos || has_kazoos_gate(client, lock).await?) {
        return refuse(
            "is a semaphore in kazoo's layout, whose programs read the number of permits only once: \
             change it in all of them",
        );
    }
    let is_semaphore = is_kazoos || matches!(Usage::of(&names), Some((_, Usage::Semaphore)));
    if !names.is_empty() && !is_semaphore {
        return refuse("is in use, and not with permits");
    }

    let is_other_data = queue.permits.is_none() && !client.data(lock).await?.0.is_empty();
    if is_other_data {
        return refuse("contains data that is not a number of permits");
    }
    Ok(queue.permits)
}

/// Whether kazoo's semaphore has used the lock: its gate node stays.
async fn has_kazoos_gate(client: &Client, lock: &ZnodePath) -> Result<bool, Failure> {
    match ZnodePath::new(&format!("{lock}-__lock__")) {
        Ok(gate) => Ok(client.exists(&gate).await?.is_some()),
        Err(_) => Ok(false),
    }
}
