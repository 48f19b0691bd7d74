//! Summaries of sessions and watches for operators. Clients do not use them, so they need not be fast.

use lockkeeper_wire::SessionId;

use crate::output::ConnectionId;
use crate::server::Server;

/// The number of watches, and of their paths and connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchSummary {
    /// The number of connections with watches.
    pub connections: usize,
    /// The number of distinct watched paths.
    pub paths: usize,
    /// The number of watches: each kind on each path counts once per connection.
    pub watches: usize,
}

impl Server {
    /// The number of watches, and of their paths and connections.
    pub fn watch_summary(&self) -> WatchSummary {
        let (connections, paths) = self.watches.extent();
        WatchSummary { connections, paths, watches: self.watches.len() }
    }

    /// Each watched path with the sessions that watch it, sorted.
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

    /// Each session with ephemeral nodes and their paths, sorted.
    pub fn ephemerals_by_session(&self) -> Vec<(SessionId, Vec<String>)> {
        let mut owners: Vec<SessionId> = self.tree.owners().collect();
        owners.sort_unstable();
        let paths =
            |owner| self.tree.ephemerals(owner).into_iter().map(|path| path.to_string()).collect();
        owners.into_iter().map(|owner| (owner, paths(owner))).collect()
    }

    /// The session of a connection after its handshake.
    pub fn session_of(&self, connection: ConnectionId) -> Option<SessionId> {
        self.connections.get(&connection)?.session
    }
}
