//! `lockkeeper queue`: puts and manages items. `run/items` works on them.

use std::ffi::OsString;
use std::fmt::Write;
use std::time::Duration;

use bytes::Bytes;
use clap::{Args, Subcommand};
use lockkeeper::overview::PathUse;
use lockkeeper::{
    Client, DeadLetter, ItemState, OwnerInfo, PutOptions, Queue, QueueError, QueueReport,
    QueuedItem, Raw, ZnodePath,
};
use serde::Serialize;
use tokio::task::spawn_blocking;

use crate::commands::run::items::{WorkOptions, work};
use crate::session::connect::Connection;
use crate::session::limited::{Limit, with_limit};
use crate::session::path_use;
use crate::shared::content::{self, content};
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::output::{print_value, tell};
use crate::shared::{names, output, view};

/// The maximum number of items in one transaction, and their maximum size in bytes.
const MAX_BATCH_ITEMS: usize = 500;
const MAX_BATCH_BYTES: usize = 256 * 1024;

const NOTES: &str = "\
An item consists of any bytes. Programs on the library read JSON by default; a script that puts items for them must \
write JSON.

Examples:
  lockkeeper queue put jobs cat.jpg dog.jpg
  find . -name '*.jpg' | lockkeeper queue put --lines jobs
  lockkeeper queue work jobs -- ./resize
  lockkeeper queue ls jobs
  lockkeeper queue retry --all jobs

Exit codes: 1, there is no item, no item with that id, or it is being worked on; 69, the queue already has an item \
with the id of put --id; others: \
lockkeeper run --help";

const TAKE_NOTES: &str = "\
The item is done after it was written to standard output. If that fails, it stays in the queue. For work that may \
fail, use lockkeeper queue work.";

/// A subcommand of `queue`.
#[derive(Debug, Subcommand)]
#[command(after_long_help = NOTES)]
pub(crate) enum QueueTask {
    /// Put items, or standard input as one item; print their ids
    Put(Box<PutArguments>),
    /// Take one item, print it byte for byte, and mark it as done
    #[command(after_long_help = TAKE_NOTES)]
    Take {
        #[command(flatten)]
        queue: QueueName,

        #[command(flatten)]
        limit: Limit,
    },
    Work(Box<WorkOptions>),
    /// List the items and the dead letters
    Ls {
        #[command(flatten)]
        queue: QueueName,

        /// List at most N items
        #[arg(long, value_name = "N", default_value_t = 100)]
        most: usize,
    },
    /// Put dead letters back into the queue
    Retry {
        #[command(flatten)]
        queue: QueueName,

        /// All dead letters
        #[arg(long, conflicts_with = "ids")]
        all: bool,

        /// The ids of the dead letters
        #[arg(value_name = "ID", required_unless_present = "all")]
        ids: Vec<String>,
    },
    /// Make waiting items dead letters
    Bury {
        #[command(flatten)]
        items: ItemNames,

        /// The reason, for others to read
        #[arg(long, value_name = "TEXT", default_value = "buried by hand",
              value_parser = names::remark)]
        reason: String,
    },
    /// Delete items in any state; a command that works on one is ended
    Cancel(ItemNames),
}

#[derive(Debug, Args)]
pub(crate) struct QueueName {
    /// The queue
    #[arg(value_name = "NAME", value_parser = names::lock)]
    name: ZnodePath,
}

#[derive(Debug, Args)]
pub(crate) struct ItemNames {
    #[command(flatten)]
    queue: QueueName,

    /// The ids of the items
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PutArguments {
    #[command(flatten)]
    queue: QueueName,

    /// The items; without them, standard input
    #[arg(value_name = "ITEM")]
    items: Vec<OsString>,

    /// Put each line of standard input as an item
    #[arg(long, conflicts_with_all = ["items", "id"])]
    lines: bool,

    /// Items with a lower number are taken first [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,

    /// Do not take it before this time has passed
    #[arg(long, value_name = "DURATION", value_parser = names::duration, allow_hyphen_values = true)]
    delay: Option<Duration>,

    /// The key of the item: of the items with one key, only one is worked on at a time, in order
    #[arg(long, value_name = "TEXT")]
    key: Option<String>,

    /// The id of the item; fails with 69 if the queue already has an item with this id
    #[arg(long, value_name = "ID")]
    id: Option<String>,
}

/// The result of a put, as JSON. The field names are stable.
#[derive(Debug, Serialize)]
struct ShownPut<'a> {
    queue: &'a str,
    ids: &'a [String],
}

