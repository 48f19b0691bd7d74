//! One place in a wait queue: how it is entered, how it waits, and who is ahead of it.
//!
//! ```text
//!   node      Contender: a node, from before its creation to its deletion
//!   waiting   how a contender waits for those ahead
//!   idle      nodes of idle locks, where only contenders should be
//!   retry     attempts that are made again, while what fails is something passing
//!   order     who is ahead of whom: a pure function of a listing
//!   terms     what a queue is like, and how far its numbers go
//! ```
//!
//! Invariant: a contender exists before the request that creates its node is sent, so whatever may
//! have come of it is deleted.
//!
//! The states of a contender, and of the guard that it becomes:
//!
//! ```text
//!             reply lost
//!   Entering ------------> Recovering        node.rs: `attempt`, `recover`
//!    |    ^                 |      |
//!    |    '-- no node found-'      | node found
//!    | created and listed          |
//!    v                             v
//!   Ordering <---------------------'         order.rs: `WaitQueue::standing`
//!    |  |  ^
//!    |  |  '-- the listing ------------ Listing      waiting.rs: `list`
//!    |  |                                  ^
//!    |  | WaitOn                           | ListAgain: one ahead has gone, and had others ahead
//!    |  '--------> Waiting ----------------+         waiting.rs: `wait_in`, `outwait`
//!    |               | one ahead has gone, and there was no other
//!    | Held          |
//!    v               v
//!   Proving <--------'     guard/mod.rs: `Guard::confirm`; a write only if the lease is old
//!    |
//!    |  RwLock after an upgrade:  Minting    acquire/entrance.rs: `mint`
//!    v
//!   Held                   guard/state.rs: Held, Suspect, Lost
//!    |
//!    v   release, drop, or a loss
//!   Leaving                the session deletes the node, until a server has confirmed it
//! ```
//!
//! From every state a drop, a time-out or an error leads to Leaving. The end of the session leads
//! there too, with nothing left to delete.

mod idle;
pub(crate) mod node;
pub mod order;
pub(crate) mod retry;
pub(crate) mod terms;
pub(crate) mod waiting;
