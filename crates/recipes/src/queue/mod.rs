//! Queues: items that some programs put, and that one consumer at a time works on.
//!
//! ```text
//!   handle         Queue: putting and taking; its options
//!   work           Queue::work: a handler for each item; Verdict
//!   peers/         queues that are shared with programs on Curator and kazoo
//!   admin          inspecting a queue, its dead letters, its deletion
//!   known          a queue in a tree that is known already
//!   list           listing its items; burying one
//!   item           Item: a claim, and how it ends
//!   take           which entry is claimed; waiting in line
//!   put            entries at the end of the queue
//!   due            delayed items, by the servers' clock
//!   request        Request: an item whose putter waits for an answer
//!   room           whether a queue has room for an item, and waiting for it
//!   long           values that are too long for one request
//!   sweep          deletes remains of programs that died
//!   bound          Bound: the maximum number of items
//!   options        PutOptions: delay, key, priority
//!   reads          reads that continue over lost connections
//!   core           state shared by the clones of a handle; the creation of a queue
//!   claim          the claim of an item, which gives it back when dropped
//!   commit         combines the writes of a handle into transactions
//!   picks          which entry a consumer tries next: pure
//!   error          QueueError
//!   peer_names     names and data of items in other libraries' queues: pure
//!   layout         the znodes of our own layout and their names: pure
//!   answer         results of items, for their requesters: pure
//!   clock          an estimate of the servers' time
//!   lanes          the segments of ready items, by priority, and of delayed ones: pure
//!   marks          the options of an item, in the name of its entry: pure
//!   peer_layouts   QueueLayout: the supported layouts
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
pub(crate) use known::KnownConsumer;
pub use list::{ItemState, QueuedItem};
pub use options::PutOptions;
pub use peer_layouts::QueueLayout;
pub use request::Request;
pub use work::Verdict;
