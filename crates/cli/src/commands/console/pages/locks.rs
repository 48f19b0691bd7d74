//! The locks: filtered, sorted, a page at a time.

use std::cmp::Reverse;
use std::sync::Arc;

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;
use lockkeeper::graph::ContenderIndex;
use lockkeeper::inspect::LockQueue;
use serde::Deserialize;

use crate::commands::console::answers::page;
use crate::commands::console::app::App;
use crate::commands::console::frame::Frame;
use crate::commands::console::model::Model;
use crate::commands::console::text;
use crate::commands::console::words::{Age, ContenderName, LockLink, Since};
use crate::shared::view;

/// How many rows a page has.
const MOST_ROWS: usize = 200;

/// What is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LocksQuery {
    q: String,
    sort: String,
    page: usize,
}

#[derive(Debug, Template)]
#[template(path = "console/locks.html")]
struct LocksPage {
    frame: Frame,
    q: String,
    sort: String,
    columns: Vec<Column>,
    rows: Vec<Row>,
    found: String,
    all: String,
    /// The links to the pages before and after.
    before: Option<String>,
    after: Option<String>,
    range: String,
}

#[derive(Debug)]
struct Column {
    name: &'static str,
    href: String,
    is_sorted: bool,
    is_number: bool,
}

#[derive(Debug)]
struct Row {
    lock: LockLink,
    /// The first holder, and how many more there are.
    holder: Option<(ContenderName, Since)>,
    more: usize,
    /// What is known without a holder.
    state: String,
    waiters: String,
    oldest: Option<Age>,
    is_stuck: bool,
}

/// The columns, and the words that sort by them.
const COLUMNS: [(&str, &str, bool); 5] = [
    ("Lock", "lock", false),
    ("Held by", "holder", false),
    ("Since", "since", false),
    ("Waiting", "waiting", true),
    ("Longest wait", "oldest", true),
];

/// The locks that are held, or that others wait for.
pub(crate) async fn locks(
    State(app): State<Arc<App>>,
    Query(wanted): Query<LocksQuery>,
) -> Response {
    let model = app.model();
    let sort = match COLUMNS.iter().find(|(_, word, _)| *word == wanted.sort) {
        Some((_, word, _)) => *word,
        None => "waiting",
    };
    let q = wanted.q.trim().to_lowercase();
    let mut found: Vec<usize> =
        (0..model.queues.len()).filter(|lock| is_found(&model.queues[*lock], &q)).collect();
    order(&model, &mut found, sort);

    let pages = found.len().div_ceil(MOST_ROWS).max(1);
    let number = wanted.page.clamp(1, pages);
    let first = (number - 1) * MOST_ROWS;
    let shown: Vec<_> =
        found.iter().skip(first).take(MOST_ROWS).map(|lock| Row::of(&model, *lock)).collect();
    let link = |sort: &str, page: usize| {
        format!("/locks?q={}&sort={sort}&page={page}", text::query(wanted.q.trim()))
    };
    let columns = COLUMNS.iter().map(|(name, word, is_number)| Column {
        name,
        href: link(word, 1),
        is_sorted: *word == sort,
        is_number: *is_number,
    });
    let range = format!("{}–{}", text::number(first + 1), text::number(first + shown.len()));
    page(&LocksPage {
        frame: Frame::new(&app, &model, "/locks", "Locks"),
        columns: columns.collect(),
        found: text::count(found.len(), "lock"),
        all: text::number(model.queues.len()),
        before: (number > 1).then(|| link(sort, number - 1)),
        after: (number < pages).then(|| link(sort, number + 1)),
        range: if pages > 1 { range } else { String::new() },
        rows: shown,
        sort: sort.to_owned(),
        q: wanted.q,
    })
}

/// Whether a lock, or one of its contenders, has this text.
fn is_found(queue: &LockQueue, q: &str) -> bool {
    if q.is_empty() || queue.path.as_str().to_lowercase().contains(q) {
        return true;
    }
    queue.entries.iter().any(|entry| {
        let session = format!("{}", entry.session);
        let owner = entry.owner.as_ref();
        let texts = owner.map(|owner| {
            [
                Some(&owner.host),
                Some(&owner.program),
                owner.label.as_ref(),
                owner.user.as_ref(),
                owner.why.as_ref(),
            ]
        });
        let mut texts = texts.into_iter().flatten().flatten();
        session.contains(q) || texts.any(|text| text.to_lowercase().contains(q))
    })
}

fn order(model: &Model, found: &mut [usize], sort: &str) {
    let queue = |lock: &usize| &model.queues[*lock];
    let holder = |lock: &usize| queue(lock).holders().next();
    match sort {
        "lock" => {}
        "holder" => found
            .sort_by_cached_key(|lock| holder(lock).map(|entry| view::who(entry).to_lowercase())),
        "since" => found.sort_by_cached_key(|lock| {
            holder(lock).map_or(u128::MAX, |entry| view::unix_ms(entry.since))
        }),
        "oldest" => found.sort_by_cached_key(|lock| {
            queue(lock).waiters().map(|entry| view::unix_ms(entry.since)).min().unwrap_or(u128::MAX)
        }),
        _ => found.sort_by_cached_key(|lock| Reverse(queue(lock).waiters().count())),
    }
}

impl Row {
    fn of(model: &Model, lock: usize) -> Self {
        let queue = &model.queues[lock];
        let at = |entry| ContenderIndex { lock, entry };
        let holder = queue.entries.iter().position(|entry| entry.holds);
        let holders = queue.holders().count();
        let waiters = queue.waiters().count();
        let stuck =
            queue.entries.iter().enumerate().any(|(entry, _)| model.stuck.contains(&at(entry)));
        Self {
            lock: LockLink::to(queue.path.as_str()),
            holder: holder.map(|entry| {
                (ContenderName::of(&queue.entries[entry]), Since::of(model, at(entry)))
            }),
            more: holders.saturating_sub(1),
            state: match &queue.delay {
                Some(delay) if holder.is_none() => {
                    text::visible(&view::lock_delay(delay), text::LONG)
                }
                _ => String::new(),
            },
            waiters: if waiters > 0 { text::number(waiters) } else { String::new() },
            oldest: queue.waiters().map(|entry| entry.since).min().map(Age::of),
            is_stuck: stuck,
        }
    }
}
