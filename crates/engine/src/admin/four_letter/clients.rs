//! Words about connections, sessions and watches: `stat`, `cons`, `crst`, `dump`, `wchs`, `wchc` and `wchp`. The tree
//! thread answers them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use lockkeeper_tree::SessionInfo;
use lockkeeper_wire::SessionId;

use crate::clock;
use crate::connection::Connection;
use crate::sockets::stream::Peer;
use crate::tree_loop::TreeLoop;

/// The clients of `stat`, without the summary of the server that follows them.
pub(super) fn stat(tree: &TreeLoop, asker: Peer) -> String {
    let mut text = super::server::version();
    text.push_str("Clients:\n");
    for connection in by_id(tree) {
        describe(&mut text, connection);
        text.push_str(")\n");
    }
    describe_asker(&mut text, asker);
    text.push('\n');
    text
}

pub(super) fn cons(tree: &TreeLoop, asker: Peer) -> String {
    let mut text = String::new();
    for connection in by_id(tree) {
        describe(&mut text, connection);
        if let Some(session) = tree.server.session_of(connection.id) {
            let session = tree.server.session(session);
            describe_session(&mut text, connection, session, tree.server.stats().last_zxid.0);
        }
        text.push_str(")\n");
    }
    describe_asker(&mut text, asker);
    text.push('\n');
    text
}

pub(super) fn crst(tree: &TreeLoop) -> String {
    tree.connections.values().for_each(|connection| connection.reset_traffic());
    "Connection stats reset.\n".to_owned()
}

pub(super) fn dump(tree: &TreeLoop) -> String {
    let mut text = "SessionTracker dump:\n".to_owned();
    let sessions = tree.server.sessions();
    let expiries = sessions.iter().map(|s| (s.deadline, hex(s.id)));
    sets(&mut text, "Session", expiries);
    text.push_str("ephemeral nodes dump:\n");

    let ephemerals = tree.server.ephemerals_by_session();
    // Writing to a `String` cannot fail, here and below.
    let _ = writeln!(text, "Sessions with Ephemerals ({}):", ephemerals.len());
    for (owner, paths) in ephemerals {
        let _ = writeln!(text, "{}:", hex(owner));
        paths.iter().for_each(|path| line(&mut text, path));
    }
    text.push_str("Connections dump:\n");

    let connected = sessions.iter().filter_map(|session| {
        let connection = tree.connections.get(&session.connection?)?;
        let peer = &connection.peer;
        Some((session.deadline, format!("ip: /{peer} sessionId: {}", hex(session.id))))
    });
    sets(&mut text, "Connections", connected);
    text
}

pub(super) fn wchs(tree: &TreeLoop) -> String {
    let summary = tree.server.watch_summary();
    format!(
        "{} connections watching {} paths\nTotal watches:{}\n",
        summary.connections, summary.paths, summary.watches
    )
}

/// Watches by session.
pub(super) fn wchc(tree: &TreeLoop) -> String {
    let mut by_session: BTreeMap<SessionId, Vec<String>> = BTreeMap::new();
    for (path, sessions) in tree.server.watches_by_path() {
        for session in sessions {
            by_session.entry(session).or_default().push(path.clone());
        }
    }
    let mut text = String::new();
    for (session, paths) in by_session {
        let _ = writeln!(text, "{}", hex(session));
        paths.iter().for_each(|path| line(&mut text, path));
    }
    text.push('\n');
    text
}

/// Watches by path.
pub(super) fn wchp(tree: &TreeLoop) -> String {
    let mut text = String::new();
    for (path, sessions) in tree.server.watches_by_path() {
        let _ = writeln!(text, "{path}");
        sessions.iter().for_each(|session| line(&mut text, &hex(*session)));
    }
    text.push('\n');
    text
}

fn line(text: &mut String, what: &str) {
    let _ = writeln!(text, "\t{what}");
}

fn hex(session: SessionId) -> String {
    format!("0x{:x}", session.0)
}

fn by_id(tree: &TreeLoop) -> Vec<&Arc<Connection>> {
    let mut all: Vec<_> = tree.connections.values().collect();
    all.sort_unstable_by_key(|connection| connection.id);
    all
}

/// Prints things in groups by the time at which they expire.
fn sets(text: &mut String, name: &str, things: impl Iterator<Item = (Duration, String)>) {
    let mut groups: BTreeMap<Duration, Vec<String>> = BTreeMap::new();
    let mut count = 0;
    for (deadline, thing) in things {
        groups.entry(deadline).or_default().push(thing);
        count += 1;
    }
    let now = clock::now();
    let _ = writeln!(text, "{name} Sets ({})/({count}):", groups.len());
    for (deadline, things) in groups {
        let left = deadline.saturating_sub(now.monotonic).as_millis();
        let at = now.unix_ms.saturating_add(i64::try_from(left).unwrap_or(i64::MAX));
        let _ = writeln!(text, "{} expire at {}:", things.len(), date(at));
        things.iter().for_each(|thing| line(text, thing));
    }
}

/// As ZooKeeper prints it: `Fri Nov 20 04:40:23 UTC 2026`.
fn date(unix_ms: i64) -> String {
    let time = Timestamp::from_millisecond(unix_ms).unwrap_or(Timestamp::MAX);
    time.strftime("%a %b %d %H:%M:%S UTC %Y").to_string()
}

/// The 1 in brackets stands for a connection that is read, as in ZooKeeper.
fn describe(text: &mut String, connection: &Connection) {
    let traffic = connection.traffic();
    let reads = u8::from(connection.wants().read);
    let _ = write!(
        text,
        " /{}[{reads}](queued=0,recved={},sent={}",
        connection.peer, traffic.received, traffic.sent
    );
}

/// The connection of the word itself, which the tree does not know. Tools expect it in the list.
fn describe_asker(text: &mut String, peer: Peer) {
    let _ = writeln!(text, " /{peer}[0](queued=0,recved=1,sent=0)");
}

fn describe_session(
    text: &mut String,
    connection: &Connection,
    session: Option<SessionInfo>,
    zxid: i64,
) {
    let Some(session) = session else { return };
    let traffic = connection.traffic();

    let (op, xid) = match traffic.last {
        Some((op, xid)) => (op.four_letters(), Some(xid)),
        None => ("SESS", None),
    };
    let _ = write!(
        text,
        ",sid={},lop={op},est={},to={}",
        hex(session.id),
        connection.opened_ms,
        session.timeout.as_millis()
    );
    if let Some(xid) = xid.filter(|xid| *xid >= 0) {
        let _ = write!(text, ",lcxid=0x{xid:x}");
    }

    let _ = write!(
        text,
        ",lzxid=0x{zxid:x},lresp={},llat={},minlat={},avglat={},maxlat={}",
        traffic.last_reply_ms,
        traffic.last_latency.as_millis(),
        traffic.latency.min.as_millis(),
        traffic.latency.mean().as_millis(),
        traffic.latency.max.as_millis()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_as_zookeeper_prints_them() {
        for (seconds, expected) in [
            (0, "Thu Jan 01 00:00:00 UTC 1970"),
            (951_782_400, "Tue Feb 29 00:00:00 UTC 2000"),
            (1_795_149_623, "Fri Nov 20 04:40:23 UTC 2026"),
            (i64::MAX / 1_000, "Thu Dec 30 22:00:00 UTC 9999"),
        ] {
            assert_eq!(date(seconds * 1_000), expected);
        }
    }
}
