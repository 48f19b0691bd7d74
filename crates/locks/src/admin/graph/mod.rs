//! The waits-for graph of many locks: deadlocks, and the holders at the front of the longest queues.
//!
//! A [`WaitGraph`] is computed from the queues of locks that [`inspect::queues`](crate::inspect::queues) returns.
//! Whether one contender blocks another is decided by the same code that grants locks.
//!
//! # What is known, and what is not
//!
//! - A contender waits for **every** contender ahead that blocks it. Where permits are counted, it waits until
//!   enough of
//!   them have gone, no matter which.
//! - A holder that waits for another lock keeps what it holds, if its program does one thing at a time.
//!   The servers know the session of a contender, but not its task. A cycle that leads through a session
//!   is therefore not a deadlock if the program waits in one task and releases in another. A session with two
//!   contenders
//!   for one lock has two tasks, so its wait for that lock is not a reason to keep the lock.
//! - A command under `lockkeeper run` that takes another lock records the outer run in its node ([`OwnerInfo::under`]).
//!   The outer run does not release before the command ends. A cycle that leads only through such runs is
//!   certain, unless
//!   a command has left the inner run in the background and ends without it.
//! - An [`ExclusiveNode`](crate::ExclusiveNode) does not have a queue, and other libraries' semaphores do not store
//!   how many permits there are. The waits for these are unknown, as are waits for anything that is not a lock.
//! - The queues are read one after the other and not at one instant, so a cycle may be over when it is seen. A
//!   cycle that a second read shows again is a deadlock.
//!
//! [`OwnerInfo::under`]: crate::OwnerInfo::under
//!
//! ```text
//!   deadlock     finding deadlocks on servers, and ending one
//!   wait_graph   WaitGraph: the waits for a set of locks
//!   cycles       the cycles among stuck contenders
//!   stuck        the contenders that wait forever unless another one gives up
//!   links        which contenders belong together
//!   step         contenders, and the cycles that they can form
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
