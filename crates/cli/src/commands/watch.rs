//! `lockkeeper watch`: runs a command after each change of a znode.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;

use bytes::Bytes;
use clap::Args;
use lockkeeper::{CacheChanges, Change, Snapshot, TreeCache, ZnodePath};

use crate::session::command_line::CommandLine;
use crate::session::connect::Connection;
use crate::session::user_command::{self, UserCommand, is_to_end};
use crate::shared::exit::{Exit, Failure, signal_code};
use crate::shared::global::Global;
use crate::shared::names;
use crate::shared::output::report;
use crate::shared::signals::Signals;

const NOTES: &str = "\
The command runs once at the start, and once after each change: of the data of the znode, of the names of its \
children, and when it is created or deleted. With --tree, changes of all znodes below it count as well. Two commands \
never run at the same time: all changes while one runs are combined, and a change that is undone in that time may be \
missed. Lost connections, lost sessions and restarts of servers do not end the watch; any difference after them is a \
change.

The command gets the data on its standard input. Its environment contains LOCKKEEPER_PATH; LOCKKEEPER_EXISTS, 1 or \
0; LOCKKEEPER_VERSION, the version of the data if the znode exists; LOCKKEEPER_CONNECT, and the files of credentials \
and certificates under the names of their variables. All of these are from one point in time, at which no newer \
state was known. The data of a shared value has an additional line before the value: use lockkeeper value get, or \
value watch.

A command that fails does not end the watch, and does not run again before the next change; --until-failure ends the \
watch with its exit code. A signal that ends the watch is forwarded to the command, and the watch ends after the \
command.

The names and data of all children are kept in memory, and with --tree the whole tree. Servers before ZooKeeper 3.6 \
do not support such watches.

Examples:
  lockkeeper watch app/limits -- sh -c 'lockkeeper value get app/limits > limits.json && pkill -HUP -F app.pid'
  lockkeeper watch services/web -- ./write-balancer-configuration
  lockkeeper watch config --tree -- sh -c 'lockkeeper export --path config > config.backup'

Exit codes: 128 + n, signal n ended it; the command's own with --until-failure; 65, the servers cannot watch; 126 \
and 127, the command cannot be executed; others: lockkeeper run --help";

/// Run a command now, and after each change of a znode
#[derive(Debug, Args)]
#[command(override_usage = "lockkeeper watch [OPTIONS] <PATH> -- <CMD>...", after_long_help = NOTES)]
pub(crate) struct WatchOptions {
    /// The znode
    #[arg(value_name = "PATH", value_parser = names::folder)]
    path: ZnodePath,

    /// Also run after changes of its descendants
    #[arg(long)]
    tree: bool,

    /// Exit when the command fails, with its exit code
    #[arg(long)]
    until_failure: bool,

    #[command(flatten)]
    command: CommandLine,
}

/// Runs the command repeatedly.
pub(crate) async fn watch(global: &Global, options: WatchOptions) -> Result<u8, Failure> {
    options.command.check()?;
    let connection = Connection::open_within(global, &mut None).await?;
    connection.introduce_engine(global);
    connection.tell_outages(global);
    let result = with_session(&connection, &options).await;
    connection.close().await;
    result
}

async fn with_session(connection: &Connection, options: &WatchOptions) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    tokio::select! {
        code = runs(connection, options, &mut signals) => code,
        // The engine is permanently gone. A running command is not ended.
        () = async {
            report(&connection.keep_engine().await);
            std::future::pending().await
        } => Ok(Exit::NoServer.code()),
    }
}

async fn runs(
    connection: &Connection,
    options: &WatchOptions,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let path = options.path.as_str();
    let depth = if options.tree { usize::MAX } else { 1 };
    let cache = TreeCache::builder(&connection.client, path).max_depth(depth).skip_unreadable();
    let cache = tokio::select! {
        cache = cache.open() => cache.map_err(|error| Failure::of_recipe(&error))?,
        signal = signals.next() => return Ok(signal_code(signal.as_raw())),
    };

    let command = options.command.words();
    let mut changes = cache.changes();
    let mut seen = cache.snapshot();
    loop {
        let variables =
            user_command::way_to_servers(connection).chain(variables(path, &seen)).collect();
        let input = seen.get(path).map(|node| Bytes::copy_from_slice(node.data()));
        let input = Some(input.unwrap_or_default());
        let program = UserCommand { command: &command, variables, input };
        let ended = program.run(signals, async || {}).await?;
        if let Some(signal) = ended.signal {
            return Ok(signal_code(signal.as_raw()));
        }
        if options.until_failure && ended.code != Exit::Ok.code() {
            return Ok(ended.code);
        }
        tokio::select! {
            biased;
            signal = async {
                loop {
                    let signal = signals.next().await;
                    if is_to_end(signal) {
                        return signal;
                    }
                }
            } => return Ok(signal_code(signal.as_raw())),
            newer = differs(&mut changes, options, &seen) => seen = newer?,
        }
    }
}

/// Waits until the state that the command was run for has changed.
async fn differs(
    changes: &mut CacheChanges,
    options: &WatchOptions,
    seen: &Snapshot,
) -> Result<Arc<Snapshot>, Failure> {
    loop {
        let update = changes.next().await.map_err(|error| Failure::of_recipe(&error))?;
        let newer = update.snapshot;
        let differs = match options.tree {
            // The first change may already have been visible to the first run.
            true => {
                let is_same = |change: &Change| {
                    let mzxid = |tree: &Snapshot| {
                        tree.get(change.path()).map(|node| (node.stat().czxid, node.stat().mzxid))
                    };
                    mzxid(seen) == mzxid(&newer)
                };
                !update.changes.iter().all(is_same)
            }
            false => own(seen, &options.path) != own(&newer, &options.path),
        };
        if differs {
            return Ok(newer);
        }
    }
}

/// The state of a znode, without that of its children.
fn own<'a>(
    tree: &'a Snapshot,
    path: &ZnodePath,
) -> Option<(lockkeeper::Zxid, BTreeMap<&'a str, lockkeeper::Zxid>)> {
    let node = tree.get(path.as_str())?;
    let children = tree.children(path.as_str()).map(|(name, child)| (name, child.stat().czxid));
    Some((node.stat().mzxid, children.collect()))
}

fn variables(path: &str, seen: &Snapshot) -> [(&'static str, Option<OsString>); 3] {
    let node = seen.get(path);
    let exists = if node.is_some() { "1" } else { "0" };
    [
        ("LOCKKEEPER_PATH", Some(path.into())),
        ("LOCKKEEPER_EXISTS", Some(exists.into())),
        ("LOCKKEEPER_VERSION", node.map(|node| node.stat().version.to_string().into())),
    ]
}
