//! Held nodes, and the committed writes that prove them.
//!
//! A session that holds nodes commits a `multi` of version checks on them, once in each
//! [renewal interval](crate::Timing::renewal_interval). That it was committed shows that the nodes
//! exist and that the session was alive; see [`LeaseMode::Quorum`](crate::LeaseMode::Quorum).

use std::collections::{BTreeMap, VecDeque};

use lockkeeper_wire::{CheckRequest, ErrorCode, Op, OpResult, Request, ZnodePath};

use crate::time::Instant;

/// A node that the session holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldId(pub(crate) u64);

/// How much goes into one `multi`, in bytes of paths: far from any server's limit.
const BYTES_PER_MULTI: usize = 64 * 1024;

/// What a check takes besides its path, in bytes.
const BYTES_PER_CHECK: usize = 17;

/// How many heartbeats may be without an answer when another one is due. More of them would only
/// be more work for servers that are late already.
const MOST_UNANSWERED: usize = 3;

/// A `multi` of checks, and the holds that it proves.
#[derive(Clone, Debug)]
pub(crate) struct Beat {
    pub(crate) request: Request,
    pub(crate) checked: Vec<HoldId>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Heartbeat {
    holds: BTreeMap<HoldId, ZnodePath>,
    next_id: u64,
    due: Option<Instant>,
    /// The heartbeats without an answer, the oldest first: how many parts of each are.
    unanswered: VecDeque<usize>,
}

impl Heartbeat {
    /// Begins to prove `path`, the first time at `due` unless a heartbeat is due before. `None`:
    /// it is only remembered.
    pub(crate) fn hold(&mut self, path: ZnodePath, due: Option<Instant>) -> HoldId {
        let id = HoldId(self.next_id);
        self.next_id += 1;
        self.holds.insert(id, path);
        self.due = self.due.into_iter().chain(due).min();
        id
    }

    pub(crate) fn release(&mut self, id: HoldId) {
        self.holds.remove(&id);
        if self.holds.is_empty() {
            self.due = None;
        }
    }

    /// When the next heartbeat is due, if something is held.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Has the next heartbeat sent at `due`, if it would be later and something is held.
    pub(crate) fn hasten(&mut self, due: Instant) {
        self.due = self.due.map(|current| current.min(due));
    }

    /// The parts of the heartbeat to send now; the next one is due at `next`.
    pub(crate) fn beat(&mut self, next: Instant) -> Vec<Beat> {
        if self.holds.is_empty() {
            self.due = None;
            return Vec::new();
        }
        self.due = Some(next);
        if self.unanswered.len() >= MOST_UNANSWERED {
            return Vec::new();
        }

        let mut beats = Vec::new();
        let (mut checked, mut checks, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (id, path) in &self.holds {
            let more = path.as_str().len() + BYTES_PER_CHECK;
            if bytes + more > BYTES_PER_MULTI && bytes > 0 {
                let request = Request::Multi(std::mem::take(&mut checks));
                beats.push(Beat { request, checked: std::mem::take(&mut checked) });
                bytes = 0;
            }
            bytes += more;
            checked.push(*id);
            checks.push(check(path));
        }
        beats.push(Beat { request: Request::Multi(checks), checked });
        self.unanswered.push_back(beats.len());
        beats
    }

    /// Something came of a part of a heartbeat, whatever it was.
    pub(crate) fn settled(&mut self) {
        let Some(parts) = self.unanswered.front_mut() else { return };
        *parts -= 1;
        if *parts == 0 {
            self.unanswered.pop_front();
        }
    }

    /// Takes the results of a heartbeat; returns the holds whose nodes are gone.
    pub(crate) fn answered(
        &mut self,
        checked: Vec<HoldId>,
        results: &[OpResult],
        now: Instant,
    ) -> Vec<HoldId> {
        let gone: Vec<_> = checked
            .into_iter()
            .zip(results)
            .filter(|(_, result)| **result == OpResult::Error(Some(ErrorCode::NoNode)))
            .filter_map(|(id, _)| self.holds.remove(&id).map(|_| id))
            .collect();
        // One missing node fails the whole `multi`, so the others are still unproven.
        if !gone.is_empty() && self.due.is_some() {
            self.due = Some(now);
        }
        gone
    }

    /// The connection is lost; heartbeats start again at once on the next one.
    pub(crate) fn disconnected(&mut self, now: Instant) {
        self.unanswered.clear();
        if self.due.is_some() {
            self.due = Some(now);
        }
    }

    /// The session is over, and so are its holds.
    pub(crate) fn expired(&mut self) {
        self.unanswered.clear();
        self.holds.clear();
        self.due = None;
    }
}

fn check(path: &ZnodePath) -> Op {
    Op::Check(CheckRequest { path: path.to_string(), version: -1 })
}
