//! Values that programs share: typed values, counters, unique numbers, notifications.
//!
//! One file for each recipe. Its type documents guarantees and their limits, the znodes, the cost, and an example.

pub(crate) mod changes;
mod codec;
pub(crate) mod counter;
pub(crate) mod counter_layout;
mod draft;
mod editions;
pub(crate) mod error;
mod finite;
mod follower;
pub(crate) mod id_blocks;
mod last_good;
mod manifest;
pub(crate) mod notify;
pub(crate) mod place;
pub(crate) mod publication;
mod revision;
pub(crate) mod shared;
mod shown;

pub use changes::{Editions, ValueChanges};
pub use codec::{Codec, CodecError, Json, Raw};
pub use counter::{Added, Counter, CounterBuilder};
pub use counter_layout::CounterLayout;
pub use error::{ValueError, ValuePathError};
pub use follower::ValueChange;
pub use id_blocks::IdBlocks;
pub use last_good::LastGoodError;
pub use notify::Notify;
pub use publication::{Publication, PublicationBuilder, PublishedEdition};
pub use revision::{Revision, Versioned};
pub use shared::{Shared, SharedBuilder, Swap};
