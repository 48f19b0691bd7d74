//! A wait for a lock that is held by a run around this command: it would never end.

use std::env;

use lockkeeper::{Guard, Kind, Profile, ZnodePath};

use crate::session::connect::Connection;
use crate::shared::exit::{Exit, Failure};

/// The variable that names the locks of all runs around a command, one on each line: the servers, the lock
/// and the holder's node, with tabs between them. None of these can have control characters.
pub(crate) const OUTER_LOCKS: &str = "LOCKKEEPER_OUTER_LOCKS";

/// Its value for a command that runs under these locks as well.
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

/// Refuses to wait for a lock that a run around this command holds, unless it goes together with a holder
/// of that kind.
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

        // The variable outlives the lock in what the command has left behind.
        let is_held = matches!(connection.client.exists(&node).await, Ok(Some(_)));
        if is_held && !kind_of(&node).is_some_and(&goes_together_with) {
            let message = format!(
                "{lock} is held by the run that this one is part of, and would wait for it"
            );
            let advice = format!("unset {OUTER_LOCKS} to wait all the same");
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
