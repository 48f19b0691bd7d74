//! Held nodes, and the committed writes that prove them.
//!
//! A session that holds nodes commits a `multi` of version checks on them, once in each
//! [renewal interval](crate::Timing::renewal_interval). That it was committed shows that the nodes
//! exist and that the session was alive; see [`LeaseMode::Quorum`](crate::LeaseMode::Quorum).
//!
//! *Names that are used again.* A check names a path, and another node may have the same path by now.
//! So where that can be, a look at the node goes behind each check, on the same connection: it must be
//! the same creation, of the same session. Else the held node is gone.
//!
//! *Nodes that their holders watch.* While a session lives, nobody else can have made its ephemeral nodes, and an
//! event tells of a deletion at once. So of all these a heartbeat checks one, and none if it checks another node.
//!
//! *Jeopardy.* When the lease has run out, a hold is over, unless it was told to ride out an outage.
//! Then it is in jeopardy: nothing is believed of it until it is proven again. The proof is a committed
//! check and such a look behind it, whatever the name is.

use std::collections::{BTreeMap, VecDeque};

use lockkeeper_wire::{
    CheckRequest, ErrorCode, Op, OpResult, PathWatchRequest, Request, ZnodePath, Zxid,
};

use crate::time::Instant;

/// A node that the session holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldId(pub(crate) u64);

/// What a request can be bound to: a hold, for as long as its node serves the same holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    pub(crate) hold: HoldId,
    /// How often the node had been handed on.
    pub(crate) handed_on: u64,
}

impl Binding {
    /// What binds to a hold and its first holder.
    pub fn new(hold: HoldId) -> Self {
        Self { hold, handed_on: 0 }
    }
}

/// How much goes into one `multi`, in bytes of paths: far from any server's limit.
const BYTES_PER_MULTI: usize = 64 * 1024;

/// What a check takes besides its path, in bytes.
const BYTES_PER_CHECK: usize = 17;

/// Whether other nodes can have the name of a held node, before it and after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameUse {
    /// The name is never used again: it has a number from the server, or an identifier.
    Once,
    /// It is used again and again. The transaction that created the held node tells it from others.
    Again(Zxid),
    /// The same, and its holder learns of a deletion by a watch of its own: a check of any node proves it.
    Watched(Zxid),
}

/// How many heartbeats may be without an answer when another one is due. More of them would only
/// be more work for servers that are late already.
const MOST_UNANSWERED: usize = 3;

/// What is known of the node of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HoldProof {
    /// The [generation](crate::LeaseState::generation) of the lease in which the node was proven. The
    /// hold goes by the lease's deadline while that is the present one.
    pub generation: u64,
    /// Whether the hold may be proven again after a deadline has passed.
    pub rides_out: bool,
}

/// A `multi` of checks, and the holds that it proves.
#[derive(Clone, Debug)]
pub(crate) struct HeartbeatRequest {
    pub(crate) request: Request,
    pub(crate) checked: Vec<HoldId>,
    /// Looks at the nodes, which go right behind it: of those in jeopardy, and of those whose names
    /// are used again.
    pub(crate) looks: Vec<(HoldId, Request)>,
}

/// What a heartbeat checked, and when it was sent.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    pub(crate) holds: Vec<HoldId>,
    pub(crate) sent: Instant,
    /// The newest transaction that the session had seen by then.
    pub(crate) after: Zxid,
}

/// A hold that is over, as a server has refused to check its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Over {
    pub(crate) id: HoldId,
    pub(crate) path: ZnodePath,
    pub(crate) code: ErrorCode,
}

/// Whom a heartbeat is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// All that is held: the session's lease depends on it.
    Lease,
    /// Those in jeopardy: the lease is renewed by other means.
    Jeopardy,
}

/// A held node.
#[derive(Clone, Debug)]
struct Held {
    path: ZnodePath,
    name: NameUse,
    /// The generation of the lease in which it was proven.
    generation: u64,
    /// The transaction that created it, if it may be proven again after a deadline.
    czxid: Option<Zxid>,
    /// The newest committed check of its path on this connection: when it was sent.
    checked: Option<Instant>,
    /// How often the node has been handed on to another holder.
    handed_on: u64,
}

impl Held {
    /// Whether it is to be proven again. `generation`: that of the lease, if its deadline has not
    /// passed.
    fn is_in_jeopardy(&self, generation: Option<u64>) -> bool {
        self.czxid.is_some() && Some(self.generation) != generation
    }

