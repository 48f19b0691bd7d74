//! The first page: what is stuck, and which holders are in the way.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use lockkeeper::graph::{RootBlocker, WaitCycle};
use lockkeeper::overview::Warning;

use crate::commands::console::app::App;
use crate::commands::console::frame::Frame;
use crate::commands::console::model::Model;
use crate::commands::console::pages::graph::ShownCycle;
use crate::commands::console::pages::history::ShownEvent;
use crate::commands::console::routes::page;
use crate::commands::console::text;
use crate::commands::console::words::{Age, LockLink, Since, Who};

/// How many rows each table has here.
const MOST_BLOCKERS: usize = 12;
const MOST_WAITS: usize = 8;
const MOST_EVENTS: usize = 8;
const MOST_CYCLES: usize = 5;
const MOST_WARNINGS: usize = 8;

/// How many other locks are named.
const MOST_LOCKS: usize = 3;

#[derive(Debug, Template)]
#[template(path = "console/first.html")]
struct FirstPage {
    frame: Frame,
    locks: String,
    holders: String,
    waiters: String,
    longest: Option<Age>,
    deadlocks: String,
    cycles: Vec<ShownCycle>,
    more_cycles: usize,
    warnings: Vec<ShownWarning>,
    more_warnings: usize,
    unreadable: Vec<String>,
    blockers: ShownBlockers,
    more_blockers: String,
    waits: Vec<ShownWait>,
    events: Vec<ShownEvent>,
}

/// The holders that others wait for.
#[derive(Debug, Template)]
#[template(path = "console/blockers.html")]
pub(super) struct ShownBlockers {
    pub(super) rows: Vec<ShownBlocker>,
    has_others: bool,
}

impl ShownBlockers {
    /// The first ones.
    pub(super) fn of(model: &Model, most: usize) -> Self {
        let rows = model.roots.iter().take(most).map(|root| ShownBlocker::of(model, root));
        let rows: Vec<_> = rows.collect();
        let has_others = rows.iter().any(|row| !row.others.is_empty());
        Self { rows, has_others }
    }
}

/// A holder that others wait for.
#[derive(Debug)]
pub(super) struct ShownBlocker {
    pub(super) who: Who,
    pub(super) lock: LockLink,
    pub(super) since: Since,
    pub(super) waiters: String,
    pub(super) oldest: Age,
    /// Other locks whose lines it holds up.
    pub(super) others: Vec<LockLink>,
    pub(super) more: usize,
}

/// Something that looks wrong.
#[derive(Debug)]
struct ShownWarning {
    text: String,
    /// The page about it.
    link: Option<String>,
}

#[derive(Debug)]
struct ShownWait {
    who: Who,
    lock: LockLink,
    since: Since,
    is_stuck: bool,
}

impl ShownWarning {
    fn of(warning: &Warning) -> Self {
        let page = match warning {
            Warning::ItemWaitsLong { .. }
            | Warning::NoConsumers { .. }
            | Warning::DeadLetters { .. } => "queue",
            _ => "lock",
        };
        let path = warning.path().filter(|path| path.as_str().len() <= text::LONGEST_LINK);
        Self {
            text: text::visible(&warning.to_string(), 3 * text::LONG),
            link: path.map(|path| format!("/{page}?path={}", text::query(path.as_str()))),
        }
    }
}

impl ShownBlocker {
    pub(super) fn of(model: &Model, root: &RootBlocker) -> Self {
        let others: Vec<_> = root.locks.iter().filter(|lock| **lock != root.holder.lock).collect();
        let shown = others.iter().take(MOST_LOCKS);
        Self {
            who: Who::of(model.contender(root.holder)),
            lock: LockLink::to(model.queue(root.holder).path.as_str()),
            since: Since::of(model, root.holder),
            waiters: text::number(root.waiters),
            oldest: Age::of(model.contender(root.oldest).since),
            others: shown.map(|lock| LockLink::to(model.queues[**lock].path.as_str())).collect(),
            more: others.len().saturating_sub(MOST_LOCKS),
        }
    }
}

/// Deadlocks, root blockers, the longest waits, and what happened last.
pub(in super::super) async fn first(State(app): State<Arc<App>>) -> Response {
    let model = app.model();
    let wait = |at| ShownWait {
        who: Who::of(model.contender(at)),
        lock: LockLink::to(model.queue(at).path.as_str()),
        since: Since::of(&model, at),
        is_stuck: model.stuck.contains(&at),
    };
    let past = app.watched.past();
    let events = past.events.iter().rev().take(MOST_EVENTS).map(ShownEvent::of).collect();
    drop(past);

    let shown_cycles: &[WaitCycle] = &model.cycles[..model.cycles.len().min(MOST_CYCLES)];
    let more = model.all_roots.saturating_sub(MOST_BLOCKERS);
    page(&FirstPage {
        frame: Frame::new(&app, &model, "/", "Overview"),
        locks: text::number(model.queues.len()),
        holders: text::number(model.holders),
        waiters: text::number(model.waiters),
        longest: model.longest.first().map(|at| Age::of(model.contender(*at).since)),
        deadlocks: text::number(model.cycles.len()),
        cycles: shown_cycles.iter().map(|cycle| ShownCycle::of(&model, cycle)).collect(),
        warnings: model.warnings.iter().take(MOST_WARNINGS).map(ShownWarning::of).collect(),
        more_warnings: model.all_warnings.saturating_sub(MOST_WARNINGS),
        more_cycles: model.cycles.len() - shown_cycles.len(),
        unreadable: model.unreadable.iter().take(5).map(|path| text::path(path)).collect(),
        blockers: ShownBlockers::of(&model, MOST_BLOCKERS),
        more_blockers: if more > 0 { text::number(more) } else { String::new() },
        waits: model.longest.iter().take(MOST_WAITS).copied().map(wait).collect(),
        events,
    })
}
