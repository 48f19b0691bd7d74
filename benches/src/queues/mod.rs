//! Items that are put, taken and recorded as done.
//!
//! As many are on their way at any time in each system: whoever puts one waits until it is done. So a consumer
//! always has something to take, and what is measured is the work that items make, and not the waiting for them.

mod bare;
pub(crate) mod ours;
mod postgres;
mod redis;

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use bytes::{BufMut, Bytes, BytesMut};
use tokio::sync::Notify;
use tokio::task::JoinSet;

pub(crate) use self::bare::measure as measure_bare;
pub(crate) use self::ours::measure as measure_ours;
pub(crate) use self::postgres::measure as measure_postgres;
pub(crate) use self::redis::measure as measure_redis;
use crate::measure::{Measured, Plan, repeat};

/// How many items are on their way.
pub(crate) const ON_THEIR_WAY: usize = 256;

/// How long the content of an item is, in bytes.
const CONTENT: usize = 100;

/// Those that consume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Consumers {
    /// How many there are, each with a connection of its own.
    pub(crate) count: usize,
    pub(crate) batches: bool,
}

impl Consumers {
    /// How many items each of them works on at once: if in batches, half of those on their way are worked on, and
    /// the others wait.
    fn at_once(self) -> usize {
        if self.batches { ON_THEIR_WAY / 2 / self.count } else { 1 }
    }
}

/// The items on their way, by the number that each content begins with.
#[derive(Clone)]
struct Items(Arc<[Notify]>);

impl Items {
    fn new() -> Self {
        Self((0..ON_THEIR_WAY).map(|_| Notify::new()).collect())
    }

    /// The item of this content is recorded as done.
    fn done(&self, content: &[u8]) -> Result<()> {
        let number = content.first_chunk().map(|number| u32::from_be_bytes(*number));
        let item = number.and_then(|number| self.0.get(usize::try_from(number).ok()?));
        item.with_context(|| format!("nobody has put {content:?}"))?.notify_one();
        Ok(())
    }
}

/// What the item of this number contains.
fn content(number: usize) -> Bytes {
    let mut content = BytesMut::with_capacity(CONTENT);
    content.put_u32(u32::try_from(number).expect("few items"));
    content.resize(CONTENT, 0x55);
    content.freeze()
}

/// Puts items again and again, each when the one before is done. The consumers end with it.
async fn put_until_done<P, F>(
    items: &Items,
    mut consumers: JoinSet<Result<()>>,
    put: P,
    plan: Plan,
) -> Result<Measured>
where
    P: Fn(Bytes) -> F + Clone + Send + 'static,
    F: Future<Output = Result<()>> + Send + 'static,
{
    let operations = (0..ON_THEIR_WAY).map(|number| {
        let (put, items, content) = (put.clone(), items.clone(), content(number));
        move || {
            let (putting, items) = (put(content.clone()), items.clone());
            async move {
                putting.await?;
                items.0[number].notified().await;
                Ok(())
            }
        }
    });
    tokio::select! {
        measured = repeat(operations.collect(), plan) => measured,
        Some(ended) = consumers.join_next() => {
            ended??;
            bail!("a consumer has ended")
        }
    }
}