    /// Whether a look at the node goes behind the check of its path.
    fn needs_look(&self, generation: Option<u64>) -> bool {
        matches!(self.name, NameUse::Again(_)) || self.is_in_jeopardy(generation)
    }

    /// Whether it is proven by a check of its own only.
    fn needs_check(&self, generation: Option<u64>) -> bool {
        !matches!(self.name, NameUse::Watched(_)) || self.is_in_jeopardy(generation)
    }

    /// The transaction that a look must show as the node's creation.
    fn creation(&self) -> Option<Zxid> {
        match self.name {
            NameUse::Once => self.czxid,
            NameUse::Again(czxid) | NameUse::Watched(czxid) => Some(czxid),
        }
    }
}

/// All holds of a session, and when they are proven next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heartbeat {
    holds: BTreeMap<HoldId, Held>,
    next_id: u64,
    due: Option<Instant>,
    /// The heartbeats without an answer, the oldest first: how many parts of each are.
    unanswered: VecDeque<usize>,
}

impl Heartbeat {
    /// Begins to prove `path`, the first time at `due` unless a heartbeat is due before. `None`:
    /// it is only remembered. `generation`: that of the lease which is known to cover the node.
    pub(crate) fn hold(
        &mut self,
        path: ZnodePath,
        name: NameUse,
        generation: u64,
        due: Option<Instant>,
    ) -> HoldId {
        let id = HoldId(self.next_id);
        self.next_id += 1;
        let (czxid, checked, handed_on) = (None, None, 0);
        self.holds.insert(id, Held { path, name, generation, czxid, checked, handed_on });
        self.due = self.due.into_iter().chain(due).min();
        id
    }

    pub(crate) fn release(&mut self, id: HoldId) {
        self.holds.remove(&id);
        if self.holds.is_empty() {
            self.due = None;
        }
    }

    /// How a hold stands; `None` if it is over or its node was found missing.
    pub(crate) fn proof(&self, id: HoldId) -> Option<HoldProof> {
        let held = self.holds.get(&id)?;
        Some(HoldProof { generation: held.generation, rides_out: held.czxid.is_some() })
    }

    /// Counts one more holder of a hold's node.
    pub(crate) fn hand_on(&mut self, id: HoldId) {
        if let Some(held) = self.holds.get_mut(&id) {
            held.handed_on += 1;
        }
    }

    /// What binds to a hold and its present holder; `None` if the hold is over.
    pub(crate) fn binding(&self, id: HoldId) -> Option<Binding> {
        let handed_on = self.holds.get(&id)?.handed_on;
        Some(Binding { hold: id, handed_on })
    }

    /// Makes a hold ride out outages, as the node that this transaction created, or (`None`) no more.
    pub(crate) fn ride_out(&mut self, id: HoldId, czxid: Option<Zxid>) {
        if let Some(held) = self.holds.get_mut(&id) {
            held.czxid = czxid;
        }
    }

    /// Ends every hold at the next deadline. Returns whether any was to ride it out.
    pub(crate) fn end_all_at_deadline(&mut self) -> bool {
        let ended = self.holds.values_mut().filter_map(|held| held.czxid.take());
        ended.count() > 0
    }

    /// When the next heartbeat is due, if something is held.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Makes the next heartbeat due at `due`, if it would be later and something is held.
    pub(crate) fn hasten(&mut self, due: Instant) {
        self.due = self.due.map(|current| current.min(due));
    }

    /// Makes a heartbeat due at `due` or before, if a hold is to be proven again: the lease goes on in
    /// this generation.
    pub(crate) fn prove_again(&mut self, due: Instant, generation: u64) {
        if self.holds.values().any(|held| held.is_in_jeopardy(Some(generation))) {
            self.due = self.due.into_iter().chain([due]).min();
        }
    }

