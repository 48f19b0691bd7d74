//! `lockkeeper status`: all recipes below a path, and what looks wrong.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::Args;
use lockkeeper::overview::{
    ElectionUse, GroupUse, HoldTimes, Overview, PoolUse, QueueUse, ServiceUse, SessionUse, Warning,
    WarningLimits,
};
use lockkeeper::{OnceKey, OnceLog, TreeCache, ZnodePath};
use serde::Serialize;

use super::record::{OUTCOMES, hold_times};
use crate::session::connect::Connection;
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::{names, output, view};

const NOTES: &str = "\
Warnings: deadlocks; a wait for a lock of more than --long; a lock that is held ten times longer than usual (only with \
--file, since the servers do not keep how long locks were held); an item in a queue for more than --long; items without \
a consumer; dead letters; a run of run --every or --once-per that ended without a record.

A path is shown as what its znodes look like. A znode that ends with its session and was not created by a lock of \
lockkeeper counts as a member of a group: other programs also use such znodes as locks.

It reads all znodes below PATH once. lockkeeper record and lockkeeper show --watch follow changes.

Examples:
  lockkeeper status
  lockkeeper status --exit-code >/dev/null || alert    for a monitor

Exit codes: 0; with --exit-code, 1 if there is a warning; others: lockkeeper run --help";

/// Show what uses the servers, and what looks wrong: locks, sessions, queues, services
#[derive(Debug, Args)]
#[command(after_long_help = NOTES)]
pub(crate) struct StatusOptions {
    /// The path to look below
    #[arg(default_value = "/", value_parser = names::folder)]
    path: ZnodePath,

    /// From when on a wait, or the age of an item, is a warning
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = names::nonzero_duration)]
    long: Duration,

    /// What lockkeeper record has written, for how long locks are usually held
    #[arg(long, env = "LOCKKEEPER_HISTORY")]
    file: Option<PathBuf>,

    /// End with 1 if there is a warning
    #[arg(long)]
    exit_code: bool,
}

/// The overview as JSON. The names are stable.
#[derive(Debug, Serialize)]
struct ShownStatus<'a> {
    path: &'a str,
    warnings: Vec<ShownWarning<'a>>,
    locks: ShownLocks,
    sessions: Vec<ShownSession<'a>>,
    elections: Vec<ShownElection<'a>>,
    groups: Vec<ShownGroup<'a>>,
    services: Vec<ShownService<'a>>,
    queues: Vec<ShownQueue<'a>>,
    pools: Vec<ShownPool<'a>>,
    runs: Vec<ShownRuns<'a>>,
}

#[derive(Debug, Serialize)]
struct ShownWarning<'a> {
    warning: &'static str,
    path: Option<&'a str>,
    text: String,
}

#[derive(Debug, Serialize)]
struct ShownLocks {
    held: usize,
    contended: usize,
    waiters: usize,
}

#[derive(Debug, Serialize)]
struct ShownSession<'a> {
    session: String,
    owner: Option<&'a lockkeeper::OwnerInfo>,
    holds: &'a [ZnodePath],
    waits: &'a [ZnodePath],
    takes_part: &'a [ZnodePath],
}

#[derive(Debug, Serialize)]
struct ShownElection<'a> {
    path: &'a str,
    leader: Option<&'a lockkeeper::Leader>,
    candidates: usize,
}

#[derive(Debug, Serialize)]
struct ShownGroup<'a> {
    path: &'a str,
    members: Vec<&'a str>,
}

#[derive(Debug, Serialize)]
struct ShownService<'a> {
    path: &'a str,
    instances: Vec<&'a str>,
}

#[derive(Debug, Serialize)]
struct ShownQueue<'a> {
    path: &'a str,
    waiting: usize,
    claimed: usize,
    delayed: usize,
    dead: usize,
    workers: usize,
    oldest_unix_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
struct ShownPool<'a> {
    path: &'a str,
    /// Of a stored set.
    free: usize,
    held: usize,
    waiting: usize,
}

#[derive(Debug, Serialize)]
struct ShownRuns<'a> {
    lock: &'a str,
    records: usize,
    last_key: Option<String>,
    last_code: Option<i32>,
}

/// What was seen at one moment.
struct SeenStatus<'a> {
    path: &'a ZnodePath,
    overview: Overview,
    warnings: Vec<Warning>,
}

