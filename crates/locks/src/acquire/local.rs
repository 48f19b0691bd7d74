//! The queue within one process.
//!
//! All tasks of a process that want the same lock wait in a local queue, in order of arrival. Only the first of
//! them has a contender in the queue on the server. This saves nodes, watches and long listings. A
//! holder can also leave its node to the next task, without a round trip:
//!
//! *cohort*: a holder hands the node to the next task of this process, for a bounded number of
//! times and a bounded time (after D. Dice, V. Marathe, N. Shavit, "Lock cohorting", PPoPP 2012).
//! *linger*: a holder leaves its node in place for a while and watches the queue. The node is deleted as soon as
//!   another contender enters.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex, PoisonError, Weak};
use std::time::Duration;

use lockkeeper_client::{Client, Instant, Reply, Watcher, ZnodePath};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::contender::order::{QueueTail, WaitQueue};
use crate::guard::Guard;
use crate::guard::owned_node::{OwnedNode, Releasing};
use crate::guard::state::HolderState;

/// The shortest interval between two checks of whether a lingering node has become idle.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// How a node may serve more than one holder of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sharing {
    /// For how long an idle node is kept.
    pub(crate) linger: Option<Duration>,
    /// How many holders in a row one node may serve, and for how long, while others wait.
    pub(crate) cohort: Option<(u32, Duration)>,
}

/// A node kept for the next holder in this process.
#[derive(Debug)]
struct KeptNode {
    guard: Guard,
    node_use: NodeUse,
}

/// The state of a node that serves several holders.
#[derive(Clone, Debug)]
struct NodeUse {
    /// When the first of them was granted the lock, if the time of the cohort is bounded.
    since: Option<Instant>,
    holders: u32,
    /// What its keeper knows, once the node has lingered.
    lingering: Option<Arc<Lingering>>,
}

#[derive(Debug)]
struct Lingering {
    /// Set by the keeper: the node must be released as soon as it is idle.
    given_up: AtomicBool,
    /// When the node became idle; `None` while it is held.
    idle_since: StdMutex<Option<Instant>>,
}

/// The queue of the tasks of this process.
#[derive(Debug)]
pub(crate) struct LocalQueue {
    sharing: Sharing,
    slot: HandoverSlot<KeptNode>,
}

/// The slot that hands a node from one task to the next.
#[derive(Debug)]
struct HandoverSlot<S> {
    handover: Arc<Mutex<Handover<S>>>,
    waiting: AtomicUsize,
}

/// What the previous holder left for the next task.
#[derive(Debug)]
struct Handover<S> {
    cached: Option<S>,
    /// What the last holder knew about the queue on the server, if it did not leave its node.
    tail: Option<QueueTail>,
}

/// The first place in the local queue. Its owner may enter the queue on the server.
#[derive(Debug)]
pub(crate) struct LocalTurn {
    queue: Arc<LocalQueue>,
    handover: OwnedMutexGuard<Handover<KeptNode>>,
}

/// A held lock, and its turn in the local queue.
#[derive(Debug)]
pub(crate) struct LocalHold {
    /// Both are `Some` until the lock is released.
    guard: Option<Guard>,
    turn: Option<LocalTurn>,
    node_use: NodeUse,
    /// What it knows about the queue on the server.
    tail: Option<QueueTail>,
}

impl LocalQueue {
    pub(crate) fn new(sharing: Sharing) -> Arc<Self> {
        Arc::new(Self { sharing, slot: HandoverSlot::default() })
    }

    /// Waits for the first place.
    pub(crate) async fn turn(self: &Arc<Self>) -> LocalTurn {
        // A turn is free only if no task waits for one, so this overtakes no task. With `linger` or
        // `cohort`, a task that acquires and releases in a loop may never wait. Such a task always waits for
        // its turn below, where the runtime makes it yield from time to time.
        if self.sharing == Sharing::default()
            && let Some(turn) = self.try_turn()
        {
            return turn;
        }
        let waiting = CountedWait::new(&self.slot);
        let handover = Arc::clone(&self.slot.handover).lock_owned().await;
        drop(waiting);
        LocalTurn { queue: Arc::clone(self), handover }
    }

