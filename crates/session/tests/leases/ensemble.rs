//! Three servers, as far as the life of one session depends on them.
//!
//! A follower answers pings by itself, and reports to its leader, in the reply to the leader's own ping twice
//! a tick, that it has heard of the session. A handshake goes to the leader at once. A write is committed if
//! the leader has a follower, but does not touch the session. A new leader gives every session a whole
//! timeout. A leader that has noticed that it is alone stops leading, and must be elected again.

use std::time::Duration;

pub(crate) const SERVERS: usize = 3;

#[derive(Debug, Default)]
struct Server {
    /// The epoch in which it serves; `None` while it does not serve clients.
    epoch: Option<usize>,
    /// Whether it has heard of the session since its last report to the leader.
    heard: bool,
    is_isolated: bool,
    is_paused: bool,
}

#[derive(Debug)]
struct Epoch {
    leader: usize,
    /// When the leader last touched the session.
    touched: Duration,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Answered,
    /// There is no reply, because a leader with a quorum is unreachable.
    Hangs,
    /// The session has expired.
    Expired,
    /// The server does not serve clients.
    Refused,
}

#[derive(Debug)]
pub(crate) struct Ensemble {
    timeout: Duration,
    servers: [Server; SERVERS],
    epochs: Vec<Epoch>,
    expired: Option<Duration>,
}

impl Ensemble {
    pub(crate) fn new(timeout: Duration) -> Self {
        let mut servers: [Server; SERVERS] = Default::default();
        servers.iter_mut().for_each(|server| server.epoch = Some(0));
        let epochs = vec![Epoch { leader: 0, touched: Duration::ZERO }];
        Self { timeout, servers, epochs, expired: None }
    }

    pub(crate) fn leader(&self) -> usize {
        self.epochs.last().expect("there is always one").leader
    }

    pub(crate) fn is_paused(&self, server: usize) -> bool {
        self.servers[server].is_paused
    }

    /// When a leader with a quorum expired the session.
    pub(crate) fn expired(&self) -> Option<Duration> {
        self.expired
    }

    /// When the session will expire, unless a server hears of it.
    pub(crate) fn expiry(&self) -> Duration {
        self.epochs.last().expect("there is always one").touched + self.timeout
    }

    /// Expires the session if it has been silent for too long.
    pub(crate) fn expire(&mut self, now: Duration) {
        let current = self.epochs.len() - 1;
        if self.expired.is_none() && self.has_quorum(current) && self.expiry() <= now {
            self.expired = Some(now);
        }
    }

    pub(crate) fn handshake(&mut self, server: usize, now: Duration) -> Outcome {
        self.through_leader(server, now, |epoch| epoch.touched = now)
    }

    pub(crate) fn write(&mut self, server: usize, now: Duration) -> Outcome {
        let Some(epoch) = self.servers[server].epoch else { return Outcome::Refused };
        self.hear(server, now);
        match self.has_quorum(epoch) {
            true => self.through_leader(server, now, |_| {}),
            false => Outcome::Hangs,
        }
    }

    /// A ping, a read or a `sync`: a leader answers these without its followers.
    pub(crate) fn read(&mut self, server: usize, now: Duration) -> Outcome {
        match self.servers[server].epoch {
            None => Outcome::Refused,
            Some(_) => {
                self.hear(server, now);
                Outcome::Answered
            }
        }
    }

    /// A follower answers its leader's ping.
    pub(crate) fn relay(&mut self, server: usize, now: Duration) {
        let Some(epoch) = self.servers[server].epoch else { return };
        let is_way = self.leads(epoch) && self.is_way(server, self.epochs[epoch].leader);
        if is_way && std::mem::take(&mut self.servers[server].heard) {
            self.epochs[epoch].touched = now;
        }
    }

    pub(crate) fn set_paused(&mut self, server: usize, is_paused: bool, now: Duration) {
        self.servers[server].is_paused = is_paused;
        // A leader's pings precede everything that it commits or that a follower forwards.
        (0..SERVERS).for_each(|server| self.relay(server, now));
    }

    pub(crate) fn isolate(&mut self, server: usize) {
        self.servers[server].is_isolated = true;
    }

    /// It is connected to the others again, and follows the present leader. Returns `true` if one had to be
    /// elected.
    pub(crate) fn heal(&mut self, server: usize, now: Duration) -> bool {
        let current = self.epochs.len() - 1;
        let follows = !self.servers[server].is_paused && self.leads(current);
        let epoch = follows.then_some(current);
        self.servers[server] = Server { epoch, ..Server::default() };
        self.elect(now)
    }

    /// It has noticed that it is alone, or that it is no longer the leader.
    pub(crate) fn leave(&mut self, server: usize) {
        let current = self.epochs.len() - 1;
        let is_old = self.servers[server].epoch.is_some_and(|epoch| epoch < current);
        if self.servers[server].is_isolated || is_old {
            self.servers[server].epoch = None;
        }
    }

    /// Servers without a leader elect another one. Returns `true` if they did.
    pub(crate) fn elect(&mut self, now: Duration) -> bool {
        let is_well = |server: &usize| {
            let Server { is_isolated, is_paused, .. } = self.servers[*server];
            !is_isolated && !is_paused
        };
        let well: Vec<usize> = (0..SERVERS).filter(is_well).collect();
        let has_leader = well.contains(&self.leader()) && self.leads(self.epochs.len() - 1);
        if well.len() * 2 < SERVERS || has_leader {
            return false;
        }
        self.epochs.push(Epoch { leader: well[0], touched: now });
        let current = self.epochs.len() - 1;
        for server in well {
            self.servers[server] = Server { epoch: Some(current), ..Server::default() };
        }
        true
    }

    fn hear(&mut self, server: usize, now: Duration) {
        self.servers[server].heard = true;
        if let Some(epoch) = self.servers[server].epoch
            && self.epochs[epoch].leader == server
        {
            self.epochs[epoch].touched = now;
        }
    }

    fn through_leader(
        &mut self,
        server: usize,
        now: Duration,
        then: impl FnOnce(&mut Epoch),
    ) -> Outcome {
        let Some(epoch) = self.servers[server].epoch else { return Outcome::Refused };
        let leader = self.epochs[epoch].leader;
        if server != leader && !(self.leads(epoch) && self.is_way(server, leader)) {
            return Outcome::Hangs;
        }
        if self.expired.is_some_and(|at| at <= now) && epoch == self.epochs.len() - 1 {
            return Outcome::Expired;
        }
        then(&mut self.epochs[epoch]);
        Outcome::Answered
    }

    fn is_way(&self, server: usize, other: usize) -> bool {
        [server, other].iter().all(|server| {
            let Server { is_isolated, is_paused, .. } = self.servers[*server];
            !is_isolated && !is_paused
        })
    }

    /// Whether its leader still has it as a follower.
    fn leads(&self, epoch: usize) -> bool {
        self.servers[self.epochs[epoch].leader].epoch == Some(epoch)
    }

    fn has_quorum(&self, epoch: usize) -> bool {
        if !self.leads(epoch) {
            return false;
        }
        let leader = self.epochs[epoch].leader;
        let follows = |server: &usize| {
            *server != leader
                && self.servers[*server].epoch == Some(epoch)
                && self.is_way(leader, *server)
        };
        (0..SERVERS).any(|server| follows(&server))
    }
}
