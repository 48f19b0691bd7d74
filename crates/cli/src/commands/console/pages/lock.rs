//! One lock: its holders, its line as a picture, and its history.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use lockkeeper::Kind;
use lockkeeper::graph::{Because, ContenderIndex};
use serde::Deserialize;

use crate::commands::console::answers::{page, refused};
use crate::commands::console::app::App;
use crate::commands::console::frame::Frame;
use crate::commands::console::model::Model;
use crate::commands::console::pages::history::ShownEvent;
use crate::commands::console::pages::line::Rail;
use crate::commands::console::text;
use crate::commands::console::words::{ContenderName, LockLink, Since, read_path, waits_for};
use crate::shared::view;

/// How many contenders are drawn, and how many events are listed.
const MOST_ROWS: usize = 200;
const MOST_EVENTS: usize = 60;

/// What is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LockQuery {
    path: String,
}

#[derive(Debug, Template)]
#[template(path = "console/lock.html")]
struct LockPage {
    frame: Frame,
    lock: String,
    /// Held, free, or why neither.
    summary: String,
    /// Of a lock delay that is due.
    delay: String,
    foreign: String,
    rows: Vec<Row>,
    has_holder: bool,
    more: String,
    rail: Option<Rail>,
    /// What a screen reader says of the picture.
    picture: String,
    events: Vec<ShownEvent>,
    began: String,
    lock_query: String,
}

#[derive(Debug)]
struct Row {
    position: usize,
    who: ContenderName,
    holds: bool,
    is_stuck: bool,
    /// What it asks for, if that is not all of the lock.
    kind: String,
    since: Since,
    waits_for: String,
    token: String,
    session: String,
    node: String,
    /// What keeps it from going on: another lock, and why.
    kept_for: Vec<(LockLink, &'static str)>,
    /// The query of the pages that act on it.
    act: String,
}

/// One lock.
pub(crate) async fn lock(State(app): State<Arc<App>>, Query(wanted): Query<LockQuery>) -> Response {
    let Some(path) = read_path(&wanted.path) else {
        return refused(StatusCode::BAD_REQUEST, "This is not a path of a lock.");
    };
    let model = app.model();
    let found = model.find(&path);
    let past = app.watched.past();
    let events = past.events.iter().rev().filter(|line| line.lock == path.as_str());
    let events: Vec<_> = events.take(MOST_EVENTS).map(ShownEvent::of).collect();
    let began = view::local(past.began, "%T");
    drop(past);

    let title = text::path(path.as_str());
    let mut shown = LockPage {
        frame: Frame::new(&app, &model, "/locks", title.clone()),
        lock: title,
        summary: "free".to_owned(),
        delay: String::new(),
        foreign: String::new(),
        rows: Vec::new(),
        has_holder: false,
        more: String::new(),
        rail: None,
        picture: String::new(),
        events,
        began,
        lock_query: text::query(path.as_str()),
    };
    let Some(lock) = found else { return page(&shown) };

    let queue = &model.queues[lock];
    let at = |entry| ContenderIndex { lock, entry };
    let rows = queue.entries.len().min(MOST_ROWS);
    shown.summary = view::summary(queue);
    shown.delay = match &queue.delay {
        Some(delay) => {
            let (vanished, delay) = (view::vanished(delay), view::lock_delay(delay));
            text::visible(&format!("{vanished}, and its {delay} has not passed yet"), 400)
        }
        None => String::new(),
    };
    shown.foreign = text::visible(&view::listed(&queue.foreign), 400);
    shown.rows = (0..rows).map(|entry| Row::of(&model, at(entry))).collect();
    shown.has_holder = shown.rows.iter().any(|row| row.holds);
    let more = queue.entries.len() - rows;
    shown.more = if more > 0 { text::count(more, "more contender") } else { String::new() };
    shown.rail = Some(Rail::of(queue, rows, |entry| model.stuck.contains(&at(entry))));
    shown.picture = format!("{}: {}", shown.lock, shown.summary);
    page(&shown).into_response()
}

impl Row {
    fn of(model: &Model, at: ContenderIndex) -> Self {
        let (queue, entry) = (model.queue(at), model.contender(at));
        let kept_for = match entry.holds {
            true => model.kept_for(at),
            false => Vec::new(),
        };
        let kept_for = kept_for.into_iter().map(|(wait, because)| {
            let link = LockLink::to(model.queue(wait).path.as_str());
            let why = match because {
                Because::ItsCommandWaits => "its command waits for",
                _ => "its session waits for",
            };
            (link, why)
        });
        Self {
            position: at.entry + 1,
            who: ContenderName::of(entry),
            holds: entry.holds,
            is_stuck: model.stuck.contains(&at),
            kind: match entry.kind {
                Kind::Exclusive => String::new(),
                _ => view::wish(entry),
            },
            since: Since::of(model, at),
            waits_for: waits_for(queue, at.entry),
            token: entry.token.to_string(),
            session: entry.session.to_string(),
            node: text::path(entry.node.as_str()),
            kept_for: kept_for.collect(),
            act: format!(
                "lock={}&node={}&fence={}",
                text::query(queue.path.as_str()),
                text::query(entry.node.as_str()),
                text::query(&entry.token.to_string())
            ),
        }
    }
}