#[derive(Debug, Serialize)]
struct ShownItem<'a> {
    queue: &'a str,
    id: &'a str,
    attempt: u32,
    /// `null` if it is not UTF-8.
    text: Option<&'a str>,
    /// In base64, if it is not UTF-8.
    base64: Option<String>,
}

#[derive(Debug, Serialize)]
struct ShownQueue<'a> {
    queue: &'a str,
    /// Whether the queue exists.
    exists: bool,
    waiting: usize,
    claimed: usize,
    delayed: usize,
    dead: usize,
    workers: usize,
    idle: usize,
    retries: u64,
    oldest_unix_ms: Option<u64>,
    items: Vec<ListedItem<'a>>,
    dead_letters: Vec<ListedLetter<'a>>,
}

#[derive(Debug, Serialize)]
struct ListedItem<'a> {
    id: &'a str,
    /// `waiting`, `claimed` or `delayed`.
    state: &'static str,
    attempts: u32,
    since_unix_ms: u64,
    due_unix_ms: Option<u64>,
    priority: i32,
    key: Option<&'a str>,
    holder: Option<&'a OwnerInfo>,
    reason: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct ListedLetter<'a> {
    id: &'a str,
    reason: &'a str,
    attempts: u32,
    since_unix_ms: u64,
    holder: Option<&'a OwnerInfo>,
}

/// The result of a request about some items, as JSON.
#[derive(Debug, Serialize)]
struct ShownDone<'a> {
    queue: &'a str,
    done: &'a [String],
    /// The ids that do not exist.
    missing: &'a [String],
    /// The items that exist, but in the wrong state.
    left: Vec<ListedItem<'a>>,
}

/// Puts, takes, lists or changes items.
pub(crate) async fn queue(global: &Global, task: QueueTask) -> Result<u8, Failure> {
    match task {
        QueueTask::Put(arguments) => put(global, *arguments).await,
        QueueTask::Take { queue, limit } => take(global, &queue.name, limit).await,
        QueueTask::Work(options) => work(global, *options).await,
        QueueTask::Ls { queue, most } => ls(global, &queue.name, most).await,
        QueueTask::Retry { queue: QueueName { name }, all, ids } => {
            each(global, &name, ids, all, async |queue, id| queue.put_back(id).await).await
        }
        QueueTask::Bury { items: ItemNames { queue: QueueName { name }, ids }, reason } => {
            let bury = async |queue: &Queue<Bytes>, id: &str| queue.bury(id, &reason).await;
            each(global, &name, ids, false, bury).await
        }
        QueueTask::Cancel(ItemNames { queue: QueueName { name }, ids }) => {
            each(global, &name, ids, false, async |queue, id| queue.cancel(id).await).await
        }
    }
}

fn open(client: &Client, name: &ZnodePath) -> Result<Queue<Bytes>, Failure> {
    let queue = Queue::<Bytes>::builder(client, name.as_str()).build_with(Raw);
    queue.map_err(|error| Failure::of_recipe(&error))
}

