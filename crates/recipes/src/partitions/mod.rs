//! A set of items that the members of a group share.
//!
//! ```text
//!   handle       Partitions: joining; PartitionMember: what a member gets
//!   driver       the task that acts for a member
//!   board        what a member's handle and its task share
//!   assignment   Assignment: an item that this member has
//!   take         making the nodes of items, many in one transaction; watching them
//!   command      what the task is asked to do
//!   item_node    the duty to delete the node of an item
//!   error        PartitionsError
//!   book         how each item stands, and what is to be done: pure
//!   shares       which member an item belongs to: pure
//!   layout       the znodes and what is in them: pure
//! ```

mod assignment;
mod board;
mod book;
mod command;
mod driver;
mod error;
mod handle;
mod item_node;
mod layout;
mod shares;
mod take;

pub use assignment::Assignment;
pub use error::{PartitionsError, TakeError};
pub use handle::{PartitionMember, Partitions, PartitionsBuilder, WaitedItem};
