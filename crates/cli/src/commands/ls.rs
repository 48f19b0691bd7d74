//! `lockkeeper ls`: the locks below a path.

use clap::Args;
use lockkeeper::inspect::{self, LockQueue, LockQueues};
use lockkeeper::{Client, ZnodePath};
use serde::Serialize;
use serde_json::Value;

use super::record::OUTCOMES;
use crate::session::connect::Connection;
use crate::session::follow::{Picture, follow};
use crate::session::path_use;
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::view::{self, Contender, Observed};
use crate::shared::{names, output};

const NOTES: &str = "\
An ephemeral znode that is not a contender of a queue is listed as a lock that its session holds. \
Consumers of queues, ids, barriers and services are left out: see lockkeeper status. Members of a \
group are listed, because nothing tells them from locks of other libraries.

SINCE is the time since the grant or, if that is unknown, the time in the queue: see lockkeeper show \
--help.

--watch watches all znodes below the path, which is expensive for servers if many of them change.

Exit codes with --exit-code: 0, no lock below the path is held or waited for; 1, some are; 77, none was \
found, but some znodes may not be read.";

/// List the locks below a path, with holders and numbers of waiters
#[derive(Debug, Args)]
#[command(after_long_help = NOTES)]
pub(crate) struct LsOptions {
    /// The path whose locks to list
    #[arg(default_value = "/", value_parser = names::folder)]
    path: ZnodePath,

    /// List the locks again after each change, until Ctrl-C; with --json, one object on each line
    #[arg(long)]
    watch: bool,

    /// Exit with 0 if no lock below the path is held, and with 1 if some are
    #[arg(long, conflicts_with = "watch")]
    exit_code: bool,
}

/// The locks as JSON. The field names are stable.
#[derive(Debug, Serialize)]
struct ListedBelow<'a> {
    path: &'a str,
    locks: Vec<ListedLock<'a>>,
    /// Nodes without read permission.
    unreadable: Vec<&'a str>,
}

#[derive(Debug, Serialize)]
struct ListedLock<'a> {
    lock: &'a str,
    holders: usize,
    waiters: usize,
    /// The number of permits, if the lock is a semaphore and the number is known.
    permits: Option<u32>,
    /// How many of them are free.
    permits_free: Option<u32>,
    /// A pending lock delay.
    delay: Option<view::Delay<'a>>,
    contenders: Vec<Contender<'a>>,
}

/// The state of the locks below a path.
struct SeenLocks<'a> {
    path: &'a ZnodePath,
    locks: LockQueues,
}

/// Lists the locks that are not free.
pub(crate) async fn ls(global: &Global, options: LsOptions) -> Result<u8, Failure> {
    let path = &options.path;
    let look = async |client: &Client| {
        let mut locks = inspect::queues(client, path).await?;
        locks.queues.retain(|queue| !queue.path.starts_with(OUTCOMES));
        path_use::keep_locks(client, &mut locks.queues).await?;
        Ok(SeenLocks { path, locks })
    };
    if options.watch {
        return follow(global, path, look).await;
    }

    let seen = Connection::during(global, async |connection| Ok(look(&connection.client).await?));
    let (seen, observed) = (seen.await?, Observed::new());
    output::show(global, &seen.listed(&observed), || seen.text(&observed))?;
    if !options.exit_code {
        return Ok(Exit::Ok.code());
    }
    match (seen.locks.queues.as_slice(), seen.locks.unreadable.first()) {
        ([], None) => Ok(Exit::Ok.code()),
        ([], Some(node)) => {
            let message = format!(
                "cannot determine whether a lock below {path} is held: no permission to read {node}"
            );
            Err(Failure::new(Exit::NoPermission, view::printable(&message)))
        }
        _ => Ok(Exit::No.code()),
    }
}

impl SeenLocks<'_> {
    fn listed(&self, observed: &Observed) -> ListedBelow<'_> {
        ListedBelow {
            path: self.path.as_str(),
            locks: self.locks.queues.iter().map(|queue| ListedLock::new(queue, observed)).collect(),
            unreadable: self.locks.unreadable.iter().map(AsRef::as_ref).collect(),
        }
    }
}

impl Picture for SeenLocks<'_> {
    fn queues(&self) -> &[LockQueue] {
        &self.locks.queues
    }

    fn json(&self, observed: &Observed) -> Result<Value, Failure> {
        output::json(&self.listed(observed))
    }

    fn text(&self, observed: &Observed) -> String {
        describe(self.path.as_str(), &self.locks, observed)
    }
}

impl<'a> ListedLock<'a> {
    fn new(queue: &'a LockQueue, observed: &Observed) -> Self {
        Self {
            lock: queue.path.as_str(),
            holders: queue.holders().count(),
            waiters: queue.waiters().count(),
            permits: queue.permits,
            permits_free: queue.free_permits(),
            delay: view::delay(queue),
            contenders: view::contenders(queue, observed),
        }
    }
}

fn describe(path: &str, locks: &LockQueues, observed: &Observed) -> String {
    let mut text = if locks.queues.is_empty() {
        format!("no lock below {path} is held\n")
    } else {
        let mut rows = vec![["LOCK", "HELD BY", "SINCE", "WAITING"].map(str::to_owned).to_vec()];
        rows.extend(locks.queues.iter().map(|queue| row(queue, observed)));
        view::table(&rows)
    };
    for node in &locks.unreadable {
        text.push_str(&format!("{}: permission denied\n", view::printable(node.as_str())));
    }
    text
}

fn row(queue: &LockQueue, observed: &Observed) -> Vec<String> {
    let holder = queue.holders().next();
    let others = queue.holders().count().saturating_sub(1);
    let delay = || queue.delay.as_ref().map(view::lock_delay).unwrap_or_default();
    let mut who = holder.map_or_else(delay, view::who);
    if others > 0 {
        who.push_str(&format!(" and {others} more"));
    }
    vec![
        view::printable(queue.path.as_str()),
        who,
        holder.map(|holder| view::how_long(holder, observed)).unwrap_or_default(),
        queue.waiters().count().to_string(),
    ]
}
