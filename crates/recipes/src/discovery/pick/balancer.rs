//! The instances, the calls in flight to them, and the choice among them. No clock and no I/O; the random numbers
//! come from a seed.
//!
//! The state of an instance is in a slot as long as the instance exists, whatever else changes. A call remembers
//! the slot, and which instance used it.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_client::Instant;

use crate::discovery::pick::candidate::{Candidate, Pick, PickError};
use crate::discovery::pick::health::{CallVerdict, Ejection, HealthRecord, InstanceHealth, Period};
use crate::discovery::pick::load::{Load, LoadedInstance, Moment, has_less_to_do};
use crate::discovery::pick::pool::{PickPool, PoolMember};
use crate::discovery::pick::rendezvous::digest;

/// The fractional part of the golden ratio, times 2^64: its multiples are spread over a circle more evenly than
/// those of any other number.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// How many of 256 picks of two ignore latency and failures. Otherwise an instance that was slow or failed once
/// would get no calls, and could not show that it has recovered.
const BLIND_OF_256: u8 = 16;

/// The state of one instance.
#[derive(Debug)]
struct InstanceSlot<T> {
    /// `None` if the slot is free.
    instance: Option<Arc<T>>,
    /// The number of earlier instances in this slot.
    tenant: u64,
    /// The digest of the instance's id.
    digest: u64,
    weight: u32,
    /// Whether it is in the client's zone.
    is_near: bool,
    load: Load,
    record: HealthRecord,
}

/// A call in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    slot: usize,
    tenant: u64,
    period: Period,
    began: Instant,
}

/// The load of an instance, as recorded by a [`Picker`](crate::Picker).
#[derive(Debug)]
#[non_exhaustive]
pub struct InstanceLoad<T> {
    /// The instance.
    pub instance: Arc<T>,
    /// The calls of this picker that have not ended.
    pub in_flight: u32,
    /// The moving average of the time from a pick to its end, without the first call; `None` without another one.
    /// It covers about 1 s, or 16 picks if these take longer.
    pub latency: Option<Duration>,
    /// Whether it gets calls.
    pub health: InstanceHealth,
}

/// The instances of one service, as one client uses them.
#[derive(Debug)]
pub(crate) struct Balancer<T> {
    ejection: Ejection,
    zone: Option<String>,
    slots: Vec<InstanceSlot<T>>,
    free: Vec<usize>,
    /// The slots in use, in the order of the ids.
    order: Vec<usize>,
    /// The instances that may be picked; and those of them in the own zone, with instances elsewhere that are due
    /// for a trial.
    all: PickPool,
    near: PickPool,
    /// How many instances have a weight, and how many of these are ejected or on trial.
    weighted: usize,
    out: usize,
    /// When the next pause ends, or the time for a trial.
    next_look: Option<Instant>,
    /// The position of the next weighted pick on the circle of weights.
    point: u64,
    /// The number of picks.
    picks: u32,
    random: fastrand::Rng,
}

/// Picks a member of a pool, or two of which the less loaded one is used. The pool is not empty.
#[inline(always)]
fn draw(
    pool: &mut PickPool,
    how: Pick<'_>,
    point: &mut u64,
    random: &mut fastrand::Rng,
) -> (PoolMember, Option<PoolMember>) {
    match how {
        Pick::RoundRobin => (pool.take_turn(), None),
        Pick::Weighted => {
            *point = point.wrapping_add(GOLDEN);
            (pool.at(*point), None)
        }
        Pick::PowerOfTwo => {
            let (first, second) = pool.two(random.u64(..), random.u64(..));
            (first, Some(second))
        }
        Pick::Key(key) => (pool.owner(digest(key)), None),
    }
}

impl<T: Candidate> Balancer<T> {
    pub(crate) fn new(ejection: Ejection, zone: Option<String>, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        Self {
            ejection,
            zone,
            slots: Vec::new(),
            free: Vec::new(),
            order: Vec::new(),
            all: PickPool::default(),
            near: PickPool::default(),
            weighted: 0,
            out: 0,
            next_look: None,
            point: random.u64(..),
            picks: 0,
            random,
        }
    }