    /// Takes the first place if it is free.
    pub(crate) fn try_turn(self: &Arc<Self>) -> Option<LocalTurn> {
        let handover = Arc::clone(&self.slot.handover).try_lock_owned().ok()?;
        Some(LocalTurn { queue: Arc::clone(self), handover })
    }
}

/// An item that can be left in a slot.
trait SlotItem {
    /// Whether a keeper removes the item when it is no longer needed.
    fn is_kept(&self) -> bool;
}

impl SlotItem for KeptNode {
    fn is_kept(&self) -> bool {
        self.node_use.lingering.is_some()
    }
}

impl<S> Default for HandoverSlot<S> {
    fn default() -> Self {
        let handover = Handover { cached: None, tail: None };
        Self { handover: Arc::new(Mutex::new(handover)), waiting: AtomicUsize::new(0) }
    }
}

impl<S: SlotItem> HandoverSlot<S> {
    /// Drops a node that was left for a task that no longer waits.
    ///
    /// A holder calls this after it has left its node, and a task calls it after it has stopped waiting. The
    /// later of the two calls sees both changes. A call that finds the slot locked can return,
    /// because the other call checks again after it has unlocked the slot.
    fn settle(&self) {
        while let Ok(mut handover) = self.handover.try_lock() {
            if self.waiting.load(Ordering::SeqCst) == 0 {
                handover.cached.take_if(|cached| !cached.is_kept());
                return;
            }
            drop(handover);
            if self.waiting.load(Ordering::SeqCst) > 0 {
                return;
            }
        }
    }
}

/// Counts a task as waiting until it gets its turn or gives up.
struct CountedWait<'a, S: SlotItem>(&'a HandoverSlot<S>);

impl<'a, S: SlotItem> CountedWait<'a, S> {
    fn new(slot: &'a HandoverSlot<S>) -> Self {
        slot.waiting.fetch_add(1, Ordering::SeqCst);
        Self(slot)
    }
}

impl<S: SlotItem> Drop for CountedWait<'_, S> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
        self.0.settle();
    }
}

impl LocalTurn {
    /// Returns the lock if the previous holder left its node and the node is still valid.
    pub(crate) fn take_cached(mut self) -> Result<LocalHold, Self> {
        let Some(cached) = self.handover.cached.take() else { return Err(self) };
        // On healthy servers every holder has at least this much of its lease left, as heartbeats renew it.
        let enough = cached.guard.client().timing().always_left();
        if cached.guard.state() != HolderState::Held || cached.guard.remaining() < enough {
            return Err(self);
        }

        let node_use =
            NodeUse { holders: cached.node_use.holders.saturating_add(1), ..cached.node_use };
        if let Some(lingering) = &node_use.lingering {
            lingering.set_idle(None);
        }
        Ok(LocalHold {
            guard: Some(cached.guard.regrant()),
            turn: Some(self),
            node_use,
            tail: None,
        })
    }

    /// Takes what the last holder in this process knew about the queue on the server. It is useful only right
    /// after that holder has released its node, so it is not kept longer.
    pub(crate) fn take_tail(&mut self) -> Option<QueueTail> {
        self.handover.tail.take()
    }

    /// Returns the lock as held by a node of its own, at the front of this queue.
    pub(crate) fn hold(self, guard: Guard, queue: &WaitQueue) -> LocalHold {
        let since = self.queue.sharing.cohort.map(|_| guard.client().now());
        let node_use = NodeUse { since, holders: 1, lingering: None };
        let tail = queue.tail(guard.node());
        let guard = match self.queue.sharing == Sharing::default() {
            true => guard,
            false => guard.shared(),
        };
        LocalHold { guard: Some(guard), turn: Some(self), node_use, tail }
    }
}

/// Releases a lock whose guard is shared. Dropping it also releases the lock.
#[derive(Debug)]
pub(crate) struct SharedHold {
    // Dropped first: the next holder's node must be created after this one is deleted.
    owned: OwnedNode,
    turn: LocalTurn,
    tail: Option<QueueTail>,
}

