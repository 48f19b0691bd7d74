//! One place in a wait queue: entering the queue, waiting, and the order of contenders.
//!
//! ```text
//!   node             Contender: a node, from before its creation to its deletion
//!   waiting          the wait for contenders ahead
//!   watches          the watches of a waiting contender
//!   idle             deletes the nodes of idle locks that block a queue
//!   order            the order of contenders: a pure function of a listing
//!   queue_settings   the path, profile and kinds of one queue; limits of its sequence numbers
//! ```
//!
//! Invariant: a contender exists before the request that creates its node is sent. So the node, if any, is
//! deleted wherever an attempt ends.
//!
//! The states of a contender, and of the guard that it becomes:
//!
//! ```text
//!              reply lost
//!   Entering ------------> Recovering          node.rs: `attempt`, `recover`
//!    |    ^                 |      |
//!    |    '- no node found -'      | node found
//!    | created; queue known (1)    |
//!    v                             |
//!   Ordering <---------------------'           order.rs: `WaitQueue::standing`
//!    | | ^ |  ^
//!    | | | |  '-- queue listed --------- Listing    waiting.rs: `list`
//!    | | | '----- ListAgain (2) ------->
//!    | | |
//!    | | '------- one ahead is gone ---- Waiting    waiting.rs: `wait_in`, `outwait`
//!    | '--------- WaitOn -------------->
//!    |
//!    | Held
//!    v
//!   Proving        guard/mod.rs: `Guard::confirm`; a write only if the lease is old
//!    |
//!    |  Minting    acquire/queue_handle.rs: `mint`; if the creation of the node is not a token (3)
//!    v
//!   Held           guard/state.rs: Held, Suspect, Jeopardy, Lost
//!    |
//!    v  release, drop, or a loss
//!   Leaving        the session deletes the node, until a server has confirmed it
//! ```
//!
//! 1. The queue is known from the listing that was sent with the create, or from the `QueueTail` of
//!    the holder whose node this one replaced. If neither can tell, Listing comes first.
//! 2. Also `Held`, if a contender ahead is gone and the own node is not watched: the listing
//!    shows whether the own node still exists.
//! 3. `WaitQueue::vouches_for` decides. Only an `RwLock` needs it, from its first upgrade on.
//!
//! A drop, a timeout or an error leads from every state to Leaving. The end of the session also leads there, but leaves
//! no node to delete. While a contender is Entering or Recovering, the end of the session leads to another attempt.

mod idle;
pub(crate) mod node;
pub mod order;
pub(crate) mod queue_settings;
pub(crate) mod waiting;
pub(crate) mod watches;
