//! Items that are put by some programs, and that one consumer at a time works on.
//!
//! ```text
//!   handle         Queue: putting and taking; its options
//!   work           Queue::work: a handler for each item; Verdict
//!   peers/         queues that are shared with programs on Curator and kazoo
//!   admin          looking at a queue, its dead letters, its deletion
//!   known          a queue in a tree that is known already
//!   list           its items one by one; setting one aside
//!   item           Item: a claim, and how it ends
//!   take           which entry is claimed; waiting in line
//!   put            entries at the end of the queue
//!   due            what comes into the queue later, by the servers' clock
//!   request        Request: an item whose putter waits for an answer
//!   room           whether there is room for an item, and waiting for it
//!   long           values that are too long for one request
//!   sweep          what programs have left that died
//!   bound          Bound: how many items a queue may have
//!   options        PutOptions: later, by key, by priority
//!   reads          reads that go on over lost connections
//!   core           what the clones of a handle share; how a queue comes into being
//!   claim          the duty to give an item back
//!   commit         the writes of a handle, many in one transaction
//!   picks          which entry a consumer tries next: pure
//!   error          QueueError
//!   peer_names     how other libraries name items, and what is in them: pure
//!   layout         the znodes of our own and their names: pure
//!   answer         what comes of an item, for whoever has asked: pure
//!   clock          what a handle knows of the time
//!   lanes          the segments of what can be taken, by priority, and of what is due: pure
//!   marks          what an entry's name says of what it was put with: pure
//!   peer_layouts   QueueLayout: whose znodes
//!   delivery       AtLeastOnce, AtMostOnce
//! ```

mod admin;
mod answer;
mod bound;
mod claim;
mod clock;
mod commit;
mod core;
mod delivery;
mod due;
mod error;
mod handle;
mod item;
mod known;
mod lanes;
mod layout;
mod list;
mod long;
mod marks;
mod options;
mod peer_layouts;
mod peer_names;
mod peers;
mod picks;
mod put;
mod reads;
mod request;
mod room;
mod sweep;
mod take;
mod work;

pub use admin::{DeadLetter, QueueReport};
pub use bound::Bound;
pub use delivery::{AtLeastOnce, AtMostOnce, Delivery};
pub use error::QueueError;
pub use handle::{Queue, QueueBuilder};
pub use item::Item;
pub use list::{ItemState, QueuedItem};
pub use options::PutOptions;
pub use peer_layouts::QueueLayout;
pub use request::Request;
pub use work::Verdict;