    /// Replaces the instances. Keeps the state of those that stay. Takes O(n log n).
    pub(crate) fn update(&mut self, mut instances: Vec<Arc<T>>, now: Instant) {
        instances.sort_by(|a, b| a.id().cmp(b.id()));
        instances.dedup_by(|later, earlier| later.id() == earlier.id());
        let turns = [&self.all, &self.near].map(|pool| self.next_in_turn(pool));

        let mut order = Vec::with_capacity(instances.len());
        let mut known = std::mem::take(&mut self.order).into_iter().peekable();
        for instance in instances {
            // Both are in the order of ids: known instances before this one have left.
            while let Some(slot) = known.next_if(|slot| self.compare(*slot, instance.id()).is_lt())
            {
                self.leave(slot);
            }
            let slot = known.next_if(|slot| self.compare(*slot, instance.id()).is_eq());
            order.push(self.enter(slot, instance));
        }
        for slot in known {
            self.leave(slot);
        }

        self.order = order;
        self.all.reserve(self.order.len());
        self.near.reserve(self.order.len());
        self.keep_to_cap(now);
        let [all, near] = turns.map(|next| match next {
            Some(next) => self.rank(&next),
            None => self.random.usize(..=self.order.len()),
        });
        self.regroup_at(all, near);
    }

    /// Picks an instance, and counts the call that begins now.
    pub(crate) fn pick(
        &mut self,
        how: Pick<'_>,
        now: Instant,
    ) -> Result<(Arc<T>, Ticket), PickError> {
        if self.next_look.is_some_and(|next| next <= now) {
            self.end_pauses(now);
        }
        if self.all.is_empty() {
            return Err(self.nothing());
        }

        let index = self.choose(how, now);
        Ok(self.begin(index, now))
    }

    /// Like `pick`, without these instances. Allocates, as a call has failed before. The turns of later picks stay
    /// the same.
    pub(crate) fn pick_except(
        &mut self,
        tried: &[Arc<T>],
        how: Pick<'_>,
        now: Instant,
    ) -> Result<(Arc<T>, Ticket), PickError> {
        if self.next_look.is_some_and(|next| next <= now) {
            self.end_pauses(now);
        }
        let mut left = self.untried(tried);
        if left.is_empty() {
            return Err(match self.all.is_empty() {
                true => self.nothing(),
                false => PickError::AllTried { instances: self.weighted },
            });
        }

        // As in the pools: those that take calls, and of these the near ones.
        let is_key = matches!(how, Pick::Key(_));
        let takes_calls = |index: &usize| self.slots[*index].record.takes_calls();
        let is_near = |index: &usize| self.slots[*index].is_near;
        if left.iter().any(takes_calls) {
            left.retain(takes_calls);
        }
        if !is_key && left.iter().any(is_near) {
            left.retain(is_near);
        }

        let next = self.random.usize(..left.len());
        let members = left.iter().map(|index| {
            let InstanceSlot { weight, digest, .. } = self.slots[*index];
            PoolMember { slot: *index, weight, digest }
        });
        let mut pool = PickPool::default();
        pool.replace(members, next);
        let (first, second) = draw(&mut pool, how, &mut self.point, &mut self.random);
        let index = self.less_loaded(first, second, now).slot;
        Ok(self.begin(index, now))
    }

    /// Why no instance can be picked.
    fn nothing(&self) -> PickError {
        match self.order.len() {
            0 => PickError::NoInstance,
            instances => PickError::AllDrained { instances },
        }
    }

    /// The slots of other instances with a weight, in the order of the ids.
    fn untried(&self, tried: &[Arc<T>]) -> Vec<usize> {
        let is_left = |index: &&usize| {
            let InstanceSlot { instance, weight, .. } = &self.slots[**index];
            let is_tried = |own: &Arc<T>| tried.iter().any(|tried| tried.id() == own.id());
            *weight > 0 && instance.as_ref().is_some_and(|own| !is_tried(own))
        };
        self.order.iter().filter(is_left).copied().collect()
    }

