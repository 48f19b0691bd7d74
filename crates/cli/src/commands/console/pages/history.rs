//! What has happened to locks since the console began to watch.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;

use crate::commands::console::answers::page;
use crate::commands::console::app::App;
use crate::commands::console::frame::Frame;
use crate::commands::console::text;
use crate::commands::console::words::{LockLink, clock};
use crate::commands::record::history::{HistoryEvent, HistoryLine};
use crate::shared::view;

/// How many events a page has.
const MOST_ROWS: usize = 200;

/// What is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HistoryQuery {
    q: String,
    event: String,
}

#[derive(Debug, Template)]
#[template(path = "console/history.html")]
struct HistoryPage {
    frame: Frame,
    q: String,
    choices: Vec<(&'static str, &'static str, bool)>,
    events: Vec<ShownEvent>,
    found: String,
    is_cut: bool,
    began: String,
    dropped: String,
    acts: Vec<ShownAct>,
}

#[derive(Debug)]
struct ShownAct {
    at: String,
    by: String,
    what: String,
    outcome: String,
}

/// Something that happened to a lock.
#[derive(Debug)]
pub(super) struct ShownEvent {
    pub(super) at: String,
    pub(super) what: &'static str,
    pub(super) class: &'static str,
    pub(super) lock: LockLink,
    pub(super) who: String,
    pub(super) detail: String,
}

/// The events that a person may choose, and the words for them in the address.
const CHOICES: [(&str, &str); 5] = [
    ("", "all events"),
    ("granted", "granted"),
    ("ended", "ended"),
    ("left", "gave up waiting"),
    ("asked", "asked to release"),
];

impl ShownEvent {
    pub(super) fn of(line: &HistoryLine) -> Self {
        let lasted = line.lasted_ms.map(|ms| view::duration(Duration::from_millis(ms)));
        let after =
            |what: &str| lasted.as_ref().map(|time| format!("{what} {time}")).unwrap_or_default();
        let (what, class, detail) = match line.event {
            HistoryEvent::RecordingBegan => ("watch began", "", String::new()),
            HistoryEvent::RecordingEnded => ("watch ended", "", String::new()),
            HistoryEvent::ServersAway => ("servers away", "left", String::new()),
            HistoryEvent::ServersBack => ("servers back", "granted", String::new()),
            HistoryEvent::Held => ("held", "", "when the console began to watch".to_owned()),
            HistoryEvent::Waits => ("waits", "waits", String::new()),
            HistoryEvent::Granted if line.lasted_ms == Some(0) => {
                ("granted", "granted", "at once".to_owned())
            }
            HistoryEvent::Granted => ("granted", "granted", after("waited")),
            HistoryEvent::Asked => {
                ("asked to release it", "asked", line.request.clone().unwrap_or_default())
            }
            HistoryEvent::Ended => ("ended", "", after("held")),
            HistoryEvent::Left => ("gave up waiting", "left", after("waited")),
        };
        Self {
            at: clock(line.at_unix_ms),
            what,
            class,
            lock: LockLink::to(&line.lock),
            who: text::visible(line.who.as_deref().unwrap_or_default(), text::LONG),
            detail: text::visible(&detail, text::LONG),
        }
    }
}

/// The events, the newest first, and what was done from pages.
pub(crate) async fn history(
    State(app): State<Arc<App>>,
    Query(wanted): Query<HistoryQuery>,
) -> Response {
    let model = app.model();
    let q = wanted.q.trim().to_lowercase();
    let is_wanted = |line: &&HistoryLine| {
        let is_event = match wanted.event.as_str() {
            "granted" => line.event == HistoryEvent::Granted,
            "ended" => line.event == HistoryEvent::Ended,
            "left" => line.event == HistoryEvent::Left,
            "asked" => line.event == HistoryEvent::Asked,
            _ => true,
        };
        let has = |text: &str| text.to_lowercase().contains(&q);
        let mut others = [&line.who, &line.session, &line.request].into_iter().flatten();
        is_event && (q.is_empty() || has(&line.lock) || others.any(|text| has(text)))
    };
    let past = app.watched.past();
    let found = past.events.iter().filter(is_wanted).count();
    let events: Vec<_> =
        past.events.iter().rev().filter(is_wanted).take(MOST_ROWS).map(ShownEvent::of).collect();
    let began = view::local(past.began, "%F %T");
    let dropped =
        if past.dropped > 0 { text::count(past.dropped, "older event") } else { String::new() };
    drop(past);

    let acts = app.acts().into_iter().map(|act| ShownAct {
        at: view::local(act.at, "%T"),
        by: text::visible(&act.by, text::LONG),
        what: text::visible(&act.what, 2 * text::LONG),
        outcome: text::visible(&act.outcome, text::LONG),
    });
    let choices = CHOICES.iter().map(|(word, name)| (*word, *name, wanted.event == *word));
    page(&HistoryPage {
        frame: Frame::new(&app, &model, "/history", "History"),
        choices: choices.collect(),
        found: text::count(found, "event"),
        is_cut: found > events.len(),
        acts: acts.collect(),
        q: wanted.q,
        events,
        began,
        dropped,
    })
}
