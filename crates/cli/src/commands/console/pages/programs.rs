//! The programs, by their sessions: what each holds, and what it waits for.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;
use lockkeeper::SessionId;
use lockkeeper::graph::{Because, ContenderIndex};
use serde::Deserialize;

use crate::commands::console::answers::page;
use crate::commands::console::app::App;
use crate::commands::console::frame::Frame;
use crate::commands::console::model::Model;
use crate::commands::console::text;
use crate::commands::console::words::{ContenderName, LockLink, Since};

/// How many sessions a page has, and how many locks of each.
const MOST_ROWS: usize = 200;
const MOST_LOCKS: usize = 8;

/// What is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ProgramsQuery {
    q: String,
}

#[derive(Debug, Template)]
#[template(path = "console/programs.html")]
struct ProgramsPage {
    frame: Frame,
    q: String,
    rows: Vec<Row>,
    found: String,
    is_cut: bool,
}

#[derive(Debug)]
struct Row {
    who: Option<ContenderName>,
    session: String,
    holds: Vec<(LockLink, Since)>,
    more_holds: usize,
    waits: Vec<(LockLink, Since)>,
    /// What the commands under its runs wait for.
    below: Vec<(LockLink, Since)>,
    more_waits: usize,
}

/// The sessions that hold or wait for something; those that wait come first.
pub(crate) async fn programs(
    State(app): State<Arc<App>>,
    Query(wanted): Query<ProgramsQuery>,
) -> Response {
    let model = app.model();
    let q = wanted.q.trim().to_lowercase();
    let sessions = model.sessions();
    let found: Vec<_> =
        sessions.iter().filter(|(id, own)| is_found(&model, *id, own, &q)).collect();
    page(&ProgramsPage {
        frame: Frame::new(&app, &model, "/programs", "Programs"),
        rows: found.iter().take(MOST_ROWS).map(|(id, own)| Row::of(&model, *id, own)).collect(),
        found: text::count(found.len(), "session"),
        is_cut: found.len() > MOST_ROWS,
        q: wanted.q,
    })
}

fn is_found(model: &Model, id: SessionId, own: &[ContenderIndex], q: &str) -> bool {
    let has = |text: &str| text.to_lowercase().contains(q);
    q.is_empty()
        || has(&id.to_string())
        || own.iter().any(|at| {
            let who = ContenderName::of(model.contender(*at));
            has(&who.name) || has(&who.place) || has(model.queue(*at).path.as_str())
        })
}

impl Row {
    fn of(model: &Model, id: SessionId, own: &[ContenderIndex]) -> Self {
        let (holds, waits): (Vec<_>, Vec<_>) =
            own.iter().copied().partition(|at| model.contender(*at).holds);
        let shown = |all: &[ContenderIndex]| {
            let all = all.iter().take(MOST_LOCKS);
            all.map(|at| (LockLink::to(model.queue(*at).path.as_str()), Since::of(model, *at)))
                .collect()
        };
        let below = holds.iter().take(MOST_LOCKS).flat_map(|at| model.kept_for(*at));
        let below = below.filter(|(_, because)| *because == Because::ItsCommandWaits);
        let below: Vec<_> = below.map(|(at, _)| at).take(MOST_LOCKS).collect();
        let first = own.iter().find(|at| model.contender(**at).owner.is_some()).or(own.first());
        Self {
            who: first.map(|at| ContenderName::of(model.contender(*at))),
            session: id.to_string(),
            more_holds: holds.len().saturating_sub(MOST_LOCKS),
            more_waits: waits.len().saturating_sub(MOST_LOCKS),
            holds: shown(&holds),
            waits: shown(&waits),
            below: shown(&below),
        }
    }
}
