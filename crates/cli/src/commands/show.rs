//! `lockkeeper show`: the holders and waiters of a lock.

use clap::Args;
use lockkeeper::inspect::LockQueue;
use lockkeeper::overview::PathUse;
use lockkeeper::{Client, ZnodePath};
use serde::Serialize;
use serde_json::Value;

use crate::session::connect::Connection;
use crate::session::follow::{Picture, follow};
use crate::session::path_use;
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::view::{self, Contender, Observed};
use crate::shared::{names, output};

const NOTES: &str = "\
SINCE is the time since the grant, if the holder has recorded it, and otherwise the time in the queue: the \
servers do not record when a lock is granted. `lockkeeper run` records it if the command has waited for longer \
than a second, and `lockkeeper hold` always does. With --watch, `observed` counts from when this command saw \
the change. Times are by the clock of the server, of the holder (held), and of this machine (observed).

WAITS FOR lists the positions of the contenders that a waiter must wait for.

Exit codes with --exit-code: 0, the lock is free; 1, it is held, others wait for it, or a lock delay \
is pending.";

/// Show a lock's holders and waiters, and a pending lock delay
#[derive(Debug, Args)]
#[command(after_long_help = NOTES)]
pub(crate) struct ShowOptions {
    /// The lock
    #[arg(value_parser = names::lock)]
    lock: ZnodePath,

    /// Show it again after each change, until Ctrl-C; with --json, one object on each line
    #[arg(long)]
    watch: bool,

    /// Exit with 0 if the lock is free, and with 1 if it is not
    #[arg(long, conflicts_with = "watch")]
    exit_code: bool,
}

/// The queue of a lock as JSON. The field names are stable.
#[derive(Debug, Serialize)]
struct ShownQueue<'a> {
    lock: &'a str,
    /// Whether the lock has a node; a lock without one is free.
    exists: bool,
    /// The number of permits, if the lock is a semaphore and the number is known.
    permits: Option<u32>,
    /// How many of them are free.
    permits_free: Option<u32>,
    /// A pending lock delay.
    delay: Option<view::Delay<'a>>,
    contenders: Vec<Contender<'a>>,
    /// Children that are not contenders.
    foreign: &'a [String],
}

/// The state of the queue of a lock.
struct SeenQueue<'a> {
    lock: &'a ZnodePath,
    queue: Option<LockQueue>,
    /// The recipe that uses the path; known only for a queue without contenders.
    used: Option<PathUse>,
}

/// Shows the queue of a lock.
pub(crate) async fn show(global: &Global, options: ShowOptions) -> Result<u8, Failure> {
    let lock = &options.lock;
    let look = async |client: &Client| {
        let queue = LockQueue::inspect(client, lock).await?;
        let used = match queue.as_ref().is_some_and(view::is_free) {
            // A failed read is not reported.
            true => path_use::look(client, lock).await.unwrap_or_default(),
            false => None,
        };
        Ok(SeenQueue { lock, queue, used })
    };
    if options.watch {
        return follow(global, lock, look).await;
    }

    let seen = Connection::during(global, async |connection| Ok(look(&connection.client).await?));
    let (seen, observed) = (seen.await?, Observed::new());
    output::show(global, &seen.shown(&observed), || seen.text(&observed))?;
    let is_free = seen.queue.as_ref().is_none_or(view::is_free);
    Ok(if options.exit_code && !is_free { Exit::No } else { Exit::Ok }.code())
}

impl SeenQueue<'_> {
    fn shown(&self, observed: &Observed) -> ShownQueue<'_> {
        let queue = self.queue.as_ref();
        ShownQueue {
            lock: self.lock.as_str(),
            exists: queue.is_some(),
            permits: queue.and_then(|queue| queue.permits),
            permits_free: queue.and_then(LockQueue::free_permits),
            delay: queue.and_then(view::delay),
            contenders: queue.map(|queue| view::contenders(queue, observed)).unwrap_or_default(),
            foreign: queue.map(|queue| queue.foreign.as_slice()).unwrap_or_default(),
        }
    }
}

impl Picture for SeenQueue<'_> {
    fn queues(&self) -> &[LockQueue] {
        self.queue.as_slice()
    }

    fn json(&self, observed: &Observed) -> Result<Value, Failure> {
        output::json(&self.shown(observed))
    }

    fn text(&self, observed: &Observed) -> String {
        let path = self.lock.as_str();
        match self.used.filter(|used| *used != PathUse::Lock).map(path_use::names) {
            Some((what, see)) => {
                format!("{path} is {what}, not a lock: see lockkeeper {see} {path}\n")
            }
            None => describe(path, self.queue.as_ref(), observed),
        }
    }
}

fn describe(path: &str, queue: Option<&LockQueue>, observed: &Observed) -> String {
    let entries = queue.map(|queue| queue.entries.as_slice()).unwrap_or_default();
    let foreign = queue.map(|queue| queue.foreign.as_slice()).unwrap_or_default();
    let summary = queue.map_or("free".to_owned(), view::summary);
    let mut text = format!("{path}: {summary}\n");

    if let Some(queue) = queue.filter(|_| !entries.is_empty()) {
        let heading = ["", "STATE", "KIND", "WHO", "SINCE", "WAITS FOR", "TOKEN", "SESSION"];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        rows.extend((0..entries.len()).map(|index| row(queue, index, observed)));
        text.push_str(&view::table(&rows));
    }

    if let Some(delay) = queue.and_then(|queue| queue.delay.as_ref()) {
        let left = match (entries, delay.length) {
            ([], _) => "the next holder waits for it, from its request on".to_owned(),
            (_, Some(length)) => format!("at most {} are left of it", view::duration(length)),
            (_, None) => "how much of it is left is unknown".to_owned(),
        };
        let (vanished, delay) = (view::vanished(delay), view::lock_delay(delay));
        text.push_str(&format!("{vanished}, and its {delay} has not passed yet: {left}\n"));
    }

    if !foreign.is_empty() {
        let names = view::listed(foreign);
        text.push_str(&format!(
            "children that are not contenders, so `run` rejects this path: {names}\n"
        ));
    }
    text
}

fn row(queue: &LockQueue, index: usize, observed: &Observed) -> Vec<String> {
    let entry = &queue.entries[index];
    vec![
        (index + 1).to_string(),
        if entry.holds { "holds" } else { "waits" }.to_owned(),
        view::wish(entry),
        view::who(entry),
        view::how_long(entry, observed),
        view::waits_for(queue, index),
        entry.token.to_string(),
        entry.session.to_string(),
    ]
}