/// Works with a queue. A failure names the recipe that uses the path, if it is another one.
async fn with_queue<T>(
    client: &Client,
    name: &ZnodePath,
    work: impl AsyncFnOnce(Queue<Bytes>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let result = work(open(client, name)?).await;
    path_use::explained(client, name, PathUse::Queue, result).await
}

async fn put(global: &Global, arguments: PutArguments) -> Result<u8, Failure> {
    let PutArguments { queue: QueueName { name }, items, lines, priority, delay, key, id } =
        arguments;
    if id.is_some() && items.len() > 1 {
        return Err(Failure::new(Exit::Usage, "--id requires exactly one item"));
    }
    let items: Vec<Bytes> = match (lines, items.is_empty()) {
        (true, _) => content::lines()?.into_iter().map(Bytes::from).collect(),
        (false, true) => vec![content(None)?.into()],
        (false, false) => items
            .into_iter()
            .map(|item| content(Some(item)).map(Bytes::from))
            .collect::<Result<_, _>>()?,
    };

    let mut options = PutOptions::new();
    if let Some(priority) = priority {
        options = options.priority(priority);
    }
    if let Some(delay) = delay {
        options = options.delay(delay);
    }
    options = key.into_iter().fold(options, PutOptions::key);
    options = id.into_iter().fold(options, PutOptions::id);
    let is_plain = options == PutOptions::new();

    let mut put = Vec::new();
    let put_all = async |queue: Queue<Bytes>| {
        let of_queue = |error: QueueError| match &error {
            QueueError::Exists { .. } => Failure::new(Exit::Taken, error.to_string()),
            QueueError::Options { .. } => Failure::new(Exit::Usage, error.to_string()),
            _ => Failure::of_recipe(&error),
        };
        if !is_plain {
            for item in &items {
                put.push(queue.put_with(item, &options).await.map_err(of_queue)?);
            }
            return Ok(());
        }
        for items in batches(&items) {
            put.extend(queue.put_all(items).await.map_err(of_queue)?);
        }
        Ok(())
    };
    let result = Connection::during(global, async |connection| {
        with_queue(&connection.client, &name, put_all).await
    });
    let result = result.await;

    let lines = || put.iter().fold(String::new(), |text, id| text + id + "\n");
    // Also print the ids of items before the one that failed.
    if result.is_ok() || !put.is_empty() {
        output::show(global, &ShownPut { queue: name.as_str(), ids: &put }, lines)?;
    }
    result.map_err(|failure| match put.len() {
        0 => failure,
        some => failure
            .about(&format!("{some} of {} items were put; the next one was not", items.len())),
    })?;
    Ok(Exit::Ok.code())
}

/// Splits items into groups that fit into one transaction each.
fn batches(mut items: &[Bytes]) -> impl Iterator<Item = &[Bytes]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |item: &&Bytes| {
            bytes += item.len();
            bytes <= MAX_BATCH_BYTES
        };
        let count = items.iter().take(MAX_BATCH_ITEMS).take_while(fits).count().max(1);
        let (batch, rest) = items.split_at_checked(count)?;
        items = rest;
        Some(batch)
    })
}

async fn take(global: &Global, name: &ZnodePath, limit: Limit) -> Result<u8, Failure> {
    if output::is_closed() {
        let message = "standard output is closed, so the item would be lost";
        return Err(Failure::new(Exit::Disk, message).advise("to drop an item, use queue cancel"));
    }
    let take = async |queue: Queue<Bytes>| {
        let taken = match limit.nonblock {
            true => queue.try_take().await,
            false => queue.take().await.map(Some),
        };
        let Some(item) = taken.map_err(|error| Failure::of_recipe(&error))? else {
            return Ok(Exit::No.code());
        };
        let text = match global.json {
            true => format!("{:#}\n", output::json(&ShownItem::new(name, &item))?).into(),
            false => item.value().clone(),
        };
        // Not on this thread: a slow reader must delay neither a renewal nor a signal.
        let printed = spawn_blocking(move || print_value(&text)).await;
        printed.map_err(|error| Failure::new(Exit::Bug, error.to_string()))??;
        item.done().await.map_err(|error| {
            Failure::of_recipe(&error).advise("the item was printed, but may be taken again")
        })?;
        Ok(Exit::Ok.code())
    };
    let ended = with_limit(global, limit.time, async |connection| {
        with_queue(&connection.client, name, take).await
    });
    ended.await?.code(Ok)
}