/// Shows the overview.
pub(crate) async fn status(global: &Global, options: StatusOptions) -> Result<u8, Failure> {
    let path = &options.path;
    let times = options.file.as_deref().map(hold_times).transpose()?.unwrap_or_default();
    let overview = Connection::during(global, async |connection| {
        let cache = TreeCache::builder(&connection.client, path.as_str());
        let cache = cache.filter(|path| !path.starts_with(OUTCOMES)).skip_unreadable();
        let cache = cache.open().await.map_err(|error| Failure::of_recipe(&error))?;
        Ok(Overview::in_tree(&*cache.snapshot(), path))
    });
    let overview = overview.await?;
    let warnings = warnings(&overview, options.long, &times);
    let seen = SeenStatus { path, overview, warnings };

    output::show(global, &seen.shown(), || seen.text())?;
    let is_no = options.exit_code && !seen.warnings.is_empty();
    Ok(if is_no { Exit::No } else { Exit::Ok }.code())
}

fn warnings(overview: &Overview, long: Duration, times: &HoldTimes) -> Vec<Warning> {
    let mut limits = WarningLimits::default();
    (limits.wait, limits.item) = (long, long);
    overview.warnings(SystemTime::now(), &limits, times)
}

impl SeenStatus<'_> {
    fn shown(&self) -> ShownStatus<'_> {
        let overview = &self.overview;
        let warnings = self.warnings.iter().map(|warning| ShownWarning {
            warning: warning.name(),
            path: warning.path().map(ZnodePath::as_str),
            text: warning.to_string(),
        });
        ShownStatus {
            path: self.path.as_str(),
            warnings: warnings.collect(),
            locks: self.locks(),
            sessions: overview.sessions.iter().map(ShownSession::new).collect(),
            elections: overview.elections.iter().map(ShownElection::new).collect(),
            groups: overview.groups.iter().map(ShownGroup::new).collect(),
            services: overview.services.iter().map(ShownService::new).collect(),
            queues: overview.queues.iter().map(ShownQueue::new).collect(),
            pools: overview.pools.iter().map(ShownPool::new).collect(),
            runs: overview.once.iter().map(ShownRuns::new).collect(),
        }
    }

    fn locks(&self) -> ShownLocks {
        let locks = &self.overview.locks;
        ShownLocks {
            held: locks.iter().filter(|lock| lock.holders().next().is_some()).count(),
            contended: locks.iter().filter(|lock| lock.waiters().next().is_some()).count(),
            waiters: locks.iter().map(|lock| lock.waiters().count()).sum(),
        }
    }

    fn text(&self) -> String {
        let overview = &self.overview;
        let warnings = self.warnings.iter().map(|it| view::printable(&it.to_string()));
        let mut text: String = warnings.map(|it| format!("warning: {it}\n")).collect();
        if text.is_empty() {
            text.push_str("no warnings\n");
        }
        let ShownLocks { held, contended, waiters } = self.locks();
        text.push_str(&format!("locks: {held} held, {waiters} waiting for {contended} of them\n"));

        let tables = [
            table("SESSION  PROGRAM  HOLDS  WAITS FOR  TAKES PART IN", &overview.sessions),
            table("ELECTION  LEADER  CANDIDATES", &overview.elections),
            table("GROUP  MEMBERS", &overview.groups),
            table("SERVICE  INSTANCES", &overview.services),
            table("QUEUE  WAITING  CLAIMED  DELAYED  DEAD  CONSUMERS  OLDEST", &overview.queues),
            table("POOL  HELD  FREE  WAITING", &overview.pools),
            table("RUNS UNDER  LAST  CODE", &overview.once),
        ];
        for table in tables.into_iter().flatten() {
            text.push('\n');
            text.push_str(&table);
        }
        text
    }
}

/// Something that is a row of a table.
trait Row {
    fn cells(&self) -> Vec<String>;
}

/// A table with these headings, two blanks apart; `None` without rows.
fn table<T: Row>(headings: &str, rows: &[T]) -> Option<String> {
    let headings = headings.split("  ").map(str::to_owned).collect();
    let cells = rows.iter().map(|row| row.cells().iter().map(|it| view::short(it)).collect());
    let table: Vec<Vec<String>> = std::iter::once(headings).chain(cells).collect();
    (!rows.is_empty()).then(|| view::table(&table))
}

/// Paths with how often each is there: `/gpu (2), /jobs`.
fn counted(paths: &[ZnodePath]) -> String {
    let same = paths.chunk_by(|one, other| one == other);
    let texts = same.map(|paths| match paths {
        [path] => path.to_string(),
        paths => format!("{} ({})", paths[0], paths.len()),
    });
    view::listed(&texts.collect::<Vec<_>>())
}

