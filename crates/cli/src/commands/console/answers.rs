//! Templates and refusals as answers.

use askama::Template;
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};

/// A page that shows nothing of the locks: for requests that are refused.
#[derive(Debug, Template)]
#[template(path = "console/refused.html")]
struct RefusedPage<'a> {
    title: &'static str,
    reason: &'a str,
}

/// The answer to a request that is not carried out.
pub(super) fn refused(status: StatusCode, reason: &str) -> Response {
    let title = status.canonical_reason().unwrap_or("Refused");
    (status, page(&RefusedPage { title, reason })).into_response()
}

/// A template as an answer.
pub(super) fn page(template: &impl Template) -> Response {
    match template.render() {
        Ok(text) => Html(text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