/// Applies a request to each of these items, or to all dead letters.
async fn each(
    global: &Global,
    name: &ZnodePath,
    ids: Vec<String>,
    all: bool,
    change: impl AsyncFn(&Queue<Bytes>, &str) -> Result<bool, QueueError>,
) -> Result<u8, Failure> {
    let (mut done, mut missing, mut left) = (Vec::new(), Vec::new(), Vec::new());
    let change_all = async |queue: Queue<Bytes>| {
        let ids = match all {
            true => queue.dead_letters().await.map(|all| all.into_iter().map(|it| it.id).collect()),
            false => Ok(ids),
        };
        for id in ids.map_err(|error| Failure::of_recipe(&error))? {
            match change(&queue, &id).await.map_err(|error| Failure::of_recipe(&error))? {
                true => done.push(id),
                // Another program was faster.
                false if all => {}
                false => missing.push(id),
            }
        }
        if !missing.is_empty() {
            let listed = queue.items(usize::MAX).await;
            left = listed.map_err(|error| Failure::of_recipe(&error))?;
            left.retain(|item| missing.contains(&item.id));
            missing.retain(|id| left.iter().all(|item| item.id != *id));
        }
        Ok(())
    };
    Connection::during(global, async |connection| {
        with_queue(&connection.client, name, change_all).await
    })
    .await?;

    let (queue, listed) = (name.as_str(), left.iter().map(ListedItem::new).collect());
    let shown = ShownDone { queue, done: &done, missing: &missing, left: listed };
    output::show(global, &shown, || done.iter().fold(String::new(), |text, id| text + id + "\n"))?;
    for id in &missing {
        tell(&view::printable(&format!("{name} does not have item {id}: see lockkeeper queue ls")));
    }
    for item in &left {
        let state = match (&item.holder, item.state) {
            (Some(holder), ItemState::Claimed) => {
                format!("is being worked on by {}: only cancel can end it", view::program(holder))
            }
            (None, ItemState::Claimed) => "is being worked on: only cancel can end it".to_owned(),
            (_, ItemState::Delayed) => "is delayed, not a dead letter".to_owned(),
            _ => "is waiting, not a dead letter".to_owned(),
        };
        tell(&format!("{name}: item {} {state}", view::printable(&item.id)));
    }
    Ok(if missing.is_empty() && left.is_empty() { Exit::Ok } else { Exit::No }.code())
}

async fn ls(global: &Global, name: &ZnodePath, most: usize) -> Result<u8, Failure> {
    let look = async |queue: Queue<Bytes>| {
        let look = async {
            Ok((queue.inspect().await?, queue.items(most).await?, queue.dead_letters().await?))
        };
        match look.await {
            Ok(found) => Ok(Some(found)),
            Err(QueueError::Deleted { .. }) => Ok(None),
            Err(error) => Err(Failure::of_recipe(&error)),
        }
    };
    let found = Connection::during(global, async |connection| {
        with_queue(&connection.client, name, look).await
    });
    let found = found.await?;
    let exists = found.is_some();
    let (report, items, dead) = found.unwrap_or_default();
    let shown = ShownQueue { exists, ..ShownQueue::new(name, &report, &items, &dead) };
    output::show(global, &shown, || match exists {
        true => describe(name, &report, &items, &dead),
        false => format!("no queue at {name}\n"),
    })?;
    Ok(Exit::Ok.code())
}

fn describe(
    name: &ZnodePath,
    report: &QueueReport,
    items: &[QueuedItem],
    dead: &[DeadLetter],
) -> String {
    let QueueReport { waiting, claimed, delayed, workers, idle, .. } = report;
    let oldest = match report.oldest_unix_ms {
        Some(_) => format!("; oldest {}", view::duration(report.age_of_oldest())),
        None => String::new(),
    };
    let mut text = format!(
        "{name}: {waiting} waiting, {claimed} worked on, {delayed} later, {} dead; {workers} workers, \
         {idle} idle{oldest}\n",
        report.dead
    );

    let rows: Vec<_> = items.iter().map(row).chain(dead.iter().map(dead_row)).collect();
    if rows.is_empty() {
        return text;
    }
    let width = rows.iter().map(|row| row[0].len()).max().unwrap_or_default().max("ITEM".len());
    let _ = writeln!(text, "{:width$}  STATE    TRIES  AGE       DETAIL", "ITEM");
    for [id, state, tries, age, detail] in rows {
        let line = format!("{id:width$}  {state:<7}  {tries:<5}  {age:<8}  {detail}");
        text += line.trim_end();
        text.push('\n');
    }
    if items.len() < waiting + claimed + delayed {
        let _ = writeln!(text, "the first {} items; --most lists more", items.len());
    }
    text
}

