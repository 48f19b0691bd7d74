//! What else is in the tree: queues, elections, groups and services.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;

use crate::commands::console::app::App;
use crate::commands::console::frame::Frame;
use crate::commands::console::routes::page;

#[derive(Debug, Template)]
#[template(path = "console/recipes.html")]
struct RecipesPage {
    frame: Frame,
}

/// The recipes that are no locks.
pub(in super::super) async fn recipes(State(app): State<Arc<App>>) -> Response {
    let model = app.model();
    page(&RecipesPage { frame: Frame::new(&app, &model, "/recipes", "Recipes") })
}