impl SharedHold {
    /// Deletes the node and passes the turn on. The guard [has ended](Guard::end) before.
    pub(crate) fn give_back(mut self) -> Option<Reply<()>> {
        self.turn.handover.tail = self.tail.take();
        self.owned.begin_deletion()
    }
}

impl LocalHold {
    /// Leaves the guard to its sharers, and returns the value that releases the lock.
    pub(crate) fn share(&mut self) -> Option<SharedHold> {
        let turn = self.turn.take()?;
        let owned = self.guard.as_mut()?.take_duty();
        Some(SharedHold { owned, turn, tail: self.tail.take() })
    }

    pub(crate) fn guard(&self) -> &Guard {
        self.guard.as_ref().expect("given back only by value or at the end")
    }

    /// Leaves the node to the next holder in this process, or releases it. The caller may wait for the
    /// returned release.
    pub(crate) fn give_back(&mut self) -> Option<Releasing> {
        let (mut guard, mut turn) = (self.guard.take()?, self.turn.take()?);
        let Some(node_use) = self.use_to_leave(&guard, &turn.queue) else {
            turn.handover.tail = self.tail.take();
            // Before the turn is passed on: the next holder's node must be created after this one is deleted.
            return Some(guard.begin_release());
        };
        guard.hand_on();
        let queue = Arc::clone(&turn.queue);
        turn.handover.cached = Some(KeptNode { guard, node_use });
        drop(turn);
        queue.slot.settle();
        None
    }

    /// The state to leave the node with, if it may be left to another holder in this process.
    fn use_to_leave(&self, guard: &Guard, queue: &Arc<LocalQueue>) -> Option<NodeUse> {
        if queue.sharing == Sharing::default() || guard.state() != HolderState::Held {
            return None;
        }
        if let Some(lingering) = &self.node_use.lingering {
            lingering.set_idle(Some(guard.client().now()));
            let given_up = lingering.given_up.load(Ordering::SeqCst);
            return (!given_up).then(|| self.node_use.clone());
        }
        // A node that lingers would go to the next waiting task, beyond the bound of the cohort.
        if let Some(bounds) = queue.sharing.cohort
            && queue.slot.waiting.load(Ordering::SeqCst) > 0
        {
            return self.cohort_continues(guard, bounds).then(|| self.node_use.clone());
        }
        let lingering = keep(guard, queue)?;
        Some(NodeUse { lingering: Some(lingering), ..self.node_use.clone() })
    }

    fn cohort_continues(&self, guard: &Guard, (holders, time): (u32, Duration)) -> bool {
        self.node_use.holders < holders
            && self.node_use.since.is_some_and(|since| guard.client().now().since(since) < time)
    }
}

impl Drop for LocalHold {
    fn drop(&mut self) {
        drop(self.give_back());
    }
}

/// Starts the keeper of a node that is about to become idle; `None` if the node does not linger.
fn keep(guard: &Guard, queue: &Arc<LocalQueue>) -> Option<Arc<Lingering>> {
    let period = queue.sharing.linger.filter(|period| !period.is_zero())?;
    let lingering = Arc::new(Lingering::new(guard.client().now()));
    let keeper = LingerKeeper {
        client: guard.client().clone(),
        path: guard.path().clone(),
        node: guard.node().clone(),
        queue: Arc::downgrade(queue),
        lingering: Arc::clone(&lingering),
        period,
    };
    // The current runtime, if any, may end before the node is released.
    guard.client().tokio_runtime().spawn(keeper.run());
    Some(lingering)
}

impl Lingering {
    /// The node is idle from now on.
    fn new(now: Instant) -> Self {
        Self { given_up: AtomicBool::new(false), idle_since: StdMutex::new(Some(now)) }
    }