impl Row for SessionUse {
    fn cells(&self) -> Vec<String> {
        let program = self.owner.as_ref().map(view::program).unwrap_or_default();
        let lists = [&self.holds, &self.waits, &self.takes_part].map(|paths| counted(paths));
        [self.session.to_string(), program].into_iter().chain(lists).collect()
    }
}

impl Row for ElectionUse {
    fn cells(&self) -> Vec<String> {
        let leader = self.leader.as_ref().map(|leader| leader.id.clone()).unwrap_or_default();
        vec![self.path.to_string(), leader, self.candidates.to_string()]
    }
}

impl Row for GroupUse {
    fn cells(&self) -> Vec<String> {
        let members: Vec<_> = self.members.iter().map(|member| member.id.clone()).collect();
        vec![self.path.to_string(), view::listed(&members)]
    }
}

impl Row for ServiceUse {
    fn cells(&self) -> Vec<String> {
        let ids: Vec<_> = self.instances.iter().map(|(it, _)| it.id.clone()).collect();
        vec![self.path.to_string(), view::listed(&ids)]
    }
}

impl Row for QueueUse {
    fn cells(&self) -> Vec<String> {
        let report = &self.report;
        let numbers = [report.waiting, report.claimed, report.delayed, report.dead, report.workers];
        let oldest = report.oldest_unix_ms.map(|_| view::duration(report.age_of_oldest()));
        let numbers = numbers.into_iter().map(|number| number.to_string());
        [self.path.to_string()].into_iter().chain(numbers).chain(oldest).collect()
    }
}

impl Row for PoolUse {
    fn cells(&self) -> Vec<String> {
        let report = &self.report;
        let numbers = [report.held.len(), report.free.len(), report.waiting.len()];
        let numbers = numbers.into_iter().map(|number| number.to_string());
        [self.path.to_string()].into_iter().chain(numbers).collect()
    }
}

impl Row for OnceLog {
    fn cells(&self) -> Vec<String> {
        let ShownRuns { last_key, last_code, .. } = ShownRuns::new(self);
        let code = last_code.map_or_else(|| "none".to_owned(), |code| code.to_string());
        vec![self.lock.to_string(), last_key.unwrap_or_default(), code]
    }
}

impl<'a> ShownSession<'a> {
    fn new(session: &'a SessionUse) -> Self {
        Self {
            session: session.session.to_string(),
            owner: session.owner.as_ref(),
            holds: &session.holds,
            waits: &session.waits,
            takes_part: &session.takes_part,
        }
    }
}

impl<'a> ShownElection<'a> {
    fn new(election: &'a ElectionUse) -> Self {
        let ElectionUse { path, leader, candidates, .. } = election;
        Self { path: path.as_str(), leader: leader.as_ref(), candidates: *candidates }
    }
}

impl<'a> ShownGroup<'a> {
    fn new(group: &'a GroupUse) -> Self {
        let members = group.members.iter().map(|member| member.id.as_str()).collect();
        Self { path: group.path.as_str(), members }
    }
}

impl<'a> ShownService<'a> {
    fn new(service: &'a ServiceUse) -> Self {
        let instances = service.instances.iter().map(|(it, _)| it.id.as_str()).collect();
        Self { path: service.path.as_str(), instances }
    }
}

impl<'a> ShownQueue<'a> {
    fn new(queue: &'a QueueUse) -> Self {
        let report = &queue.report;
        Self {
            path: queue.path.as_str(),
            waiting: report.waiting,
            claimed: report.claimed,
            delayed: report.delayed,
            dead: report.dead,
            workers: report.workers,
            oldest_unix_ms: report.oldest_unix_ms,
        }
    }
}

impl<'a> ShownPool<'a> {
    fn new(pool: &'a PoolUse) -> Self {
        let report = &pool.report;
        let (free, held, waiting) = (report.free.len(), report.held.len(), report.waiting.len());
        Self { path: pool.path.as_str(), free, held, waiting }
    }
}

impl<'a> ShownRuns<'a> {
    fn new(log: &'a OnceLog) -> Self {
        let last = log.records.last();
        let key = |key: &OnceKey| match key {
            OnceKey::Named(key) => key.clone(),
            OnceKey::Tick(tick) => view::date(tick.unix_ms()),
        };
        Self {
            lock: log.lock.as_str(),
            records: log.records.len(),
            last_key: last.map(|record| key(&record.key)),
            last_code: last.and_then(|record| record.end).map(|end| end.code),
        }
    }
}
