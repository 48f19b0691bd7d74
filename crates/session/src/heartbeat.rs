//! Held nodes, and the committed writes that prove that they exist.
//!
//! A session that holds nodes commits a `multi` of version checks on them once per [renewal
//! interval](crate::Timing::renewal_interval). A committed heartbeat shows that the nodes exist and that the
//! session was alive; see [`LeaseMode::Quorum`](crate::LeaseMode::Quorum).
//!
//! *Reused names.* A check names a path, and by now another node may have that path. So where names are
//! reused, each check is followed by a read of the node on the same connection. The read must show the same
//! creation by the same session. If it does not, the held node is gone.
//!
//! *Nodes that their holders watch.* While a session is alive, no other session can have created its
//! ephemeral nodes, and a watch event reports a deletion at once. So a heartbeat checks only one of all these
//! nodes, and none of them if it checks another node.
//!
//! *Jeopardy.* When the lease has run out, a hold ends, unless it is to ride out an outage. Such a hold is in
//! jeopardy: it does not count as held until it is proven again, by a committed check and a read behind it,
//! whatever kind of name the node has.

use std::collections::{BTreeMap, VecDeque};

use lockkeeper_wire::{
    CheckRequest, ErrorCode, Op, OpResult, PathWatchRequest, Request, ZnodePath, Zxid,
};

use crate::time::Instant;

/// Identifies a node that the session holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldId(pub(crate) u64);

/// What a request can be bound to: a hold and its present holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    pub(crate) hold: HoldId,
    /// How often the node had been handed to another holder.
    pub(crate) handovers: u64,
}

impl Binding {
    /// Binds to a hold and its first holder.
    pub fn new(hold: HoldId) -> Self {
        Self { hold, handovers: 0 }
    }
}

/// The maximum size of one `multi`, in bytes of paths; far below the limit of every server.
const BYTES_PER_MULTI: usize = 64 * 1024;

/// The size of a check without its path, in bytes.
const BYTES_PER_CHECK: usize = 17;

/// Whether other nodes can have had, or can later have, the name of a held node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameUse {
    /// The name is used only once: it contains a sequence number or an identifier.
    Once,
    /// The name is reused. The transaction that created the held node distinguishes it from others.
    Reused(Zxid),
    /// The name is reused, and the holder watches the node for its deletion: a check of any node proves this
    /// one.
    Watched(Zxid),
}

/// The maximum number of heartbeats without a reply. When the limit is reached, no further one is sent: it
/// would only add load to servers that are already late.
const MAX_UNANSWERED: usize = 3;

/// What is known about the node of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HoldProof {
    /// The [generation](crate::LeaseState::generation) of the lease in which the node was proven. The lease's
    /// deadline applies to the hold while that generation is the current one.
    pub generation: u64,
    /// Whether the hold can be proven again after its deadline has passed.
    pub rides_out: bool,
}

/// A `multi` of version checks, and the holds that it proves.
#[derive(Clone, Debug)]
pub(crate) struct HeartbeatRequest {
    pub(crate) request: Request,
    pub(crate) checked: Vec<HoldId>,
    /// Reads of the nodes, sent right behind the `multi`: of those in jeopardy, and of those whose names are
    /// reused.
    pub(crate) reads: Vec<(HoldId, Request)>,
}

/// The holds that a heartbeat checked, and when it was sent.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    pub(crate) holds: Vec<HoldId>,
    pub(crate) sent: Instant,
    /// The newest transaction that the session had seen when the heartbeat was sent.
    pub(crate) after: Zxid,
}

/// A hold that has ended, because a server refused to check its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndedHold {
    pub(crate) id: HoldId,
    pub(crate) path: ZnodePath,
    pub(crate) code: ErrorCode,
}

/// Which holds a heartbeat must prove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeartbeatScope {
    /// All holds: the session's lease depends on the heartbeat.
    Lease,
    /// Only holds in jeopardy: the lease is renewed by other means.
    Jeopardy,
}

/// A held node.
#[derive(Clone, Debug)]
struct Held {
    path: ZnodePath,
    name: NameUse,
    /// The generation of the lease in which the node was proven.
    generation: u64,
    /// The transaction that created the node, if the hold may be proven again after a deadline.
    czxid: Option<Zxid>,
    /// When the newest committed check of its path on this connection was sent.
    checked: Option<Instant>,
    /// How often the node has been handed to another holder.
    handovers: u64,
}

impl Held {
    /// Whether the hold must be proven again. `generation`: the generation of the lease, if its deadline has
    /// not passed.
    fn is_in_jeopardy(&self, generation: Option<u64>) -> bool {
        self.czxid.is_some() && Some(self.generation) != generation
    }

