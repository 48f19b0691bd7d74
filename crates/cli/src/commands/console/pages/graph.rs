//! The wait graph: a picture with the root blockers at the left, deadlocks in words, and the same as a table.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;

use crate::commands::console::answers::page;
use crate::commands::console::app::App;
use crate::commands::console::frame::Frame;
use crate::commands::console::pages::parts::{ShownBlockers, ShownCycle};
use crate::commands::console::pages::picture::GraphPicture;
use crate::commands::console::text;

/// How many rows the table has.
const MOST_ROWS: usize = 100;

/// How many circles are written.
const MOST_CYCLES: usize = 20;

#[derive(Debug, Template)]
#[template(path = "console/graph.html")]
struct GraphPage {
    frame: Frame,
    picture: GraphPicture,
    cycles: Vec<ShownCycle>,
    blockers: ShownBlockers,
    more: String,
    waiters: String,
}

/// The wait graph.
pub(crate) async fn graph(State(app): State<Arc<App>>) -> Response {
    let model = app.model();
    let more = model.all_roots.saturating_sub(MOST_ROWS);
    page(&GraphPage {
        frame: Frame::new(&app, &model, "/graph", "Graph"),
        picture: GraphPicture::of(&model),
        cycles: model
            .cycles
            .iter()
            .take(MOST_CYCLES)
            .map(|cycle| ShownCycle::of(&model, cycle))
            .collect(),
        blockers: ShownBlockers::of(&model, MOST_ROWS),
        more: if more > 0 { text::number(more) } else { String::new() },
        waiters: text::number(model.waiters),
    })
}
