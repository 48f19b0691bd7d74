//! Contenders, and the circles that they can form.

/// A contender: its lock in [`WaitGraph::queues`](super::WaitGraph::queues), and its place in [`LockQueue::entries`](crate::inspect::LockQueue::entries).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContenderIndex {
    /// The lock, by its place in [`WaitGraph::queues`](super::WaitGraph::queues).
    pub lock: usize,
    /// The contender, by its place in [`LockQueue::entries`](crate::inspect::LockQueue::entries).
    pub entry: usize,
}

/// Some contenders wait for each other in a circle: none of them goes on before another one leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitCycle {
    /// The circle: each waits for the next, and the last for the first.
    pub steps: Vec<CycleStep>,
}

/// A step of a [`WaitCycle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CycleStep {
    /// It waits,
    pub waiter: ContenderIndex,
    /// for this one of the same lock,
    pub blocker: ContenderIndex,
    /// which does not go before the waiter of the next step has its turn, for this reason.
    pub because: Because,
}

/// Why a contender stays until another one has had its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Because {
    /// It is the same contender, which waits itself.
    ItWaits,
    /// Its command waits: it is a run, and the other one works under it.
    ItsCommandWaits,
    /// Both have the same session, and wait for different locks. If they belong to different tasks, this is no
    /// reason.
    ItsSessionWaits,
}

impl WaitCycle {
    /// Whether no step leads through a session. Then it is a deadlock whatever the programs do in other tasks, unless a
    /// command under a run has left the run that waits in the background, or a wait in it has a time limit.
    pub fn is_certain(&self) -> bool {
        self.steps.iter().all(|step| step.because != Because::ItsSessionWaits)
    }
}
