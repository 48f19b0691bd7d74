//! What else is in the tree: queues, elections, groups, services, pools and runs.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use lockkeeper::overview::{ElectionUse, GroupUse, PoolUse, QueueUse, ServiceUse};
use lockkeeper::{OnceKey, OnceLog};

use crate::commands::console::answers::page;
use crate::commands::console::app::App;
use crate::commands::console::frame::Frame;
use crate::commands::console::model::Model;
use crate::commands::console::text;
use crate::commands::console::words::{Age, ContenderName, LockLink, Since, clock};
use crate::shared::view;

/// How many rows each table has, and how many names a row.
const MOST_ROWS: usize = 100;
const MOST_NAMES: usize = 8;

#[derive(Debug, Template)]
#[template(path = "console/recipes.html")]
struct RecipesPage {
    frame: Frame,
    elections: Vec<Election>,
    queues: Vec<ShownQueue>,
    groups: Vec<Named>,
    services: Vec<Named>,
    pools: Vec<ShownPool>,
    runs: Vec<Runs>,
    /// The tables that have more rows.
    cut: Vec<String>,
}

#[derive(Debug)]
struct Election {
    path: LockLink,
    leader: Option<(ContenderName, Since)>,
    id: String,
    candidates: usize,
}

#[derive(Debug)]
struct ShownQueue {
    path: String,
    link: Option<String>,
    numbers: [String; 5],
    has_dead: bool,
    has_no_workers: bool,
    oldest: Option<Age>,
}

/// A group or a service, with its members or instances.
#[derive(Debug)]
struct Named {
    path: String,
    count: String,
    names: Vec<String>,
    more: usize,
}

#[derive(Debug)]
struct ShownPool {
    path: String,
    held: usize,
    free: usize,
    waiting: usize,
    holders: Vec<(String, String)>,
    more: usize,
}

#[derive(Debug)]
struct Runs {
    lock: LockLink,
    key: String,
    began: String,
    code: String,
    is_bad: bool,
}

/// The recipes other than locks.
pub(crate) async fn recipes(State(app): State<Arc<App>>) -> Response {
    let model = app.model();
    let others = &model.others;
    let counts = [
        ("elections", others.elections.len()),
        ("queues", others.queues.len()),
        ("groups", others.groups.len()),
        ("services", others.services.len()),
        ("pools", others.pools.len()),
        ("runs", others.once.len()),
    ];
    let cut = counts.into_iter().filter(|(_, count)| *count > MOST_ROWS);
    let elections = others.elections.iter().take(MOST_ROWS);
    page(&RecipesPage {
        frame: Frame::new(&app, &model, "/recipes", "Recipes"),
        elections: elections.map(|election| Election::of(&model, election)).collect(),
        queues: others.queues.iter().take(MOST_ROWS).map(ShownQueue::of).collect(),
        groups: others.groups.iter().take(MOST_ROWS).map(Named::of_group).collect(),
        services: others.services.iter().take(MOST_ROWS).map(Named::of_service).collect(),
        pools: others.pools.iter().take(MOST_ROWS).map(ShownPool::of).collect(),
        runs: others.once.iter().take(MOST_ROWS).map(Runs::of).collect(),
        cut: cut.map(|(name, count)| format!("{} {name}", text::number(count))).collect(),
    })
}

impl Election {
    fn of(model: &Model, election: &ElectionUse) -> Self {
        let leader = model.find(&election.path).and_then(|lock| {
            let at = model.holder(lock)?;
            Some((ContenderName::of(model.contender(at)), Since::of(model, at)))
        });
        let is_named =
            |id: &&str| !leader.iter().any(|(who, _): &(ContenderName, Since)| who.name == **id);
        let id = election.leader.as_ref().map(|leader| leader.id.as_str());
        let id = id.filter(is_named).unwrap_or_default();
        Self {
            path: LockLink::to(election.path.as_str()),
            leader,
            id: text::visible(id, 60),
            candidates: election.candidates,
        }
    }
}

impl ShownQueue {
    fn of(queue: &QueueUse) -> Self {
        let (path, report) = (queue.path.as_str(), &queue.report);
        let link = format!("/queue?path={}", text::query(path));
        let oldest = report.oldest_unix_ms.map(Duration::from_millis);
        let oldest = oldest.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
        let numbers = [report.waiting, report.claimed, report.delayed, report.dead, report.workers];
        Self {
            path: text::path(path),
            link: (path.len() <= text::LONGEST_LINK).then_some(link),
            numbers: numbers.map(text::number),
            has_dead: report.dead > 0,
            has_no_workers: report.waiting > 0 && report.workers == 0,
            oldest: oldest.map(Age::of),
        }
    }
}

impl Named {
    fn new(path: &str, names: impl ExactSizeIterator<Item = String>) -> Self {
        let count = names.len();
        Self {
            path: text::path(path),
            count: text::number(count),
            names: names.take(MOST_NAMES).collect(),
            more: count.saturating_sub(MOST_NAMES),
        }
    }

    fn of_group(group: &GroupUse) -> Self {
        Self::new(group.path.as_str(), group.members.iter().map(|it| text::visible(&it.id, 60)))
    }

    fn of_service(service: &ServiceUse) -> Self {
        let names = service.instances.iter().map(|(it, _)| {
            let port = it.port.or(it.ssl_port).map(|port| format!(":{port}")).unwrap_or_default();
            match &it.address {
                Some(address) => text::visible(&format!("{address}{port}"), 60),
                None => text::visible(&it.id, 60),
            }
        });
        Self::new(service.path.as_str(), names)
    }
}

impl ShownPool {
    fn of(pool: &PoolUse) -> Self {
        let report = &pool.report;
        let holders = report.held.iter().take(MOST_NAMES).map(|thing| {
            let who = thing.info.as_ref().map(view::program).unwrap_or_default();
            (text::visible(&thing.name, 60), text::visible(&who, text::LONG))
        });
        Self {
            path: text::path(pool.path.as_str()),
            held: report.held.len(),
            free: report.free.len(),
            waiting: report.waiting.len(),
            holders: holders.collect(),
            more: report.held.len().saturating_sub(MOST_NAMES),
        }
    }
}

impl Runs {
    fn of(log: &OnceLog) -> Self {
        let last = log.records.last();
        let key = last.map(|record| match &record.key {
            OnceKey::Named(key) => text::visible(key, 60),
            OnceKey::Tick(tick) => clock(tick.unix_ms()),
        });
        let began =
            last.map(|record| u64::try_from(view::unix_ms(record.began)).unwrap_or_default());
        let end = last.and_then(|record| record.end);
        Self {
            lock: LockLink::to(log.lock.as_str()),
            key: key.unwrap_or_default(),
            began: began.map(clock).unwrap_or_default(),
            code: match end {
                Some(end) => format!("ended with {}", end.code),
                None if last.is_some() => "no end is recorded".to_owned(),
                None => String::new(),
            },
            is_bad: last.is_some() && end.is_none_or(|end| end.code != 0),
        }
    }
}
