//! What a page can do. Each act names what was seen, is confirmed, and is refused if that is something else by then.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use askama::Template;
use axum::extract::{Form, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, extract::rejection::FormRejection};
use lockkeeper::inspect::{Entry, LockQueue};
use lockkeeper::revoke::{Revocation, RevokeOutcome};
use lockkeeper::{OwnerInfo, ZnodePath};
use serde::Deserialize;
use tokio::time::timeout;

use crate::commands::console::answers::{page, refused};
use crate::commands::console::app::{Act, App};
use crate::commands::console::frame::Frame;
use crate::commands::console::guard::{Refusal, Visit};
use crate::commands::console::pages;
use crate::commands::console::server::Peer;
use crate::commands::console::text;
use crate::commands::console::words::{ContenderName, LockLink, read_path};
use crate::shared::output::tell;
use crate::shared::user;

/// How long a holder has before its lock is taken by force.
const GRACE: Duration = Duration::from_secs(10);

/// How long the servers may take to look or to write.
const LIMIT: Duration = Duration::from_secs(10);

/// How many items of a queue are looked through.
const MOST_ITEMS: usize = 10_000;

/// What is to be done, and to what, as the page that led here had seen it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wish {
    /// `ask`, `force`, `return` or `retry`.
    r#do: String,
    /// The lock or the queue.
    lock: String,
    /// The holder's node, or the claim.
    node: String,
    /// The holder's token, or when the dead letter became one.
    fence: String,
    /// The item.
    id: String,
    /// The name that was typed in.
    name: String,
    reason: String,
    key: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Ask,
    Force,
    Return,
    Retry,
}

#[derive(Debug, Template)]
#[template(path = "console/act.html")]
struct ActPage {
    frame: Frame,
    title: &'static str,
    lock: LockLink,
    /// The holder, or the item.
    who: Option<ContenderName>,
    item: String,
    effect: &'static str,
    is_danger: bool,
    wish: Wish,
    name: String,
    form_key: String,
    back: String,
}

#[derive(Debug, Template)]
#[template(path = "console/done.html")]
struct DonePage {
    frame: Frame,
    title: &'static str,
    is_done: bool,
    outcome: String,
    back: String,
}

/// Why nothing was done.
struct Undone {
    status: StatusCode,
    reason: String,
}

impl Undone {
    fn other(reason: &str) -> Self {
        Self { status: StatusCode::CONFLICT, reason: reason.to_owned() }
    }

    fn unknown() -> Self {
        let reason = "The servers have not answered. Whether it was done is not known: look again.";
        Self { status: StatusCode::GATEWAY_TIMEOUT, reason: reason.to_owned() }
    }

    fn failed(error: &impl ToString) -> Self {
        Self { status: StatusCode::BAD_GATEWAY, reason: text::visible(&error.to_string(), 400) }
    }
}

impl Deed {
    fn of(wish: &Wish) -> Option<Self> {
        match wish.r#do.as_str() {
            "ask" => Some(Self::Ask),
            "force" => Some(Self::Force),
            "return" => Some(Self::Return),
            "retry" => Some(Self::Retry),
            _ => None,
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Ask => "Ask the holder to release the lock",
            Self::Force => "Take the lock by force",
            Self::Return => "Take the item from its worker",
            Self::Retry => "Put the dead letter back into the queue",
        }
    }

    fn effect(self) -> &'static str {
        match self {
            Self::Ask => {
                "A command under lockkeeper run gets TERM, and the lock is released when it has ended. Programs that use \
                 the library, or Apache Curator, decide for themselves. The lock goes to the next one in line."
            }
            Self::Force => {
                "The holder is asked. If it has not released the lock after 10 seconds, its node is deleted and the lock \
                 goes to the next one in line, although the holder may still be at work. This is safe only where fencing \
                 tokens are checked, or if the holder hangs."
            }
            Self::Return => {
                "The item goes back to the queue, and another worker takes it. The present worker may still be at work on it, \
                 but it cannot end the item any more."
            }
            Self::Retry => "The item goes to the end of the queue, as if it had never been taken.",
        }
    }
}

