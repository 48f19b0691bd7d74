//! Which request gets which answer, and what every answer has.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use futures_util::stream;

use crate::commands::console::answers::refused;
use crate::commands::console::app::App;
use crate::commands::console::guard::Refusal;
use crate::commands::console::server::Peer;
use crate::commands::console::{actions, pages};

/// How long a form may be.
const MOST_FORM: usize = 16 * 1024;

/// How often a stream without events shows that it is there.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Nothing is fetched from elsewhere, no page is framed, and no text of a znode is ever a script or a style.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    // With none at all, browsers hide the origin of a form from this console too.
    (header::REFERRER_POLICY, "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// All pages. Each request passes the gate first.
pub(super) fn routes(app: Arc<App>) -> Router {
    let pages = Router::new()
        .route("/", get(pages::first))
        .route("/locks", get(pages::locks))
        .route("/lock", get(pages::lock))
        .route("/graph", get(pages::graph))
        .route("/programs", get(pages::programs))
        .route("/recipes", get(pages::recipes))
        .route("/queue", get(pages::queue))
        .route("/history", get(pages::history))
        .route("/servers", get(pages::servers))
        .route("/act", get(actions::ask).post(actions::act))
        .route("/events", get(events));
    let pages = pages.route_layer(from_fn_with_state(Arc::clone(&app), known));

    Router::new()
        .merge(pages)
        .route(
            "/app.js",
            get(|| file("text/javascript; charset=utf-8", include_str!("assets/app.js"))),
        )
        .route(
            "/style.css",
            get(|| file("text/css; charset=utf-8", include_str!("assets/style.css"))),
        )
        .route("/icon.svg", get(|| file("image/svg+xml", include_str!("assets/icon.svg"))))
        .fallback(|| async { refused(StatusCode::NOT_FOUND, "This page does not exist.") })
        .layer(from_fn_with_state(Arc::clone(&app), own))
        .layer(DefaultBodyLimit::max(MOST_FORM))
        .with_state(app)
}

/// Lets only requests in that are for this console, and adds what every answer has.
async fn own(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let (uri, headers) = (request.uri(), request.headers());
    let mut checked = app.gate.check_host(uri, headers, peer.arrived_at);
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    if !is_read && checked.is_ok() {
        checked = app.gate.check_origin(headers);
    }
    let mut response = match checked {
        Ok(()) => next.run(request).await,
        Err(Refusal { status, reason }) => refused(status, reason),
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Lets only browsers in that are known. One that shows the token becomes known, and the token leaves its address.
async fn known(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    if request.method() == Method::GET
        && let Some((token, target)) = token_of(request.uri())
    {
        return match app.gate.enter(&token) {
            Ok(Some(cookie)) => {
                (StatusCode::SEE_OTHER, [(header::LOCATION, target), (header::SET_COOKIE, cookie)])
                    .into_response()
            }
            Ok(None) => refused(
                StatusCode::UNAUTHORIZED,
                "The token in this address is not this console's. A console that \
                                                           was started again has a new one.",
            ),
            Err(failure) => refused(StatusCode::INTERNAL_SERVER_ERROR, &failure.to_string()),
        };
    }
    match app.gate.visit(request.headers()) {
        Ok(visit) => {
            request.extensions_mut().insert(visit);
            next.run(request).await
        }
        Err(Refusal { status, reason }) => refused(status, reason),
    }
}

/// The token in an address, and the address without it.
fn token_of(uri: &Uri) -> Option<(String, String)> {
    let parts: Vec<&str> = uri.query()?.split('&').collect();
    let token = parts.iter().find_map(|part| part.strip_prefix("token="))?.to_owned();
    let rest: Vec<_> = parts.into_iter().filter(|part| !part.starts_with("token=")).collect();
    // A path such as //example is the address of another host to a browser.
    let path = format!("/{}", uri.path().trim_start_matches('/'));
    let target = if rest.is_empty() { path } else { format!("{path}?{}", rest.join("&")) };
    Some((token, target))
}

async fn file(kind: &'static str, content: &'static str) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, kind)], content)
}

/// Sends the number of the newest model whenever there is a newer one. A slow reader misses some numbers, and gets the newest
/// when it reads on.
async fn events(State(app): State<Arc<App>>) -> Response {
    let Ok(place) = Arc::clone(&app.streams).try_acquire_owned() else {
        return refused(StatusCode::SERVICE_UNAVAILABLE, "Too many pages are open.");
    };
    let (models, links) = (app.watched.model.clone(), app.watched.link.clone());
    let numbers = stream::unfold(
        (models, links, place, true),
        |(mut models, mut links, place, is_first)| async move {
            if !is_first {
                let changed = tokio::select! {
                    changed = models.changed() => changed,
                    changed = links.changed() => changed,
                };
                changed.ok()?;
            }
            let number = format!(
                "{}.{}",
                models.borrow_and_update().number,
                links.borrow_and_update().number
            );
            let event = Ok::<_, Infallible>(Event::default().data(number));
            Some((event, (models, links, place, false)))
        },
    );
    let stream = Sse::new(numbers).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    stream.into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_taken_out_of_the_address() {
        let split = |uri: &'static str| token_of(&Uri::from_static(uri));
        assert_eq!(split("/?token=ab"), Some(("ab".into(), "/".into())));
        assert_eq!(
            split("/lock?path=/a&token=ab&x=1"),
            Some(("ab".into(), "/lock?path=/a&x=1".into()))
        );
        assert_eq!(split("//evil.example/?token=ab"), Some(("ab".into(), "/evil.example/".into())));
        assert_eq!((split("/"), split("/?a=token")), (None, None));
    }
}