    fn set_idle(&self, since: Option<Instant>) {
        *self.idle_since.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    /// Returns when the node has been idle for a whole period.
    async fn unused(&self, period: Duration, now: impl Fn() -> Instant) {
        loop {
            let idle_since = *self.idle_since.lock().unwrap_or_else(PoisonError::into_inner);
            let now = now();
            // The period does not start while the node is held.
            let left = match idle_since {
                Some(idle_since) => (idle_since + period).since(now),
                None => period.max(MIN_CHECK_INTERVAL),
            };
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }
}

/// The task that watches a lingering node.
struct LingerKeeper {
    client: Client,
    path: ZnodePath,
    node: ZnodePath,
    queue: Weak<LocalQueue>,
    lingering: Arc<Lingering>,
    period: Duration,
}

impl LingerKeeper {
    /// Releases the node when another contender enters the queue, or when the node has been idle for a
    /// whole period.
    async fn run(self) {
        tokio::select! {
            biased;
            () = self.contended() => {}
            () = self.lingering.unused(self.period, || self.client.now()) => {}
        }
        self.lingering.given_up.store(true, Ordering::SeqCst);
        let Some(queue) = self.queue.upgrade() else { return };
        // A holder that checked before the mark was set has left the node again by the time
        // this turn comes.
        queue.slot.handover.lock().await.cached.take_if(|cached| self.is_mine(cached));
    }

    fn is_mine(&self, cached: &KeptNode) -> bool {
        cached.node_use.lingering.as_ref().is_some_and(|l| Arc::ptr_eq(l, &self.lingering))
    }

    /// Returns when another contender is in the queue, or the node may be gone.
    async fn contended(&self) {
        loop {
            let own = self.client.data_watched(&self.node);
            let listing = self.client.children_watched(&self.path);
            let (Ok((_, mut own)), Ok(((names, _), mut queue))) = (own.await, listing.await) else {
                return;
            };
            if names.len() > 1 || either(&mut own, &mut queue).await.is_none() {
                return;
            }
        }
    }
}

/// Waits for an event of either watch; `None` if a watch was lost with its session.
async fn either(a: &mut Watcher, b: &mut Watcher) -> Option<()> {
    tokio::select! {
        biased;
        event = a.changed() => event.ok().map(drop),
        event = b.changed() => event.ok().map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// Symptom: a node that had been used within the last period was deleted shortly after its release.
    /// Cause: only acquires were counted as use.
    #[tokio::test(start_paused = true)]
    async fn a_node_lingers_for_its_period_from_the_last_release_on() {
        const PERIOD: Duration = Duration::from_secs(100);
        let (first, started) = (Instant::default(), tokio::time::Instant::now());
        let now = || first + started.elapsed();
        let lingering = Lingering::new(now());

        let uses = async {
            for (wait, since) in [(PERIOD / 2, None), (PERIOD * 7 / 5, Some(()))] {
                tokio::time::sleep(wait).await;
                lingering.set_idle(since.map(|()| now()));
            }
            now()
        };
        let unused = async {
            lingering.unused(PERIOD, now).await;
            now()
        };
        let (released, given_up) = tokio::join!(uses, unused);
        let idle = given_up.since(released);
        assert!(idle >= PERIOD, "given up after {idle:?} of {PERIOD:?}");
        assert!(idle < PERIOD * 11 / 10, "given up only after {idle:?} of {PERIOD:?}");
    }

    impl SlotItem for () {
        fn is_kept(&self) -> bool {
            false
        }
    }

    /// Symptom: the node of a cohort stayed without a holder, so the lock was held forever. Cause: the holder that left
    /// the node still saw the task that was giving up, and that task found the slot locked by the
    /// holder's check.
    ///
    /// Fails without the second check in `HandoverSlot::settle`.
    #[test]
    fn what_is_left_as_the_last_one_gives_up_does_not_stay() {
        const ROUNDS: usize = 200_000;
        let (slot, turns) = (HandoverSlot::default(), Barrier::new(2));
        let mut stayed = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let waiting = CountedWait::new(&slot);
                    turns.wait();
                    drop(waiting);
                    turns.wait();
                }
            });
            for _ in 0..ROUNDS {
                turns.wait();
                slot.handover.blocking_lock().cached = Some(());
                slot.settle();
                turns.wait();
                stayed += usize::from(slot.handover.blocking_lock().cached.take().is_some());
            }
        });
        assert_eq!(stayed, 0, "in {ROUNDS} rounds");
    }
}
