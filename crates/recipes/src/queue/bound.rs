//! [`Bound`]: the maximum number of items in a queue, and what a put does when it is reached.

use std::sync::Mutex;

use lockkeeper_client::{Client, Instant};
use lockkeeper_locks::for_recipes::TurnQueue;

use crate::queue::layout::QueueNodes;

/// The maximum number of items in a queue: waiting, worked on or delayed; dead letters do not count. All programs
/// that put must use the same bound, because each applies its own.
///
/// ```
/// # use lockkeeper::Bound;
/// let bound = Bound::about(10_000).waiting();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Bound {
    pub(super) limit: u32,
    pub(super) is_exact: bool,
    pub(super) waits: bool,
}

impl Bound {
    /// An approximate bound. Each handle counts the items once a second at most, so that several that put at the
    /// same time may exceed it. Costs 2 round trips (reads) a second, and some hundred bytes for each 256 items.
    pub fn about(limit: u32) -> Self {
        Self { limit, is_exact: false, waits: false }
    }

    /// An exact bound. Each item takes a numbered place, which is a node of its own: a put and an end have one step
    /// more. Costs a listing of all places from time to time, and at each put when nearly all are taken; so it is
    /// for up to some thousand items.
    pub fn exactly(limit: u32) -> Self {
        Self { limit, is_exact: true, waits: false }
    }

    /// A put waits for room; a put of more items than the limit still fails. Otherwise a put fails with
    /// [`QueueError::Full`](crate::QueueError::Full).
    pub fn waiting(self) -> Self {
        Self { waits: true, ..self }
    }
}

/// What a handle knows of the room in a queue.
#[derive(Debug)]
pub(super) struct Room {
    /// The puts that wait for room.
    pub(super) line: TurnQueue,
    /// The number of items, and when they were counted.
    pub(super) counted: Mutex<Option<(usize, Instant)>>,
    /// Places that may be free.
    pub(super) free: Mutex<Vec<u32>>,
}

impl Room {
    pub(super) fn new(client: &Client, places: &QueueNodes) -> Self {
        let line = TurnQueue::new(client, places.putters.clone());
        Self { line, counted: Mutex::default(), free: Mutex::default() }
    }
}
