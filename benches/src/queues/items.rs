//! What all systems have: the items on their way, and those that consume them.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use bytes::{BufMut, Bytes, BytesMut};
use tokio::sync::Notify;
use tokio::task::JoinSet;

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
    pub(super) fn at_once(self) -> usize {
        if self.batches { ON_THEIR_WAY / 2 / self.count } else { 1 }
    }
}

/// The items on their way, by the number that each content begins with.
#[derive(Clone)]
pub(super) struct Items(Arc<[Notify]>);

impl Items {
    pub(super) fn new() -> Self {
        Self((0..ON_THEIR_WAY).map(|_| Notify::new()).collect())
    }

    /// The item of this content is recorded as done.
    pub(super) fn done(&self, content: &[u8]) -> Result<()> {
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
pub(super) async fn put_until_done<P, F>(
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
