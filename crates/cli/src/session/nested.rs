//! Detects a wait for a lock that an outer run holds, which would be a deadlock.

use std::env;

use lockkeeper::{Guard, Kind, Profile, ZnodePath};

use crate::session::connect::Connection;
use crate::shared::exit::{Exit, Failure};

/// The variable that names the locks of all outer runs, one on each line: the servers, the lock and the holder's
/// node, separated by tabs. None of these can contain control characters.
pub(crate) const OUTER_LOCKS: &str = "LOCKKEEPER_OUTER_LOCKS";

/// The value of the variable for a command that also runs under these locks.
pub(crate) fn outer_locks(connection: &Connection, guards: &[Guard]) -> String {
    let mut locks = env::var(OUTER_LOCKS).unwrap_or_default();
    for guard in guards {
        if !locks.is_empty() {
            locks.push('\n');
        }
        locks += &[&connection.servers, guard.path().as_str(), guard.node().as_str()].join("\t");
    }
    locks
}

/// Fails if an outer run holds the lock, unless both can hold the lock at the same time.
pub(crate) async fn check(
    connection: &Connection,
    lock: &ZnodePath,
    goes_together_with: impl Fn(Kind) -> bool,
) -> Result<(), Failure> {
    let outer = env::var(OUTER_LOCKS).unwrap_or_default();
    for line in outer.lines() {
        let [servers, path, node] = line.split('\t').collect::<Vec<_>>()[..] else { continue };
        let is_same = servers == connection.servers && path == lock.as_str();
        let Some(node) = ZnodePath::new(node).ok().filter(|_| is_same) else { continue };

        // Processes that outlive their run keep the variable, so check that the node still exists.
        let is_held = matches!(connection.client.exists(&node).await, Ok(Some(_)));
        if is_held && !kind_of(&node).is_some_and(&goes_together_with) {
            let message = format!("an outer run already holds {lock}: waiting would deadlock");
            let advice = format!("to wait anyway, unset {OUTER_LOCKS}");
            return Err(Failure::new(Exit::Usage, message).advise(&advice));
        }
    }
    Ok(())
}

fn kind_of(node: &ZnodePath) -> Option<Kind> {
    let kinds = [Kind::Read, Kind::Write, Kind::Exclusive, Kind::Permits(1), Kind::Lease];
    let parse = |profile: Profile| profile.parse(node.name(), &kinds);
    [Profile::Curator, Profile::Kazoo].into_iter().find_map(parse).map(|(kind, _)| kind)
}
