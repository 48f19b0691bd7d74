//! How a server starts as the successor of another one, from a restored copy or without data.
//!
//! Three things outlive the predecessor. Its transaction numbers are in use as fencing tokens, so those of
//! the successor must be larger. A copy contains its sessions, although others may have been granted their
//! locks since, so they are ended. And its clients may rely on leases, so new sessions are refused until
//! those have run out: without a session, a client cannot be granted anything.

use std::time::Duration;

use lockkeeper_wire::{SessionId, Zxid};

use crate::config::Now;
use crate::server::Server;

impl Server {
    /// All further transactions get numbers above this one.
    pub fn begin_after(&mut self, zxid: Zxid) {
        self.last_zxid = self.last_zxid.max(zxid);
    }

    /// Ends all sessions, each in its own transaction that deletes its ephemeral nodes. Returns how many
    /// there were.
    pub fn end_sessions(&mut self, now: Now) -> usize {
        let ids: Vec<SessionId> = self.sessions.iter().map(|(id, _)| id).collect();
        for id in &ids {
            self.expire(now, *id);
        }
        self.arm_reaper(now);
        ids.len()
    }

    /// Refuses new sessions before this time, on the clock of [`Now::monotonic`].
    pub fn keep_quiet(&mut self, until: Duration) {
        self.quiet_until = until;
    }

    /// The longest session timeout that this server has granted or restored.
    pub fn longest_timeout(&self) -> Duration {
        self.longest_timeout
    }

    /// The longest timeout of the live sessions; zero without sessions.
    pub fn longest_live_timeout(&self) -> Duration {
        self.sessions.iter().map(|(_, session)| session.timeout).max().unwrap_or_default()
    }
}
