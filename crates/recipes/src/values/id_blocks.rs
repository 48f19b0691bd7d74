//! [`IdBlocks`]: unique numbers, without a write for each.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

use lockkeeper_client::Outcome;

use crate::exact::shared_write::{SharedWrite, WriteTurn, lock};
use crate::values::counter::{Added, Counter};
use crate::values::error::ValueError;

/// Unique numbers, taken from a [`Counter`] in blocks, without a write for each. Cheap to
/// clone; clones share the block.
///
/// # Guarantees
///
/// No number is returned twice, in any program that takes its numbers from the same counter, unless the
/// counter is lowered.
///
/// # Not guaranteed
///
/// Numbers have gaps, and are not ordered by time. The rest of a block is skipped when a program ends,
/// and so is a block of which it is unknown whether it was taken.
///
/// # Znodes
///
/// Those of the [`Counter`]: its value is the highest number that was taken.
///
/// # Cost
///
/// - A block costs 1 write, and the numbers in it cost nothing.
/// - Tasks that wait at the same time share 1 write for all blocks that they need.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use lockkeeper::{Counter, IdBlocks};
///
/// let ids = IdBlocks::new(&Counter::new(&client, "/orders")?, 1_000);
/// assert_eq!(ids.next().await?, 1);
/// assert_eq!(ids.next().await?, 2);
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "CachedAtomicLong")]
#[doc(alias = "RIdGenerator")]
#[derive(Clone, Debug)]
pub struct IdBlocks {
    source: BlockSource,
    stock: SpareBlocks,
    refill: Refill,
}

/// The source of blocks.
#[derive(Clone, Debug)]
struct BlockSource {
    counter: Counter,
    size: NonZeroU32,
}

/// Numbers for later calls: the rest of a block, or of several if work under a lock took one.
#[derive(Clone, Debug, Default)]
struct SpareBlocks(Arc<Mutex<VecDeque<Block>>>);

#[derive(Clone, Copy, Debug)]
struct Block {
    /// The last number that was returned.
    last: i64,
    /// The last number of the block.
    end: i64,
}

/// The block that is being taken for all waiting calls.
type Refill = SharedWrite<(), Result<i64, ValueError>, ()>;

impl IdBlocks {
    /// Takes `size` numbers at a time from a counter, at least 1; a size of 0 counts as 1. No I/O.
    pub fn new(counter: &Counter, size: u32) -> Self {
        let size = NonZeroU32::new(size).unwrap_or(NonZeroU32::MIN);
        let source = BlockSource { counter: counter.clone(), size };
        Self { source, stock: SpareBlocks::default(), refill: Refill::new() }
    }

    /// Returns the next number; the first one is the counter's value plus one. Costs nothing, or
    /// one [add](Counter::add) when a block is used up.
    ///
    /// # Errors
    /// As [`Counter::add`]. If it is unknown whether a block was taken, it is skipped,
    /// and another one is taken, once.
    ///
    /// # Session loss
    /// The numbers of a block stay reserved for this program.
    ///
    /// # Cancel safety
    /// Safe; a number may be skipped, and so may a block that is being taken. Other tasks do not wait
    /// for a call that is not polled.
    pub async fn next(&self) -> Result<i64, ValueError> {
        if let Some(number) = self.stock.next() {
            return Ok(number);
        }
        let counter = &self.source.counter;
        // Other tasks must not wait for work under a lock, which may be suspended.
        if !counter.is_bound() {
            let (source, stock) = (self.source.clone(), self.stock.clone());
            let give = |turn| give(source, stock, turn);
            if let Some(number) = self.refill.ask(counter.client(), (), give).await {
                return number;
            }
            // A block that may have been taken is skipped.
        }
        Ok(self.stock.first_of(self.source.take(1).await?))
    }
}

/// Returns a number to each waiting call.
async fn give(
    source: BlockSource,
    stock: SpareBlocks,
    mut turn: WriteTurn<(), Result<i64, ValueError>, ()>,
) {
    while let Some(calls) = turn.next() {
        let (mut failed, all) = (None, calls.len());
        for (given, call) in calls.into_iter().enumerate() {
            call.answer(match (stock.next(), &failed) {
                (Some(number), _) => Ok(number),
                (None, Some(error)) => Err(ValueError::clone(error)),
                (None, None) => match source.take(all - given).await {
                    Ok(block) => Ok(stock.first_of(block)),
                    Err(error) => Err(failed.insert(error).clone()),
                },
            });
        }
    }
}

impl BlockSource {
    /// Takes as many blocks as this many numbers need, or one if that exceeds the range.
    async fn take(&self, numbers: usize) -> Result<Block, ValueError> {
        let size = i64::from(self.size.get());
        let numbers = i64::try_from(numbers).unwrap_or(i64::MAX);
        let all = size.saturating_mul(numbers.saturating_sub(1) / size + 1);
        let added = match self.add(all).await {
            Err(ValueError::Overflow { .. }) if all > size => self.add(size).await?,
            added => added?,
        };
        Ok(Block { last: added.before, end: added.after })
    }

    async fn add(&self, numbers: i64) -> Result<Added, ValueError> {
        match self.counter.add(numbers).await {
            Err(error) if error.outcome() == Outcome::Unknown => self.counter.add(numbers).await,
            added => added,
        }
    }
}

impl SpareBlocks {
    fn next(&self) -> Option<i64> {
        let mut blocks = lock(&self.0);
        let block = blocks.front_mut()?;
        block.last += 1;
        let number = block.last;
        if block.last == block.end {
            blocks.pop_front();
        }
        Some(number)
    }

    /// The first number of a block; the others are kept for later calls.
    fn first_of(&self, block: Block) -> i64 {
        let number = block.last + 1;
        if number < block.end {
            lock(&self.0).push_back(Block { last: number, ..block });
        }
        number
    }
}