    /// Whether the check of the path is followed by a read of the node.
    fn needs_read(&self, generation: Option<u64>) -> bool {
        matches!(self.name, NameUse::Reused(_)) || self.is_in_jeopardy(generation)
    }

    /// Whether only a check of this node proves the hold.
    fn needs_check(&self, generation: Option<u64>) -> bool {
        !matches!(self.name, NameUse::Watched(_)) || self.is_in_jeopardy(generation)
    }

    /// The creating transaction that a read must show.
    fn creation(&self) -> Option<Zxid> {
        match self.name {
            NameUse::Once => self.czxid,
            NameUse::Reused(czxid) | NameUse::Watched(czxid) => Some(czxid),
        }
    }
}

/// All holds of a session, and when they are to be proven next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heartbeat {
    holds: BTreeMap<HoldId, Held>,
    next_id: u64,
    due: Option<Instant>,
    /// The number of outstanding parts of each heartbeat, oldest first.
    unanswered: VecDeque<usize>,
}

impl Heartbeat {
    /// Starts to prove `path`, first at `due` or with an earlier heartbeat. `None`: the hold is only
    /// recorded. `generation`: the generation of the lease that is known to cover the node.
    pub(crate) fn hold(
        &mut self,
        path: ZnodePath,
        name: NameUse,
        generation: u64,
        due: Option<Instant>,
    ) -> HoldId {
        let id = HoldId(self.next_id);
        self.next_id += 1;
        let (czxid, checked, handovers) = (None, None, 0);
        self.holds.insert(id, Held { path, name, generation, czxid, checked, handovers });
        self.due = self.due.into_iter().chain(due).min();
        id
    }

    pub(crate) fn release(&mut self, id: HoldId) {
        self.holds.remove(&id);
        if self.holds.is_empty() {
            self.due = None;
        }
    }

    /// The state of a hold; `None` if it has ended or its node is missing.
    pub(crate) fn proof(&self, id: HoldId) -> Option<HoldProof> {
        let held = self.holds.get(&id)?;
        Some(HoldProof { generation: held.generation, rides_out: held.czxid.is_some() })
    }

    /// Records that the node of a hold has a new holder.
    pub(crate) fn hand_over(&mut self, id: HoldId) {
        if let Some(held) = self.holds.get_mut(&id) {
            held.handovers += 1;
        }
    }

    /// The binding to a hold and its present holder; `None` if the hold has ended.
    pub(crate) fn binding(&self, id: HoldId) -> Option<Binding> {
        let handovers = self.holds.get(&id)?.handovers;
        Some(Binding { hold: id, handovers })
    }

    /// Makes a hold ride out outages as the node that this transaction created, or (`None`) no longer do so.
    pub(crate) fn ride_out(&mut self, id: HoldId, czxid: Option<Zxid>) {
        if let Some(held) = self.holds.get_mut(&id) {
            held.czxid = czxid;
        }
    }

    /// Makes every hold end at the next deadline. Returns whether any hold was to ride it out.
    pub(crate) fn end_all_at_deadline(&mut self) -> bool {
        let ended = self.holds.values_mut().filter_map(|held| held.czxid.take());
        ended.count() > 0
    }

    /// When the next heartbeat is due, if the session holds nodes.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Makes the next heartbeat due at `due`, if it would be later and the session holds nodes.
    pub(crate) fn hasten(&mut self, due: Instant) {
        self.due = self.due.map(|current| current.min(due));
    }

    /// Makes a heartbeat due no later than `due`, if a hold must be proven again: the lease continues in this
    /// generation.
    pub(crate) fn prove_again(&mut self, due: Instant, generation: u64) {
        if self.holds.values().any(|held| held.is_in_jeopardy(Some(generation))) {
            self.due = self.due.into_iter().chain([due]).min();
        }
    }

