//! Summaries of sessions and watches for operators. Clients do not use them, and they need not be fast.

use lockkeeper_wire::SessionId;

use crate::output::ConnectionId;
use crate::server::Server;

/// The watches in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchSummary {
    /// How many connections have watches.
    pub connections: usize,
    /// How many different paths are watched.
    pub paths: usize,
    /// How many watches there are: each kind on each path counts once per connection.
    pub watches: usize,
}

impl Server {
    /// The watches in numbers.
    pub fn watch_summary(&self) -> WatchSummary {
        let (connections, paths) = self.watches.extent();
        WatchSummary { connections, paths, watches: self.watches.len() }
    }

    /// Each watched path with the sessions that watch it, in order.
    pub fn watches_by_path(&self) -> Vec<(String, Vec<SessionId>)> {
        let sessions = |watchers: Vec<ConnectionId>| {
            watchers.into_iter().filter_map(|connection| self.session_of(connection)).collect()
        };
        let paths = self.watches.by_path();
        let mut all: Vec<(String, Vec<SessionId>)> =
            paths.map(|(path, watchers)| (path.to_owned(), sessions(watchers))).collect();
        all.sort_unstable();
        all
    }

    /// Each session that owns ephemeral nodes with their paths, in order.
    pub fn ephemerals_by_session(&self) -> Vec<(SessionId, Vec<String>)> {
        let mut owners: Vec<SessionId> = self.tree.owners().collect();
        owners.sort_unstable();
        let paths =
            |owner| self.tree.ephemerals(owner).into_iter().map(|path| path.to_string()).collect();
        owners.into_iter().map(|owner| (owner, paths(owner))).collect()
    }

    /// The session of a connection, once it has had its handshake.
    pub fn session_of(&self, connection: ConnectionId) -> Option<SessionId> {
        self.connections.get(&connection)?.session
    }
}
