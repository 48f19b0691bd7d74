//! The first page: deadlocks, warnings, and the holders that block others.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use lockkeeper::graph::WaitCycle;
use lockkeeper::overview::Warning;

use crate::commands::console::answers::page;
use crate::commands::console::app::App;
use crate::commands::console::frame::Frame;
use crate::commands::console::pages::history::ShownEvent;
use crate::commands::console::pages::parts::{ShownBlockers, ShownCycle};
use crate::commands::console::text;
use crate::commands::console::words::{Age, ContenderName, LockLink, Since};

/// How many rows each table has here.
const MOST_BLOCKERS: usize = 12;
const MOST_WAITS: usize = 8;
const MOST_EVENTS: usize = 8;
const MOST_CYCLES: usize = 5;
const MOST_WARNINGS: usize = 8;

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

/// Something that looks wrong.
#[derive(Debug)]
struct ShownWarning {
    text: String,
    /// The page about it.
    link: Option<String>,
}

#[derive(Debug)]
struct ShownWait {
    who: ContenderName,
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

/// Deadlocks, root blockers, the longest waits, and what happened last.
pub(crate) async fn first(State(app): State<Arc<App>>) -> Response {
    let model = app.model();
    let wait = |at| ShownWait {
        who: ContenderName::of(model.contender(at)),
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
