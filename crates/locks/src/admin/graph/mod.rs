//! Who waits for whom, over many locks: deadlocks, and who is at the front of the longest lines.
//!
//! A [`WaitGraph`] is made from the queues of locks, as [`inspect::queues`](crate::inspect::queues) finds them.
//! Whether one contender blocks another is decided by the rules that grant, not by a second model.
//!
//! # What is known, and what is not
//!
//! - A contender waits for **every** one ahead that blocks it. Where permits are counted, it waits until enough of
//!   them have gone, whichever they are.
//! - A holder that waits for another lock keeps what it holds meanwhile, if its program does one thing at a time.
//!   The servers tell which session a contender has, and not which task. So a cycle that leads through a session
//!   is no deadlock if the program waits in one task and releases in another. A session with two contenders of one
//!   lock has two tasks, so what it waits for there is no reason to keep the lock.
//! - A command under `lockkeeper run` that takes another lock says so in its node ([`OwnerInfo::under`]), and the
//!   run does not release before the command ends. A cycle that leads through such runs alone is certain, unless a command
//!   has left the inner run in the background and ends without it.
//! - An [`ExclusiveNode`](crate::ExclusiveNode) has no queue, and the layouts of other libraries' semaphores do not
//!   say how many permits there are. Who waits for these is unknown, as is whoever waits for something that is no lock.
//! - Programs that wait do not do so at one instant: the queues are read one after the other, so a cycle may be
//!   over when it is seen. A deadlock is one that is seen again.
//!
//! [`OwnerInfo::under`]: crate::OwnerInfo::under
//!
//! ```text
//!   deadlock     looking for deadlocks on servers, and leaving one
//!   wait_graph   WaitGraph: the waits for all of some locks
//!   cycles       the circles among those that are stuck
//!   stuck        who gets no turn unless another one gives up
//!   links        which contenders belong together
//!   step         contenders, and the circles that they can form
//! ```

mod cycles;
mod deadlock;
mod links;
mod step;
mod stuck;
#[cfg(test)]
mod tests;
mod wait_graph;

pub use deadlock::{
    CycleCheck, Deadlock, DeadlockParty, DeadlockWait, deadlocks, unless_deadlocked,
};
pub use step::{Because, ContenderIndex, CycleStep, WaitCycle};
pub use wait_graph::{RootBlocker, WaitGraph};
