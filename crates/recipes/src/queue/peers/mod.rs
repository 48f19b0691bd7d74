//! Queues in the layouts of Curator and kazoo, which programs on these libraries share.
//!
//! There is no node that tells of a change, no list of consumers and no version that tells takes apart. So the
//! directories of items and claims are watched themselves. A claim has a name that is used again: what ends an
//! item goes only with the session that made the claim, and a node is deleted only if it has this claim's data.
//!
//! ```text
//!   shared   putting, listing and looking
//!   take     how an item is claimed or taken out
//! ```

mod shared;
mod take;
