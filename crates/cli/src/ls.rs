//! `lockkeeper ls`: the locks below a path.

use clap::Args;
use lockkeeper::ZnodePath;
use lockkeeper::inspect::{self, Queue, Queues};
use serde::Serialize;

use crate::connect::Connection;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::names;
use crate::output::show;
use crate::view::{self, Contender};

const NOTES: &str = "\
A znode that is ephemeral and no contender of a queue is listed as a lock that its session holds. \
Programs also use such znodes for other purposes, as for the members of a group.";

/// List the locks below a path: who holds them, and how many wait
#[derive(Debug, Args)]
#[command(after_long_help = NOTES)]
pub(crate) struct Options {
    /// The path to look below
    #[arg(default_value = "/", value_parser = names::folder)]
    path: ZnodePath,
}

/// The locks as JSON. The names are stable.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    path: &'a str,
    locks: Vec<ListedLock<'a>>,
    /// Nodes that may not be looked into.
    unreadable: Vec<&'a str>,
}

#[derive(Debug, Serialize)]
struct ListedLock<'a> {
    lock: &'a str,
    holders: usize,
    waiters: usize,
    /// Of a semaphore whose number is known.
    permits: Option<u32>,
    /// A lock delay that is due.
    delay: Option<view::Delay<'a>>,
    contenders: Vec<Contender<'a>>,
}

/// Lists the locks that are not free.
pub(crate) async fn ls(global: &Global, options: Options) -> Result<u8, Failure> {
    let locks = Connection::during(global, async |connection| {
        Ok(inspect::queues(&connection.client, &options.path).await?)
    });
    let locks = locks.await?;

    let path = options.path.as_str();
    let listed = Listed {
        path,
        locks: locks.queues.iter().map(ListedLock::new).collect(),
        unreadable: locks.unreadable.iter().map(AsRef::as_ref).collect(),
    };
    show(global, &listed, || describe(path, &locks))?;
    Ok(Exit::Ok.code())
}

impl<'a> ListedLock<'a> {
    fn new(queue: &'a Queue) -> Self {
        Self {
            lock: queue.path.as_str(),
            holders: queue.holders().count(),
            waiters: queue.waiters().count(),
            permits: queue.permits,
            delay: view::delay(queue),
            contenders: view::contenders(queue),
        }
    }
}

fn describe(path: &str, locks: &Queues) -> String {
    let mut text = if locks.queues.is_empty() {
        format!("no lock below {path} is held\n")
    } else {
        let mut rows = vec![["LOCK", "HELD BY", "FOR", "WAITING"].map(str::to_owned).to_vec()];
        rows.extend(locks.queues.iter().map(row));
        view::table(&rows)
    };
    for node in &locks.unreadable {
        text.push_str(&format!("{}: no permission to look\n", view::printable(node.as_str())));
    }
    text
}

fn row(queue: &Queue) -> Vec<String> {
    let holder = queue.holders().next();
    let others = queue.holders().count().saturating_sub(1);
    let delay = || queue.delay.as_ref().map(view::lock_delay).unwrap_or_default();
    let mut who = holder.map_or_else(delay, view::who);
    if others > 0 {
        who.push_str(&format!(" and {others} more"));
    }
    vec![
        view::printable(queue.path.as_str()),
        who,
        holder.map(|holder| view::duration(holder.age())).unwrap_or_default(),
        queue.waiters().count().to_string(),
    ]
}