/// Asks for a confirmation.
pub(super) async fn ask(
    State(app): State<Arc<App>>,
    Extension(visit): Extension<Visit>,
    Query(wish): Query<Wish>,
) -> Response {
    let (Some(deed), Some(lock)) = (Deed::of(&wish), read_path(&wish.lock)) else {
        return refused(StatusCode::BAD_REQUEST, "A page cannot do this.");
    };
    if !app.allows_actions {
        return read_only();
    }
    let model = app.model();
    let mut who = None;
    if matches!(deed, Deed::Ask | Deed::Force) {
        let entries = model.find(&lock).map(|at| model.queues[at].entries.as_slice());
        match entries.unwrap_or_default().iter().find(|entry| is_meant(entry, &wish)) {
            Some(entry) => who = Some(ContenderName::of(entry)),
            None => return refused(StatusCode::CONFLICT, OTHER_HOLDER),
        }
    }
    page(&ActPage {
        frame: Frame::new(&app, &model, page_of(deed), deed.title()).still(),
        title: deed.title(),
        lock: LockLink::to(lock.as_str()),
        who,
        item: text::visible(&wish.id, text::LONG),
        effect: deed.effect(),
        is_danger: matches!(deed, Deed::Force | Deed::Return),
        name: visit.name,
        form_key: visit.form_key,
        back: back(deed, &lock),
        wish,
    })
}

const OTHER_HOLDER: &str =
    "Another program holds the lock now, or it is free. Nothing was done. Look again.";
const OTHER_ITEM: &str =
    "The item has ended, or another worker has it now. Nothing was done. Look again.";
const OTHER_LETTER: &str = "The dead letter is not there any more. Nothing was done. Look again.";

fn read_only() -> Response {
    refused(
        StatusCode::FORBIDDEN,
        "This console is read-only. Start it with --allow-actions to act from its pages.",
    )
}

/// Does what was confirmed.
pub(super) async fn act(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    Extension(visit): Extension<Visit>,
    form: Result<Form<Wish>, FormRejection>,
) -> Response {
    let Ok(Form(wish)) = form else {
        return refused(StatusCode::BAD_REQUEST, "This form was not made by this console.");
    };
    if let Err(Refusal { status, reason }) = app.gate.check_form(&visit, &wish.key) {
        return refused(status, reason);
    }
    if !app.allows_actions {
        return read_only();
    }
    let (Some(deed), Some(lock)) = (Deed::of(&wish), read_path(&wish.lock)) else {
        return refused(StatusCode::BAD_REQUEST, "A page cannot do this.");
    };
    let name = text::visible(wish.name.trim(), 60);
    if name.is_empty() {
        return refused(
            StatusCode::BAD_REQUEST,
            "Type your name in, for the log and for the holder.",
        );
    }
    app.gate.keep_name(&visit, &name);

    // In a task of its own: a browser that goes away cuts nothing short.
    let task = tokio::spawn(carry_out(
        Arc::clone(&app),
        deed,
        lock.clone(),
        wish,
        format!("{name} at {}", peer.from),
    ));
    let done = task.await.unwrap_or_else(|error| Err(Undone::failed(&error)));
    let (status, is_done, outcome) = match done {
        Ok(outcome) => (StatusCode::OK, true, outcome),
        Err(Undone { status, reason }) => (status, false, reason),
    };
    let frame = Frame::new(&app, &app.model(), page_of(deed), deed.title()).still();
    let shown = DonePage { frame, title: deed.title(), is_done, outcome, back: back(deed, &lock) };
    (status, page(&shown)).into_response()
}

fn page_of(deed: Deed) -> &'static str {
    match deed {
        Deed::Ask | Deed::Force => "/locks",
        Deed::Return | Deed::Retry => "/recipes",
    }
}

fn back(deed: Deed, lock: &ZnodePath) -> String {
    let page = match deed {
        Deed::Ask | Deed::Force => "lock",
        Deed::Return | Deed::Retry => "queue",
    };
    format!("/{page}?path={}", text::query(lock.as_str()))
}

/// Carries out an action, and records the name of the person and the outcome.
async fn carry_out(
    app: Arc<App>,
    deed: Deed,
    lock: ZnodePath,
    wish: Wish,
    by: String,
) -> Result<String, Undone> {
    let what = match deed {
        Deed::Ask => format!("ask the holder of {lock} ({}) to release it", wish.node),
        Deed::Force => format!("take {lock} by force from its holder ({})", wish.node),
        Deed::Return => format!("return item {} of {lock} from its worker", wish.id),
        Deed::Retry => format!("put dead letter {} of {lock} back", wish.id),
    };
    let what = text::visible(&what, 2 * text::LONG);
    tell(&format!("console: {by}: {what}"));
    let done = match deed {
        Deed::Ask | Deed::Force => revoke(&app, deed, &lock, &wish, &by).await,
        Deed::Return => take_back(&app, &lock, &wish).await,
        Deed::Retry => retry(&app, &lock, &wish).await,
    };
    let outcome = match &done {
        Ok(outcome) => outcome.clone(),
        Err(undone) => undone.reason.clone(),
    };
    tell(&format!("console: {by}: {what}: {outcome}"));
    app.keep_act(Act { at: SystemTime::now(), by, what, outcome });
    done
}

