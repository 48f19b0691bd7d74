//! `lockkeeper revoke`: asks the holders of a lock to release it, or takes it from them.

use std::time::Duration;

use clap::Args;
use lockkeeper::ZnodePath;
use lockkeeper::inspect::LockQueue;
use lockkeeper::overview::PathUse;
use lockkeeper::revoke::{Revocation, RevokeOutcome};
use serde::Serialize;

use crate::session::connect::Connection;
use crate::session::path_use;
use crate::shared::exit::{Exit, Failure};
use crate::shared::global::Global;
use crate::shared::output::show;
use crate::shared::{names, user, view};

const NOTES: &str = "\
A command under `lockkeeper run` gets TERM, unless the run ignores requests (--on-revoke ignore), and the \
lock is released when the command has ended. Programs that use the library, or Apache Curator, decide \
themselves. The lock goes to the next program in its queue.

A lock that is one ephemeral znode of another program cannot be requested: only --force-after ends it, by \
deleting the znode. Without it, the exit code is then 1.

The holder, and lockkeeper show and ls, display who requests the lock, and --reason. Programs on Apache Curator \
see only that the lock is requested.

Exit codes: 0, the holders were asked, or there are none; 1, a holder cannot be asked, or has not released the \
lock in time (--wait=DURATION, with an equals sign).

--force-after takes the lock from holders that have not released it by then. `lockkeeper run` then ends its command \
immediately, but for a moment two commands may run. Use it when a holder hangs, and where fencing tokens are \
checked.";

/// Ask the holders of a lock to release it
#[derive(Debug, Args)]
#[command(after_long_help = NOTES)]
pub(crate) struct RevokeOptions {
    /// The lock
    #[arg(value_parser = names::lock)]
    lock: ZnodePath,

    /// Take the lock from holders that have not released it after this time
    #[arg(long, value_name = "DURATION", value_parser = names::duration,
          allow_hyphen_values = true)]
    force_after: Option<Duration>,

    /// Wait until these holders have released it, or at most for this time
    #[arg(long, value_name = "DURATION", value_parser = names::duration, num_args = 0..=1,
          require_equals = true, conflicts_with = "force_after")]
    wait: Option<Option<Duration>>,

    /// The reason, in at most 1024 bytes; `run` and `hold` show it to their users
    #[arg(long, value_name = "TEXT", value_parser = names::remark)]
    reason: Option<String>,
}

/// The result for each holder, as JSON. The field names are stable.
#[derive(Debug, Serialize)]
struct ShownRevocation<'a> {
    lock: &'a str,
    holders: Vec<Asked>,
}

#[derive(Debug, Serialize)]
struct Asked {
    node: String,
    /// `asked`, `gave-way`, `stayed`, `forced`, or `cannot-ask`.
    outcome: &'static str,
    /// The holder, for people.
    #[serde(skip)]
    who: String,
}

/// The correction for `--wait 2s`.
pub(crate) const TIME_OF_WAIT: &str = "; a time follows --wait with an equals sign: --wait=2s";

/// Asks the holders, and prints them.
pub(crate) async fn revoke(global: &Global, options: RevokeOptions) -> Result<u8, Failure> {
    if options.wait == Some(None) && is_time_of_wait(&options.lock, std::env::args()) {
        let message = format!("{} was read as the name of a lock{TIME_OF_WAIT}", options.lock);
        let advice = format!("for a lock with this name, use revoke {} --wait", options.lock);
        return Err(Failure::new(Exit::Usage, message).advise(&advice));
    }
    let asked = Connection::during(global, async |connection| ask(connection, &options).await);
    let lock = options.lock.as_str();
    let shown = ShownRevocation { lock, holders: asked.await? };
    show(global, &shown, || describe(lock, &shown.holders))?;
    let is_in_vain =
        shown.holders.iter().any(|holder| [CANNOT_ASK, STAYED].contains(&holder.outcome));
    Ok(if is_in_vain { Exit::No } else { Exit::Ok }.code())
}

/// Whether these words contain `--wait` followed by this lock, which looks like a time.
fn is_time_of_wait(lock: &ZnodePath, words: impl Iterator<Item = String>) -> bool {
    let words: Vec<_> = words.collect();
    words.windows(2).any(|pair| {
        pair[0] == "--wait"
            && names::duration(&pair[1]).is_ok()
            && lock.as_str().strip_prefix('/') == Some(&pair[1])
    })
}

async fn ask(connection: &Connection, options: &RevokeOptions) -> Result<Vec<Asked>, Failure> {
    let client = &connection.client;
    path_use::check(client, &options.lock, PathUse::Lock).await?;
    // Read first: the request replaces the holder's description of itself.
    let before = LockQueue::inspect(client, &options.lock).await?;

    let request = Revocation::new(client, &options.lock).by(user::user_and_host());
    let request = request.reason(options.reason.clone().unwrap_or_default());
    let in_words = |went: Vec<(ZnodePath, RevokeOutcome)>| -> Vec<_> {
        went.into_iter().map(|(node, outcome)| (node, word(outcome))).collect()
    };
    let mut went: Vec<_> = match (options.force_after, options.wait) {
        (Some(grace), _) => in_words(request.force_after(grace).await?),
        (None, Some(limit)) => tokio::select! {
            went = request.wait(limit) => in_words(went?),
            failure = connection.keep_engine() => return Err(failure),
        },
        (None, None) => request.ask().await?.into_iter().map(|node| (node, "asked")).collect(),
    };
    if went.is_empty() && options.force_after.is_none() {
        let deaf = before.as_ref().filter(|queue| queue.is_node());
        went.extend(deaf.map(|queue| (queue.path.clone(), CANNOT_ASK)));
    }

    let who = |node: &ZnodePath| {
        let entry = before.iter().flat_map(|queue| &queue.entries).find(|e| e.node == *node);
        entry.map_or_else(|| view::printable(node.as_str()), view::who)
    };
    let asked = |(node, outcome): (ZnodePath, _)| Asked {
        who: who(&node),
        node: node.to_string(),
        outcome,
    };
    Ok(went.into_iter().map(asked).collect())
}

/// The outcome for a holder that does not support requests.
const CANNOT_ASK: &str = "cannot-ask";

/// The outcome for a holder that did not release the lock in time.
const STAYED: &str = "stayed";

fn word(outcome: RevokeOutcome) -> &'static str {
    match outcome {
        RevokeOutcome::GaveWay => "gave-way",
        RevokeOutcome::Forced => "forced",
        _ => STAYED,
    }
}

fn describe(lock: &str, holders: &[Asked]) -> String {
    if holders.is_empty() {
        return format!("no program holds {lock}\n");
    }
    let line = |asked: &Asked| match asked.outcome {
        "forced" => format!("{lock} was taken from {}\n", asked.who),
        "gave-way" => format!("{} released {lock}\n", asked.who),
        STAYED => format!("{} was asked to release {lock}, and still holds it\n", asked.who),
        CANNOT_ASK => format!(
            "{} holds {lock} with a znode of another program, which does not support requests; \
             use --force-after to take the lock\n",
            asked.who
        ),
        _ => format!("{} was asked to release {lock}\n", asked.who),
    };
    holders.iter().map(line).collect()
}
