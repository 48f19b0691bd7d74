//! Contenders, and the cycles that they can form.

/// A contender: its lock in [`WaitGraph::queues`](super::WaitGraph::queues), and its place in [`LockQueue::entries`](crate::inspect::LockQueue::entries).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContenderIndex {
    /// The lock, by its place in [`WaitGraph::queues`](super::WaitGraph::queues).
    pub lock: usize,
    /// The contender, by its place in [`LockQueue::entries`](crate::inspect::LockQueue::entries).
    pub entry: usize,
}

/// Contenders that wait for each other in a cycle: none of them makes progress until another one leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitCycle {
    /// The steps of the cycle. Each contender waits for the next, and the last for the first.
    pub steps: Vec<CycleStep>,
}

/// A step of a [`WaitCycle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CycleStep {
    /// The waiting contender.
    pub waiter: ContenderIndex,
    /// The contender of the same lock that blocks it.
    pub blocker: ContenderIndex,
    /// Why the blocker stays until the waiter of the next step has had its turn.
    pub because: Because,
}

/// Why a contender stays until another one has had its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Because {
    /// The other one is the same contender, which itself waits.
    ItWaits,
    /// Its command waits: the contender is a run, and the other one works under it.
    ItsCommandWaits,
    /// Both have the same session, and are contenders for different locks. If they belong to different tasks,
    /// this is not a reason.
    ItsSessionWaits,
}

impl WaitCycle {
    /// Whether no step leads through a session. Such a cycle is a deadlock whatever the programs do in other
    /// tasks, unless a command under a run has left the waiting run in the background, or one of the waits has a
    /// time limit.
    pub fn is_certain(&self) -> bool {
        self.steps.iter().all(|step| step.because != Because::ItsSessionWaits)
    }
}
