//! `lockkeeper show`: who holds a lock, and who waits for it.

use clap::Args;
use lockkeeper::ZnodePath;
use lockkeeper::inspect::{Entry, Queue};
use serde::Serialize;

use crate::connect::Connection;
use crate::exit::{Exit, Failure};
use crate::global::Global;
use crate::view::{self, Contender};
use crate::{names, output};

/// Show who holds a lock, who waits for it, and a lock delay that is due
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The lock
    #[arg(value_parser = names::lock)]
    lock: ZnodePath,
}

/// The queue of a lock as JSON. The names are stable.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    lock: &'a str,
    /// Whether there is a node at all; a lock without one is free.
    exists: bool,
    /// Of a semaphore whose number is known.
    permits: Option<u32>,
    /// A lock delay that is due.
    delay: Option<view::Delay<'a>>,
    contenders: Vec<Contender<'a>>,
    /// Children that are no contenders.
    foreign: &'a [String],
}

/// Shows the queue of a lock.
pub(crate) async fn show(global: &Global, options: Options) -> Result<u8, Failure> {
    let queue = Connection::during(global, async |connection| {
        Ok(Queue::inspect(&connection.client, &options.lock).await?)
    });
    let queue = queue.await?;

    let path = options.lock.as_str();
    let shown = Shown {
        lock: path,
        exists: queue.is_some(),
        permits: queue.as_ref().and_then(|queue| queue.permits),
        delay: queue.as_ref().and_then(view::delay),
        contenders: queue.as_ref().map(view::contenders).unwrap_or_default(),
        foreign: queue.as_ref().map(|queue| queue.foreign.as_slice()).unwrap_or_default(),
    };
    output::show(global, &shown, || describe(path, queue.as_ref()))?;
    Ok(Exit::Ok.code())
}

fn describe(path: &str, queue: Option<&Queue>) -> String {
    let entries = queue.map(|queue| queue.entries.as_slice()).unwrap_or_default();
    let foreign = queue.map(|queue| queue.foreign.as_slice()).unwrap_or_default();
    let summary = queue.map_or("free".to_owned(), view::summary);
    let mut text = format!("{path}: {summary}\n");

    if !entries.is_empty() {
        let heading = ["", "STATE", "KIND", "WHO", "FOR", "TOKEN", "SESSION"];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        rows.extend(entries.iter().enumerate().map(|(index, entry)| row(index + 1, entry)));
        text.push_str(&view::table(&rows));
    }

    if let Some(delay) = queue.and_then(|queue| queue.delay.as_ref()) {
        let left = match (entries, delay.length) {
            ([], _) => "the next holder waits for it, from when it asks for the lock".to_owned(),
            (_, Some(length)) => format!("at most {} are left of it", view::duration(length)),
            (_, None) => "how much of it is left is unknown".to_owned(),
        };
        let (vanished, delay) = (view::vanished(delay), view::lock_delay(delay));
        text.push_str(&format!("{vanished}, and its {delay} is not over: {left}\n"));
    }

    if !foreign.is_empty() {
        let names = view::listed(foreign);
        text.push_str(&format!(
            "children that are not contenders, so `run` refuses this path: {names}\n"
        ));
    }
    text
}

fn row(position: usize, entry: &Entry) -> Vec<String> {
    vec![
        position.to_string(),
        if entry.holds { "holds" } else { "waits" }.to_owned(),
        view::wish(entry),
        view::who(entry),
        view::duration(entry.age()),
        entry.token.to_string(),
        entry.session.to_string(),
    ]
}