    /// Begins a call.
    fn begin(&mut self, index: usize, now: Instant) -> (Arc<T>, Ticket) {
        self.picks = self.picks.wrapping_add(1);
        let slot = &mut self.slots[index];
        slot.load.begin();
        let is_trial = slot.record.picked(now);
        let (tenant, period) = (slot.tenant, slot.record.period());
        let instance = Arc::clone(slot.instance.as_ref().expect("only slots in use are picked"));
        if is_trial {
            self.regroup();
        }
        (instance, Ticket { slot: index, tenant, period, began: now })
    }

    /// Ends a call.
    pub(crate) fn end(&mut self, ticket: Ticket, verdict: CallVerdict, now: Instant) {
        let has_room = self.out < self.ejection.cap(self.weighted);
        let slot = &mut self.slots[ticket.slot];
        if slot.tenant != ticket.tenant {
            return;
        }

        slot.load.end();
        let (took, moment) = (now.since(ticket.began), Moment { time: now, picks: self.picks });
        match verdict {
            CallVerdict::Good => slot.load.answered(took, moment),
            CallVerdict::GivenUp => slot.load.given_up(took, moment),
            CallVerdict::Failed => slot.load.failed(moment),
        }
        if slot.record.ended(verdict, ticket.period, &self.ejection, has_room, now) {
            self.regroup();
        }
    }

    /// All instances, in the order of their ids.
    pub(crate) fn show(&self) -> Vec<InstanceLoad<T>> {
        let used = self.order.iter().map(|index| &self.slots[*index]);
        let shown = used.filter_map(|slot| {
            let instance = Arc::clone(slot.instance.as_ref()?);
            let (in_flight, latency) = (slot.load.in_flight, slot.load.latency());
            Some(InstanceLoad { instance, in_flight, latency, health: slot.record.health() })
        });
        shown.collect()
    }

    /// The slot of the instance to pick, which exists.
    fn choose(&mut self, how: Pick<'_>, now: Instant) -> usize {
        // All clients must pick the same owner of a key, in all zones.
        let is_anywhere = self.near.is_empty() || matches!(how, Pick::Key(_));
        let pool = if is_anywhere { &mut self.all } else { &mut self.near };
        let (first, second) = draw(pool, how, &mut self.point, &mut self.random);
        self.less_loaded(first, second, now).slot
    }

    /// The less loaded one of two; the first one unless the difference is clear.
    fn less_loaded(
        &mut self,
        first: PoolMember,
        second: Option<PoolMember>,
        now: Instant,
    ) -> PoolMember {
        let Some(second) = second else { return first };
        let contestant = |member: PoolMember| {
            let InstanceSlot { load, record, .. } = &self.slots[member.slot];
            LoadedInstance { load: *load, weight: member.weight, failures: record.failures() }
        };

        let moment = Moment { time: now, picks: self.picks };
        let moment = (self.random.u8(..) >= BLIND_OF_256).then_some(moment);
        match has_less_to_do(contestant(second), contestant(first), moment) {
            true => second,
            false => first,
        }
    }

    /// Puts an instance into its slot, or into a free one.
    fn enter(&mut self, known: Option<usize>, instance: Arc<T>) -> usize {
        let index = known.or_else(|| self.free.pop()).unwrap_or(self.slots.len());
        let (tenant, kept) = match self.slots.get(index) {
            Some(slot) => match &slot.instance {
                Some(earlier) if instance.is_same_endpoint(earlier) => {
                    (slot.tenant, Some((slot.load, slot.record)))
                }
                _ => (slot.tenant + 1, None),
            },
            None => (0, None),
        };

        let (load, record) = kept.unwrap_or_else(|| (Load::default(), HealthRecord::new()));
        let slot = InstanceSlot {
            tenant,
            digest: digest(instance.id().as_bytes()),
            weight: instance.weight(),
            is_near: self.zone.is_some() && instance.zone() == self.zone.as_deref(),
            instance: Some(instance),
            load,
            record,
        };
        match self.slots.get_mut(index) {
            Some(old) => *old = slot,
            None => self.slots.push(slot),
        }
        index
    }

    /// Frees a slot. Calls to its instance that are still in flight are not counted: the next instance has another
    /// number.
    fn leave(&mut self, index: usize) {
        self.slots[index].instance = None;
        self.free.push(index);
    }