    /// The parts of the heartbeat to send now; the next one is due at `next`. `generation`: that of
    /// the lease, if its deadline has not passed.
    pub(crate) fn beat(
        &mut self,
        next: Instant,
        need: Need,
        generation: Option<u64>,
    ) -> Vec<HeartbeatRequest> {
        let is_needed = |held: &Held| need == Need::Lease || held.is_in_jeopardy(generation);
        if !self.holds.values().any(is_needed) {
            self.due = None;
            return Vec::new();
        }
        self.due = Some(next);
        if self.unanswered.len() >= MOST_UNANSWERED {
            return Vec::new();
        }

        // Without a check there would be no proof of the session.
        let needs_check = |held: &Held| is_needed(held) && held.needs_check(generation);
        let stands_for_all = match self.holds.values().any(needs_check) {
            true => None,
            false => self.holds.iter().find(|(_, held)| is_needed(held)).map(|(id, _)| *id),
        };

        let mut beats = Vec::new();
        let (mut checked, mut checks, mut looks, mut bytes) =
            (Vec::new(), Vec::new(), Vec::new(), 0);
        let is_checked =
            |id: &HoldId, held: &Held| needs_check(held) || stands_for_all == Some(*id);
        for (id, held) in self.holds.iter().filter(|(id, held)| is_checked(id, held)) {
            let more = held.path.as_str().len() + BYTES_PER_CHECK;
            if bytes + more > BYTES_PER_MULTI && bytes > 0 {
                let request = Request::Multi(std::mem::take(&mut checks));
                let (checked, looks) = (std::mem::take(&mut checked), std::mem::take(&mut looks));
                beats.push(HeartbeatRequest { request, checked, looks });
                bytes = 0;
            }
            bytes += more;
            checked.push(*id);
            checks.push(check(&held.path));
            if held.needs_look(generation) {
                looks.push((*id, look(&held.path)));
            }
        }
        beats.push(HeartbeatRequest { request: Request::Multi(checks), checked, looks });
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

    /// Takes the results of a heartbeat; returns the holds that are over: their nodes are gone, or this
    /// client may not check them, and what is never proven is not held.
    pub(crate) fn answered(
        &mut self,
        checked: Vec<HoldId>,
        results: &[OpResult],
        now: Instant,
    ) -> Vec<Over> {
        let over: Vec<_> = checked
            .into_iter()
            .zip(results)
            .filter_map(|(id, result)| match result {
                OpResult::Error(Some(code @ (ErrorCode::NoNode | ErrorCode::NoAuth))) => {
                    self.holds.remove(&id).map(|held| Over { id, path: held.path, code: *code })
                }
                _ => None,
            })
            .collect();
        // One check that fails fails the whole `multi`, so the others are still unproven.
        if !over.is_empty() && self.due.is_some() {
            self.due = Some(now);
        }
        over
    }

    /// A check of these nodes was committed that was sent at that time.
    pub(crate) fn checked(&mut self, ids: &[HoldId], sent: Instant) {
        for id in ids {
            if let Some(held) = self.holds.get_mut(id) {
                held.checked = Some(sent);
            }
        }
    }

    /// Takes a look at a node that went behind a check which was sent at that time. `found`: which
    /// transaction created the node that is there, if it is one of this session. `generation`: that of
    /// the lease, if its deadline has not passed.
    pub(crate) fn looked(
        &mut self,
        id: HoldId,
        sent: Instant,
        found: Option<Zxid>,
        generation: Option<u64>,
    ) -> LookOutcome {
        let Some(held) = self.holds.get(&id) else { return LookOutcome::Unproven };
        let Some(creation) = held.creation() else { return LookOutcome::Unproven };
        if found != Some(creation) {
            self.holds.remove(&id);
            return LookOutcome::Gone;
        }

        match held.is_in_jeopardy(generation) && held.checked == Some(sent) {
            true => LookOutcome::Proven,
            false => LookOutcome::Unproven,
        }
    }

    /// A node is proven in this generation of the lease.
    pub(crate) fn proven(&mut self, id: HoldId, generation: u64) {
        if let Some(held) = self.holds.get_mut(&id) {
            held.generation = generation;
        }
    }

    /// The connection is lost; heartbeats start again at once on the next one.
    pub(crate) fn disconnected(&mut self, now: Instant) {
        self.unanswered.clear();
        for held in self.holds.values_mut() {
            held.checked = None;
        }
        if self.due.is_some() || self.holds.values().any(|held| held.czxid.is_some()) {
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

/// What a look at a node showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookOutcome {
    /// It was in jeopardy, is the same node, and a check of its path was committed before on the same
    /// connection.
    Proven,
    /// It is gone, or another one has its path.
    Gone,
    /// Nothing follows.
    Unproven,
}

fn look(path: &ZnodePath) -> Request {
    Request::Exists(PathWatchRequest { path: path.to_string(), watch: false })
}

fn check(path: &ZnodePath) -> Op {
    Op::Check(CheckRequest { path: path.to_string(), version: -1 })
}