fn is_meant(entry: &Entry, wish: &Wish) -> bool {
    entry.holds && entry.node.as_str() == wish.node && entry.token.to_string() == wish.fence
}

async fn within<T, E: ToString>(work: impl Future<Output = Result<T, E>>) -> Result<T, Undone> {
    match timeout(LIMIT, work).await {
        Ok(done) => done.map_err(|error| Undone::failed(&error)),
        Err(_) => Err(Undone::unknown()),
    }
}

async fn revoke(
    app: &App,
    deed: Deed,
    lock: &ZnodePath,
    wish: &Wish,
    by: &str,
) -> Result<String, Undone> {
    let queue = within(LockQueue::inspect(&app.client, lock)).await?;
    let holder = queue.iter().flat_map(|queue| &queue.entries).find(|entry| is_meant(entry, wish));
    let Some(holder) = holder else { return Err(Undone::other(OTHER_HOLDER)) };

    let by = shortened(&format!("{by}, from the console on {}", user::user_and_host()));
    let request = Revocation::new(&app.client, lock).by(by).reason(shortened(wish.reason.trim()));
    let request = request.only(holder.node.clone(), holder.token);
    if deed == Deed::Ask {
        return match within(request.ask()).await?.is_empty() {
            true if queue.as_ref().is_some_and(LockQueue::is_node) => Err(Undone::other(
                "Another program made this node, and it cannot be asked. Only force ends it.",
            )),
            true => Err(Undone::other(OTHER_HOLDER)),
            false => Ok("The holder was asked.".to_owned()),
        };
    }
    let forced = timeout(GRACE + LIMIT, request.force_after(GRACE)).await;
    match forced.map(|went| went.map_err(|error| Undone::failed(&error))) {
        Ok(went) => match went?.first() {
            Some((_, RevokeOutcome::Forced)) => Ok("The lock was taken by force.".to_owned()),
            Some((_, RevokeOutcome::GaveWay)) => {
                Ok("The holder has released the lock by itself.".to_owned())
            }
            _ => Err(Undone::other(OTHER_HOLDER)),
        },
        Err(_) => Err(Undone::unknown()),
    }
}

fn shortened(text: &str) -> String {
    let mut end = text.len().min(OwnerInfo::LONGEST_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

async fn take_back(app: &App, path: &ZnodePath, wish: &Wish) -> Result<String, Undone> {
    let queue = pages::open_queue(&app.client, path).map_err(|error| Undone::failed(&error))?;
    let items = within(queue.items(MOST_ITEMS)).await?;
    let mut items = items.into_iter().filter(|item| item.id == wish.id);
    let claim = items.find_map(|item| item.claim.filter(|claim| claim.as_str() == wish.node));
    let Some(claim) = claim else { return Err(Undone::other(OTHER_ITEM)) };
    match timeout(LIMIT, app.client.delete(&claim, None)).await {
        Ok(Err(error)) if error.code() == Some(lockkeeper::ErrorCode::NoNode) => {
            Err(Undone::other(OTHER_ITEM))
        }
        Ok(done) => {
            within(async { done }).await.map(|()| "The item is in the queue again.".to_owned())
        }
        Err(_) => Err(Undone::unknown()),
    }
}

async fn retry(app: &App, path: &ZnodePath, wish: &Wish) -> Result<String, Undone> {
    let queue = pages::open_queue(&app.client, path).map_err(|error| Undone::failed(&error))?;
    let letters = within(queue.dead_letters()).await?;
    let is_there =
        letters.iter().any(|it| it.id == wish.id && it.since_unix_ms.to_string() == wish.fence);
    if !is_there {
        return Err(Undone::other(OTHER_LETTER));
    }
    match within(queue.put_back(&wish.id)).await? {
        true => Ok("The item is in the queue again.".to_owned()),
        false => Err(Undone::other(OTHER_LETTER)),
    }
}