/// The columns of an item: its id, state, tries, age and details.
fn row(item: &QueuedItem) -> [String; 5] {
    let detail = match (&item.holder, &item.reason) {
        (Some(holder), _) if item.state == ItemState::Claimed => view::program(holder),
        (_, Some(reason)) => match due(item) {
            Some(due) => format!("{due}: {}", view::printable(reason)),
            None => view::printable(reason),
        },
        _ => due(item).unwrap_or_default(),
    };
    let age = view::duration(age(item.since_unix_ms));
    [item.id.clone(), word(item.state).to_owned(), item.attempts.to_string(), age, detail]
}

fn dead_row(letter: &DeadLetter) -> [String; 5] {
    let age = view::duration(age(letter.since_unix_ms));
    let reason = view::printable(&letter.reason);
    [letter.id.clone(), "dead".to_owned(), letter.attempts.to_string(), age, reason]
}

/// When a delayed item becomes due, by this machine's clock.
fn due(item: &QueuedItem) -> Option<String> {
    let due = std::time::UNIX_EPOCH + Duration::from_millis(item.due_unix_ms?);
    let left = due.duration_since(std::time::SystemTime::now());
    Some(left.map_or("due now".to_owned(), |left| format!("due in {}", view::duration(left))))
}

fn age(since_unix_ms: u64) -> Duration {
    let since = std::time::UNIX_EPOCH + Duration::from_millis(since_unix_ms);
    since.elapsed().unwrap_or_default()
}

fn word(state: ItemState) -> &'static str {
    match state {
        ItemState::Claimed => "claimed",
        ItemState::Delayed => "delayed",
        _ => "waiting",
    }
}

impl<'a> ShownItem<'a> {
    fn new(name: &'a ZnodePath, item: &'a lockkeeper::Item<Bytes>) -> Self {
        let text = content::text(item.value());
        Self {
            queue: name.as_str(),
            id: item.id(),
            attempt: item.attempt(),
            text,
            base64: text.is_none().then(|| content::base64(item.value())),
        }
    }
}

impl<'a> ListedItem<'a> {
    fn new(item: &'a QueuedItem) -> Self {
        Self {
            id: &item.id,
            state: word(item.state),
            attempts: item.attempts,
            since_unix_ms: item.since_unix_ms,
            due_unix_ms: item.due_unix_ms,
            priority: item.priority,
            key: item.key.as_deref(),
            holder: item.holder.as_ref(),
            reason: item.reason.as_deref(),
        }
    }
}

impl<'a> ShownQueue<'a> {
    fn new(
        name: &'a ZnodePath,
        report: &QueueReport,
        items: &'a [QueuedItem],
        dead: &'a [DeadLetter],
    ) -> Self {
        let items = items.iter().map(ListedItem::new);
        let letters = dead.iter().map(|letter| ListedLetter {
            id: &letter.id,
            reason: &letter.reason,
            attempts: letter.attempts,
            since_unix_ms: letter.since_unix_ms,
            holder: letter.holder.as_ref(),
        });
        Self {
            queue: name.as_str(),
            exists: true,
            waiting: report.waiting,
            claimed: report.claimed,
            delayed: report.delayed,
            dead: report.dead,
            workers: report.workers,
            idle: report.idle,
            retries: report.retries,
            oldest_unix_ms: report.oldest_unix_ms,
            items: items.collect(),
            dead_letters: letters.collect(),
        }
    }
}
