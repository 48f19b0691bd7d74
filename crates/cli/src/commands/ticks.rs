//! `lockkeeper ticks`: the history of `run --once-per` and `run --every` under a lock.

use std::time::SystemTime;

use clap::Args;
use lockkeeper::{ErrorCode, Once, OnceError, OnceKey, OnceRecord, TransactionError, ZnodePath};
use serde::Serialize;

use crate::session::connect::Connection;
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::{names, output, view};

const NOTES: &str = "\
A tick is a time at which the command was due (run --every), by the clock of the machine that ran it; a key is \
the KEY of run --once-per. Start times are by the servers' clock. A run without an end is still running, or has ended \
without a record, for example because its machine died or a signal ended the command.

The newest 1000 ticks and 1000 keys are kept, or up to an eighth more. A tick that is no longer listed does not run \
again; a key does.

--forget takes a key as listed here. The command then runs again for it. A tick cannot be forgotten: no \
tick runs again after a later one.

Exit code: 1 if there is nothing to list, or to forget.";

/// List the runs of run --once-per and run --every
#[derive(Debug, Args)]
#[command(after_long_help = NOTES)]
pub(crate) struct TicksOptions {
    /// The lock of the runs
    #[arg(value_parser = names::lock)]
    lock: ZnodePath,

    /// List only the newest N runs
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20, value_parser = names::nonzero)]
    last: usize,

    /// Delete the record of a key, so that the command runs again for it
    #[arg(long, value_name = "KEY", conflicts_with = "last")]
    forget: Option<String>,
}

/// Dates and times to the second.
const SECONDS: &str = "%F %T";

/// The runs as JSON, the oldest first. The field names are stable.
#[derive(Debug, Serialize)]
struct ListedTick<'a> {
    lock: &'a str,
    /// The last tick that was started; no earlier one runs.
    last_tick: Option<String>,
    runs: Vec<ListedRun<'a>>,
}

#[derive(Debug, Serialize)]
struct ListedRun<'a> {
    /// `tick` or `key`.
    kind: &'static str,
    /// The key, or the time of the tick.
    key: String,
    attempt: u32,
    began: String,
    /// `null` without an end.
    code: Option<i32>,
    took_ms: Option<u128>,
    token: String,
    owner: &'a lockkeeper::OwnerInfo,
}

/// Lists the runs, or forgets one.
pub(crate) async fn ticks(global: &Global, options: TicksOptions) -> Result<u8, Failure> {
    if let Some(key) = &options.forget {
        return forget(global, &options.lock, key).await;
    }
    let found = Connection::during(global, async |connection| {
        let once = Once::new(&connection.client, options.lock.as_str())?;
        let (records, last) = tokio::join!(once.records(), once.last_tick());
        Ok((records.map_err(failure)?, last.map_err(failure)?))
    });
    let (mut records, last_tick) = found.await?;
    let more = records.len().saturating_sub(options.last);
    records.drain(..more);

    let lock = options.lock.as_str();
    let last_tick = last_tick.map(|tick| key(&tick.into()));
    let listed = ListedTick { lock, last_tick, runs: records.iter().map(ListedRun::new).collect() };
    output::show(global, &listed, || describe(lock, &records, more))?;
    Ok(if records.is_empty() { Exit::No } else { Exit::Ok }.code())
}

async fn forget(global: &Global, lock: &ZnodePath, key: &str) -> Result<u8, Failure> {
    let was_there = Connection::during(global, async |connection| {
        let once = Once::new(&connection.client, lock.as_str())?;
        once.forget(key).await.map_err(failure)
    });
    if was_there.await? {
        return Ok(Exit::Ok.code());
    }
    output::tell(&format!(
        "{lock} has no record of the key {}; a tick cannot be forgotten",
        view::short(key)
    ));
    Ok(Exit::No.code())
}

impl<'a> ListedRun<'a> {
    fn new(record: &'a OnceRecord) -> Self {
        Self {
            kind: if matches!(record.key, OnceKey::Tick(_)) { "tick" } else { "key" },
            key: key(&record.key),
            attempt: record.attempt,
            began: utc(record.began),
            code: record.end.map(|end| end.code),
            took_ms: record.end.map(|end| end.took.as_millis()),
            token: record.token.to_string(),
            owner: &record.owner,
        }
    }
}

fn describe(lock: &str, records: &[OnceRecord], more: usize) -> String {
    if records.is_empty() {
        return format!("no command was recorded under {lock}\n");
    }
    let heading = ["FOR", "BEGAN", "TOOK", "CODE", "ATTEMPT", "WHERE"].map(str::to_owned);
    let mut rows = vec![heading.to_vec()];
    rows.extend(records.iter().map(row));
    let table = view::table(&rows);
    match more {
        0 => table,
        more => format!("{table}and {more} earlier ones (--last)\n"),
    }
}

fn row(record: &OnceRecord) -> Vec<String> {
    let (took, code) = match record.end {
        Some(end) => (view::duration(end.took), end.code.to_string()),
        None => ("-".to_owned(), "-".to_owned()),
    };
    vec![
        shown(&record.key),
        view::local(record.began, SECONDS),
        took,
        code,
        record.attempt.to_string(),
        view::program(&record.owner),
    ]
}

/// A key as text: a name, or the time of a tick in UTC.
pub(crate) fn key(key: &OnceKey) -> String {
    match key {
        OnceKey::Named(name) => name.clone(),
        OnceKey::Tick(tick) => utc(tick.time()),
    }
}

/// A key for people: a name, or the local time of a tick.
pub(crate) fn shown(key: &OnceKey) -> String {
    match key {
        OnceKey::Named(name) => view::short(name),
        OnceKey::Tick(tick) => view::local(tick.time(), "%F %T%.f"),
    }
}

/// Describes a run: "web1 pid 123 (backup.sh) began at ..., and ended after 4s with exit code 0".
pub(crate) fn story(record: &OnceRecord) -> String {
    let (who, began) = (view::program(&record.owner), view::local(record.began, SECONDS));
    let again = match record.attempt {
        1 => String::new(),
        attempt => format!(" (attempt {attempt})"),
    };
    match record.end {
        Some(end) => {
            let (took, code) = (view::duration(end.took), end.code);
            format!("{who} began{again} at {began} and ended after {took} with exit code {code}")
        }
        None => format!("{who} began{again} at {began}, and no end is recorded"),
    }
}

fn utc(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).map_or_else(|_| "?".to_owned(), |time| time.to_string())
}

/// The failure if the records cannot be read or written.
pub(crate) fn failure(error: OnceError) -> Failure {
    let exit = match error {
        OnceError::Read(error) | OnceError::Write(TransactionError::Request(error)) => {
            return error.into();
        }
        OnceError::Key(error) => return error.into(),
        OnceError::Write(TransactionError::Failed { code: ErrorCode::NoAuth, .. }) => {
            Exit::NoPermission
        }
        _ => Exit::Data,
    };
    Failure::new(exit, error.to_string())
}
