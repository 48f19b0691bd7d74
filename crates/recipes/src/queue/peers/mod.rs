//! Queues in the layouts of Curator and kazoo, shared with programs on these libraries.
//!
//! These layouts have no node that reports changes, no list of consumers, and no version that distinguishes takes.
//! So the directories of items and claims are watched directly. The name of a claim is used again: a write that
//! ends an item is valid only in the session that made the claim, and a node is deleted only if it has this claim's
//! data.
//!
//! ```text
//!   shared   putting, listing and looking
//!   take     how an item is claimed or taken out
//! ```

mod shared;
mod take;
