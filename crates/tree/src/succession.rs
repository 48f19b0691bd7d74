//! What a server does that follows another one: on a restored copy, or on nothing at all.
//!
//! Three things of its predecessor outlive it. The numbers of its transactions are fencing tokens
//! somewhere, so those of this one must be larger. Its sessions are in a copy, although others may
//! have been granted their locks since, so they end. And its clients may rely on leases, so no
//! session begins before those are over: without a session nobody can be granted anything.

use std::time::Duration;

use lockkeeper_wire::{SessionId, Zxid};

use crate::config::Now;
use crate::server::Server;

impl Server {
    /// Gives every transaction from now on a number above this one.
    pub fn begin_after(&mut self, zxid: Zxid) {
        self.last_zxid = self.last_zxid.max(zxid);
    }

    /// Ends all sessions, each in a transaction of its own that deletes its ephemeral nodes; how
    /// many there were.
    pub fn end_sessions(&mut self, now: Now) -> usize {
        let ids: Vec<SessionId> = self.sessions.iter().map(|(id, _)| id).collect();
        for id in &ids {
            self.expire(now, *id);
        }
        self.arm_reaper(now);
        ids.len()
    }

    /// Lets no session begin before this time, on the clock of [`Now::monotonic`].
    pub fn keep_quiet(&mut self, until: Duration) {
        self.quiet_until = until;
    }

    /// The longest session timeout that this server has granted, or found when it started.
    pub fn longest_timeout(&self) -> Duration {
        self.longest_timeout
    }

    /// The longest timeout of the sessions that are alive; zero if there are none.
    pub fn longest_live_timeout(&self) -> Duration {
        self.sessions.iter().map(|(_, session)| session.timeout).max().unwrap_or_default()
    }
}
