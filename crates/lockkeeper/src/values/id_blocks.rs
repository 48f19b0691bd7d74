//! Numbers that nobody else has, without a write for each.
//!
//! Guarantees  no number comes twice, from any program that takes its numbers from the same counter,
//!             as long as nobody lowers it.
//! Not         numbers without gaps, nor in the order of time: what is left of a block when a program
//!             ends is skipped, and so is a block of which it is unknown whether it was taken.
//! Znodes      those of the [`Counter`]: it is the highest number that was given to anybody.
//! Cost        1 write for each block, and nothing for the numbers in it.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let engine = lockkeeper_engine::Engine::builder().start().await?;
//! # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
//! use lockkeeper::{Counter, IdBlocks};
//!
//! let ids = IdBlocks::new(&Counter::new(&client, "/orders")?, 1_000);
//! assert_eq!(ids.next().await?, 1);
//! assert_eq!(ids.next().await?, 2);
//! # client.close().await;
//! # Ok(())
//! # }
//! ```

use std::num::NonZeroU32;
use std::sync::Arc;

use lockkeeper_client::Outcome;
use tokio::sync::Mutex;

use crate::values::counter::Counter;
use crate::values::error::ValueError;

/// Numbers that nobody else has, taken from a [`Counter`] in blocks. Cheap to clone; clones share the
/// block.
#[doc(alias = "CachedAtomicLong")]
#[doc(alias = "RIdGenerator")]
#[derive(Clone, Debug)]
pub struct IdBlocks {
    counter: Counter,
    size: NonZeroU32,
    block: Arc<Mutex<Block>>,
}

/// The numbers that are left.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    /// The last one that was handed out.
    last: i64,
    /// The last one that may be.
    end: i64,
}

impl IdBlocks {
    /// Takes `size` numbers at a time from a counter, at least 1; a size of 0 counts as 1. No I/O.
    pub fn new(counter: &Counter, size: u32) -> Self {
        let size = NonZeroU32::new(size).unwrap_or(NonZeroU32::MIN);
        Self { counter: counter.clone(), size, block: Arc::default() }
    }

    /// Gives the next number: the first one above the counter's value, and so on. Costs nothing, or
    /// one [add](Counter::add) when a block is used up.
    ///
    /// # Errors
    /// As [`Counter::add`], but that a block of which it is unknown whether it was taken is skipped,
    /// and another one taken, once.
    ///
    /// # Session loss
    /// The numbers of a block stay this program's.
    ///
    /// # Cancel safety
    /// Safe; a block that is being taken may be skipped.
    pub async fn next(&self) -> Result<i64, ValueError> {
        let mut block = self.block.lock().await;
        if block.last == block.end {
            let taken = match self.take().await {
                Err(error) if error.outcome() == Outcome::Unknown => self.take().await,
                taken => taken,
            };
            *block = taken?;
        }
        block.last += 1;
        Ok(block.last)
    }

    async fn take(&self) -> Result<Block, ValueError> {
        let added = self.counter.add(self.size.get().into()).await?;
        Ok(Block { last: added.before, end: added.after })
    }
}
