//! `lockkeeper pool`: the things of a pool, and their holders.

use clap::{Args, Subcommand};
use lockkeeper::{HeldThing, OwnerInfo, Pool, PoolReport, PoolWaiter, SessionId, ZnodePath};
use serde::Serialize;

use crate::session::connect::Connection;
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::{names, output, view};

const LS_NOTES: &str = "\
Things are taken by programs that use the library, and by lockkeeper run --one-of. The latter names its things in each \
run and does not store them, so only held ones are listed. SINCE is by the clock of the servers.

Examples:
  lockkeeper pool ls gpu
  lockkeeper pool ls gpu --json | jq -r '.free[]'
  lockkeeper run --one-of gpu/{0..7} -- ./train

Exit codes: 0, even if there is no pool; 65, the path is not a pool; others: lockkeeper run --help";

/// A subcommand of `pool`.
#[derive(Debug, Subcommand)]
pub(crate) enum PoolTask {
    /// List the things with their holders, and the waiting programs
    #[command(after_long_help = LS_NOTES)]
    Ls(PoolName),
}

#[derive(Debug, Args)]
pub(crate) struct PoolName {
    /// The pool
    #[arg(value_name = "NAME", value_parser = names::lock)]
    name: ZnodePath,
}

/// A pool as JSON. The field names are stable.
#[derive(Debug, Serialize)]
struct ShownPool<'a> {
    pool: &'a str,
    /// Whether the pool exists.
    exists: bool,
    free: &'a [String],
    held: Vec<ShownThing<'a>>,
    /// The waiting programs, first come first.
    waiting: Vec<ShownWaiter<'a>>,
}

#[derive(Debug, Serialize)]
struct ShownThing<'a> {
    thing: &'a str,
    /// The holder to which a limit of things applies, if there is a limit.
    holder: Option<&'a str>,
    owner: Option<&'a OwnerInfo>,
    /// A string: a token may contain more than a number, and may exceed the integers that JSON readers keep exactly.
    token: String,
    session: String,
    since_unix_ms: u64,
}

#[derive(Debug, Serialize)]
struct ShownWaiter<'a> {
    holder: Option<&'a str>,
    /// The things that it waits for; `null` if any.
    only: Option<Vec<&'a str>>,
    owner: &'a OwnerInfo,
    since_unix_ms: u64,
}

/// Lists the things.
pub(crate) async fn pool(global: &Global, task: PoolTask) -> Result<u8, Failure> {
    let PoolTask::Ls(PoolName { name }) = task;
    let report = Connection::during(global, async |connection| {
        let client = &connection.client;
        let failed = |error| Failure::of_recipe(&error);
        let pool = Pool::new(client, name.as_str()).map_err(failed)?;
        // Inspecting a pool would create it.
        match client.exists(&name).await? {
            Some(_) => pool.inspect().await.map(Some).map_err(failed),
            None => Ok(None),
        }
    });
    let report = report.await?;
    let exists = report.is_some();
    let report = report.unwrap_or_default();
    let shown = ShownPool {
        pool: name.as_str(),
        exists,
        free: &report.free,
        held: report.held.iter().map(ShownThing::new).collect(),
        waiting: report.waiting.iter().map(ShownWaiter::new).collect(),
    };
    output::show(global, &shown, || match exists {
        true => text(&name, &report),
        false => format!("no pool at {name}\n"),
    })?;
    Ok(Exit::Ok.code())
}

fn text(name: &ZnodePath, report: &PoolReport) -> String {
    let mut rows = vec![["THING", "HELD BY", "SINCE"].map(str::to_owned).to_vec()];
    rows.extend(report.held.iter().map(|thing| {
        let since = view::ago(thing.since_unix_ms);
        vec![view::printable(&thing.name), who(thing), since]
    }));
    let free = report.free.iter();
    rows.extend(free.map(|name| vec![view::printable(name), "free".to_owned()]));
    let mut text = match rows.len() {
        1 => format!("no thing of {name} is held\n"),
        _ => view::table(&rows),
    };
    for waiter in &report.waiting {
        let only = waiter.only.as_ref().map(|only| only.iter().cloned().collect::<Vec<_>>());
        let only =
            only.map(|only| format!(", for one of {}", view::listed(&only))).unwrap_or_default();
        let on_behalf = on_behalf(waiter.holder.as_deref());
        let (who, since) = (view::program(&waiter.info), view::ago(waiter.since_unix_ms));
        text.push_str(&format!("{who}{on_behalf} has waited for {since}{only}\n"));
    }
    text
}

fn who(thing: &HeldThing) -> String {
    let holder = match &thing.info {
        Some(info) => view::program(info),
        None if thing.session == SessionId::NONE => {
            "a persistent node, which no session's end deletes".to_owned()
        }
        None => format!("session {}", thing.session),
    };
    holder + &on_behalf(thing.holder.as_deref())
}

fn on_behalf(holder: Option<&str>) -> String {
    holder.map(|holder| format!(", for {}", view::short(holder))).unwrap_or_default()
}

impl<'a> ShownThing<'a> {
    fn new(thing: &'a HeldThing) -> Self {
        Self {
            thing: &thing.name,
            holder: thing.holder.as_deref(),
            owner: thing.info.as_ref(),
            token: thing.token.to_string(),
            session: thing.session.to_string(),
            since_unix_ms: thing.since_unix_ms,
        }
    }
}

impl<'a> ShownWaiter<'a> {
    fn new(waiter: &'a PoolWaiter) -> Self {
        Self {
            holder: waiter.holder.as_deref(),
            only: waiter.only.as_ref().map(|only| only.iter().map(String::as_str).collect()),
            owner: &waiter.info,
            since_unix_ms: waiter.since_unix_ms,
        }
    }
}