    /// The parts of the heartbeat to send now; the next one is due at `next`. `generation`: the generation of
    /// the lease, if its deadline has not passed.
    pub(crate) fn beat(
        &mut self,
        next: Instant,
        need: HeartbeatScope,
        generation: Option<u64>,
    ) -> Vec<HeartbeatRequest> {
        let is_needed =
            |held: &Held| need == HeartbeatScope::Lease || held.is_in_jeopardy(generation);
        if !self.holds.values().any(is_needed) {
            self.due = None;
            return Vec::new();
        }
        self.due = Some(next);
        if self.unanswered.len() >= MAX_UNANSWERED {
            return Vec::new();
        }

        // Without a check, nothing would prove the session.
        let needs_check = |held: &Held| is_needed(held) && held.needs_check(generation);
        let stands_for_all = match self.holds.values().any(needs_check) {
            true => None,
            false => self.holds.iter().find(|(_, held)| is_needed(held)).map(|(id, _)| *id),
        };

        let mut beats = Vec::new();
        let (mut checked, mut checks, mut reads, mut bytes) =
            (Vec::new(), Vec::new(), Vec::new(), 0);
        let is_checked =
            |id: &HoldId, held: &Held| needs_check(held) || stands_for_all == Some(*id);
        for (id, held) in self.holds.iter().filter(|(id, held)| is_checked(id, held)) {
            let more = held.path.as_str().len() + BYTES_PER_CHECK;
            if bytes + more > BYTES_PER_MULTI && bytes > 0 {
                let request = Request::Multi(std::mem::take(&mut checks));
                let (checked, reads) = (std::mem::take(&mut checked), std::mem::take(&mut reads));
                beats.push(HeartbeatRequest { request, checked, reads });
                bytes = 0;
            }
            bytes += more;
            checked.push(*id);
            checks.push(check(&held.path));
            if held.needs_read(generation) {
                reads.push((*id, read(&held.path)));
            }
        }
        beats.push(HeartbeatRequest { request: Request::Multi(checks), checked, reads });
        self.unanswered.push_back(beats.len());
        beats
    }

    /// A part of a heartbeat was answered or failed.
    pub(crate) fn settled(&mut self) {
        let Some(parts) = self.unanswered.front_mut() else { return };
        *parts -= 1;
        if *parts == 0 {
            self.unanswered.pop_front();
        }
    }

    /// Processes the results of a heartbeat. Returns the holds that have ended: their nodes are gone, or this
    /// client lacks the permission to check them.
    pub(crate) fn answered(
        &mut self,
        checked: Vec<HoldId>,
        results: &[OpResult],
        now: Instant,
    ) -> Vec<EndedHold> {
        let over: Vec<_> = checked
            .into_iter()
            .zip(results)
            .filter_map(|(id, result)| match result {
                OpResult::Error(Some(code @ (ErrorCode::NoNode | ErrorCode::NoAuth))) => self
                    .holds
                    .remove(&id)
                    .map(|held| EndedHold { id, path: held.path, code: *code }),
                _ => None,
            })
            .collect();
        // One failing check fails the whole `multi`, so the other holds are still unproven.
        if !over.is_empty() && self.due.is_some() {
            self.due = Some(now);
        }
        over
    }

    /// A check of these nodes, sent at that time, was committed.
    pub(crate) fn checked(&mut self, ids: &[HoldId], sent: Instant) {
        for id in ids {
            if let Some(held) = self.holds.get_mut(id) {
                held.checked = Some(sent);
            }
        }
    }

    /// Processes a read of a node, sent behind a check at the time `sent`. `found`: the transaction that
    /// created the node, if the node exists and belongs to this session. `generation`: the generation of the
    /// lease, if its deadline has not passed.
    pub(crate) fn node_read(
        &mut self,
        id: HoldId,
        sent: Instant,
        found: Option<Zxid>,
        generation: Option<u64>,
    ) -> NodeReadOutcome {
        let Some(held) = self.holds.get(&id) else { return NodeReadOutcome::Unproven };
        let Some(creation) = held.creation() else { return NodeReadOutcome::Unproven };
        if found != Some(creation) {
            self.holds.remove(&id);
            return NodeReadOutcome::Gone;
        }

        match held.is_in_jeopardy(generation) && held.checked == Some(sent) {
            true => NodeReadOutcome::Proven,
            false => NodeReadOutcome::Unproven,
        }
    }

    /// Records that a node was proven in this generation of the lease.
    pub(crate) fn proven(&mut self, id: HoldId, generation: u64) {
        if let Some(held) = self.holds.get_mut(&id) {
            held.generation = generation;
        }
    }

    /// The connection is lost. Heartbeats restart at once on the next one.
    pub(crate) fn disconnected(&mut self, now: Instant) {
        self.unanswered.clear();
        for held in self.holds.values_mut() {
            held.checked = None;
        }
        if self.due.is_some() || self.holds.values().any(|held| held.czxid.is_some()) {
            self.due = Some(now);
        }
    }

    /// The session has expired, and all holds have ended.
    pub(crate) fn expired(&mut self) {
        self.unanswered.clear();
        self.holds.clear();
        self.due = None;
    }
}

/// What a read of a held node showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeReadOutcome {
    /// The hold was in jeopardy. The node is the same, and an earlier check of its path was committed on the
    /// same connection.
    Proven,
    /// The node does not exist, or another one has its path.
    Gone,
    /// The state of the hold does not change.
    Unproven,
}

fn read(path: &ZnodePath) -> Request {
    Request::Exists(PathWatchRequest { path: path.to_string(), watch: false })
}

fn check(path: &ZnodePath) -> Op {
    Op::Check(CheckRequest { path: path.to_string(), version: -1 })
}