    fn compare(&self, slot: usize, id: &str) -> Ordering {
        self.slots[slot].instance.as_deref().map_or("", Candidate::id).cmp(id)
    }

    /// The instance of a pool that is next in turn.
    fn next_in_turn(&self, pool: &PickPool) -> Option<Arc<T>> {
        self.slots[pool.peek()?.slot].instance.clone()
    }

    /// How many instances come before this one.
    fn rank(&self, instance: &T) -> usize {
        self.order.partition_point(|slot| self.compare(*slot, instance.id()).is_lt())
    }

    fn end_pauses(&mut self, now: Instant) {
        for index in &self.order {
            self.slots[*index].record.look_at_clock(now);
        }
        self.regroup();
    }

    /// With fewer instances than before, fewer may be ejected: those whose pauses end first are readmitted.
    fn keep_to_cap(&mut self, now: Instant) {
        let is_weighted = |slot: &&usize| self.slots[**slot].weight > 0;
        let weighted: Vec<_> = self.order.iter().filter(is_weighted).copied().collect();
        let is_out = |slot: &usize| self.slots[*slot].record.is_out();
        let mut out: Vec<_> = weighted.iter().filter(|slot| is_out(slot)).copied().collect();

        out.sort_by_key(|slot| self.slots[*slot].record.pause_ends());
        let too_many = out.len().saturating_sub(self.ejection.cap(weighted.len()));
        for slot in &out[..too_many] {
            self.slots[*slot].record.pardon(now);
        }
    }

    /// Rebuilds the sets of instances that may be picked. The next ones in turn stay the same, or are replaced by
    /// the next ones that may be picked.
    fn regroup(&mut self) {
        let rank = |pool: &PickPool| {
            let next = pool.peek().and_then(|member| self.slots[member.slot].instance.as_deref());
            next.map_or(0, |next| self.rank(next))
        };
        let (all, near) = (rank(&self.all), rank(&self.near));
        self.regroup_at(all, near);
    }

    /// As `regroup`, with the first instances from these positions as the next ones in turn. Allocates nothing, so
    /// that picks may call it.
    fn regroup_at(&mut self, all_from: usize, near_from: usize) {
        let Self { slots, order, .. } = self;
        let weighted = |index: &&usize| slots[**index].weight > 0;
        self.weighted = order.iter().filter(weighted).count();
        self.out = order.iter().filter(weighted).filter(|i| slots[**i].record.is_out()).count();
        self.next_look = order.iter().filter_map(|i| slots[*i].record.next_look()).min();

        // If no other is left, an instance that may answer is better than none.
        let takes_calls = |slot: &InstanceSlot<T>| slot.weight > 0 && slot.record.takes_calls();
        let is_last_resort = !order.iter().any(|index| takes_calls(&slots[*index]));
        let may = |slot: &InstanceSlot<T>| takes_calls(slot) || (is_last_resort && slot.weight > 0);
        // A far instance that is due counts against the cap until its trial, and would never have one otherwise.
        let has_near = order.iter().any(|i| slots[*i].is_near && may(&slots[*i]));
        let may_near = |slot: &InstanceSlot<T>| {
            has_near && may(slot) && (slot.is_near || slot.record.is_due())
        };

        let member = |index: &usize| {
            let InstanceSlot { weight, digest, .. } = slots[*index];
            PoolMember { slot: *index, weight, digest }
        };
        let before = order[..all_from].iter().filter(|index| may(&slots[**index])).count();
        let members = order.iter().filter(|index| may(&slots[**index])).map(member);
        self.all.replace(members, before);

        let before = order[..near_from].iter().filter(|index| may_near(&slots[**index])).count();
        let members = order.iter().filter(|index| may_near(&slots[**index])).map(member);
        self.near.replace(members, before);
    }
}

#[cfg(test)]
impl<T> Balancer<T> {
    /// The state after so many picks and calls that every counter is at its maximum.
    pub(crate) fn at_its_limits(&mut self) {
        (self.point, self.picks) = (u64::MAX, u32::MAX);
        for slot in &mut self.slots {
            slot.load.in_flight = u32::MAX;
            slot.record.at_its_limits();
        }
    }
}
