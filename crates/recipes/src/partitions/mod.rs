//! A set of items that the members of a group share.
//!
//! ```text
//!   handle       Partitions: joining; PartitionMember: a member's assignments
//!   driver       the task of a member
//!   board        state shared by a member's handle and its task
//!   assignment   Assignment: an item that this member holds
//!   take         creating the nodes of items, many in one transaction; watching them
//!   command      commands for the task
//!   item_node    the node of an item, deleted when dropped
//!   error        PartitionsError
//!   book         the state of each item, and the resulting actions: pure
//!   shares       which member an item belongs to: pure
//!   layout       the znodes and their data: pure
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
