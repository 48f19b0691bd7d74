//! One queue: the items, their workers, and the dead letters. This page asks the servers.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use askama::Template;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use lockkeeper::{
    Client, DeadLetter, ItemState, OwnerInfo, Queue, QueueError, QueuedItem, Raw, ZnodePath,
};
use serde::Deserialize;
use tokio::time::timeout;

use crate::commands::console::answers::{page, refused};
use crate::commands::console::app::App;
use crate::commands::console::frame::Frame;
use crate::commands::console::text;
use crate::commands::console::words::{Age, clock, read_path};
use crate::shared::view;

/// How many items are listed.
const MOST_ITEMS: usize = 100;

/// How long the servers may take.
const LIMIT: Duration = Duration::from_secs(5);

/// What is asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct QueueQuery {
    path: String,
}

#[derive(Debug, Template)]
#[template(path = "console/queue.html")]
struct QueuePage {
    frame: Frame,
    queue: String,
    waiting: String,
    claimed: String,
    delayed: String,
    dead: String,
    workers: String,
    items: Vec<Row>,
    is_cut: bool,
    letters: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    id: String,
    state: &'static str,
    tries: u32,
    since: Age,
    who: String,
    detail: String,
    /// The query of the page that returns it.
    act: Option<String>,
}

/// A queue of any items.
pub(crate) fn open(client: &Client, path: &ZnodePath) -> Result<Queue<Bytes>, QueueError> {
    Queue::<Bytes>::builder(client, path.as_str()).build_with(Raw)
}

/// One queue.
pub(crate) async fn queue(
    State(app): State<Arc<App>>,
    Query(wanted): Query<QueueQuery>,
) -> Response {
    let Some(path) = read_path(&wanted.path) else {
        return refused(StatusCode::BAD_REQUEST, "This is not a path of a queue.");
    };
    let asked = async {
        let queue = open(&app.client, &path)?;
        let (report, items, letters) =
            tokio::try_join!(queue.inspect(), queue.items(MOST_ITEMS), queue.dead_letters())?;
        Ok::<_, QueueError>((report, items, letters))
    };
    let (report, items, mut letters) = match timeout(LIMIT, asked).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => {
            return refused(StatusCode::NOT_FOUND, &text::visible(&error.to_string(), 400));
        }
        Err(_) => return refused(StatusCode::GATEWAY_TIMEOUT, "The servers do not answer."),
    };

    letters.truncate(MOST_ITEMS);
    let model = app.model();
    let title = text::path(path.as_str());
    page(&QueuePage {
        frame: Frame::new(&app, &model, "/recipes", title.clone()),
        queue: title,
        waiting: text::number(report.waiting),
        claimed: text::number(report.claimed),
        delayed: text::number(report.delayed),
        dead: text::number(report.dead),
        workers: text::number(report.workers),
        is_cut: items.len() < report.waiting + report.claimed + report.delayed,
        items: items.iter().map(|item| Row::of_item(&path, item)).collect(),
        letters: letters.iter().map(|letter| Row::of_letter(&path, letter)).collect(),
    })
    .into_response()
}

impl Row {
    fn of_item(queue: &ZnodePath, item: &QueuedItem) -> Self {
        let detail = match item.due_unix_ms {
            Some(due) => format!("due at {}", clock(due)),
            None => item.reason.clone().unwrap_or_default(),
        };
        let act = item.claim.as_ref().map(|claim| {
            let (queue, id, claim) = (queue.as_str(), &item.id, claim.as_str());
            let [queue, id, claim] = [queue, id, claim].map(text::query);
            format!("do=return&lock={queue}&id={id}&node={claim}")
        });
        Self {
            id: text::visible(&item.id, text::LONG),
            state: match item.state {
                ItemState::Claimed => "worked on",
                ItemState::Delayed => "later",
                _ => "waiting",
            },
            tries: item.attempts,
            since: age(item.since_unix_ms),
            who: who(item.holder.as_ref()),
            detail: text::visible(&detail, text::LONG),
            act,
        }
    }

    fn of_letter(queue: &ZnodePath, letter: &DeadLetter) -> Self {
        let [queue, id] = [queue.as_str(), &letter.id].map(text::query);
        let act = format!("do=retry&lock={queue}&id={id}&fence={}", letter.since_unix_ms);
        Self {
            id: text::visible(&letter.id, text::LONG),
            state: "dead",
            tries: letter.attempts,
            since: age(letter.since_unix_ms),
            who: who(letter.holder.as_ref()),
            detail: text::visible(&letter.reason, text::LONG),
            act: Some(act),
        }
    }
}

fn who(owner: Option<&OwnerInfo>) -> String {
    text::visible(&owner.map(view::program).unwrap_or_default(), text::LONG)
}

fn age(since_unix_ms: u64) -> Age {
    let since = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(since_unix_ms));
    Age::of(since.unwrap_or(SystemTime::UNIX_EPOCH))
}
