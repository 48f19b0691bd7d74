//! The wait graph: a picture with the root blockers at the left, deadlocks in words, and the same as a table.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use lockkeeper::graph::{Because, WaitCycle};

use crate::commands::console::app::App;
use crate::commands::console::frame::Frame;
use crate::commands::console::model::Model;
use crate::commands::console::pages::first::ShownBlockers;
use crate::commands::console::pages::picture::Picture;
use crate::commands::console::routes::page;
use crate::commands::console::text;
use crate::commands::console::words::{LockLink, Since, Who};

/// How many rows the table has.
const MOST_ROWS: usize = 100;

/// How many steps of a circle are written.
const MOST_STEPS: usize = 20;

#[derive(Debug, Template)]
#[template(path = "console/graph.html")]
struct GraphPage {
    frame: Frame,
    picture: Picture,
    cycles: Vec<ShownCycle>,
    blockers: ShownBlockers,
    more: String,
    waiters: String,
}

/// A circle of programs that wait for each other.
#[derive(Debug)]
pub(super) struct ShownCycle {
    pub(super) is_certain: bool,
    pub(super) steps: Vec<ShownStep>,
    pub(super) more: usize,
}

/// One wait of it.
#[derive(Debug)]
pub(super) struct ShownStep {
    pub(super) who: Who,
    pub(super) since: Since,
    pub(super) lock: LockLink,
    pub(super) blocker: Who,
    pub(super) because: &'static str,
}

impl ShownCycle {
    pub(super) fn of(model: &Model, cycle: &WaitCycle) -> Self {
        let steps = cycle.steps.iter().take(MOST_STEPS).map(|step| ShownStep {
            who: Who::of(model.contender(step.waiter)),
            since: Since::of(model, step.waiter),
            lock: LockLink::to(model.queue(step.waiter).path.as_str()),
            blocker: Who::of(model.contender(step.blocker)),
            because: match step.because {
                Because::ItWaits => "which waits too",
                Because::ItsCommandWaits => "whose command waits",
                Because::ItsSessionWaits => "whose session waits",
            },
        });
        let more = cycle.steps.len().saturating_sub(MOST_STEPS);
        Self { is_certain: cycle.is_certain(), steps: steps.collect(), more }
    }
}

/// The wait graph.
pub(in super::super) async fn graph(State(app): State<Arc<App>>) -> Response {
    let model = app.model();
    let more = model.all_roots.saturating_sub(MOST_ROWS);
    page(&GraphPage {
        frame: Frame::new(&app, &model, "/graph", "Graph"),
        picture: Picture::of(&model),
        cycles: model
            .cycles
            .iter()
            .take(MOST_STEPS)
            .map(|cycle| ShownCycle::of(&model, cycle))
            .collect(),
        blockers: ShownBlockers::of(&model, MOST_ROWS),
        more: if more > 0 { text::number(more) } else { String::new() },
        waiters: text::number(model.waiters),
    })
}
