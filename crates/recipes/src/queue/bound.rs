//! [`Bound`]: how many items a queue may have, and what a put does when it has them.

use std::sync::Mutex;

use lockkeeper_client::{Client, Instant};
use lockkeeper_locks::for_recipes::Line;

use crate::queue::layout::Places;

/// How many items a queue may have: waiting, worked on or to come later; dead letters do not count. All programs that
/// put must have the same one, as each sees to it by itself.
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
    /// Not many more than this. Each handle counts the items once a second at most, so several that put at the same
    /// time may put some too many. Costs 2 round trips (reads) a second, and some hundred bytes for each 256 items.
    pub fn about(limit: u32) -> Self {
        Self { limit, is_exact: false, waits: false }
    }

    /// Never more than this. Each item takes a numbered place, which is a node of its own: a put and an end have one
    /// step more. Costs a listing of all places now and then, and at each put when they are nearly all taken; so it
    /// is for up to some thousand.
    pub fn exactly(limit: u32) -> Self {
        Self { limit, is_exact: true, waits: false }
    }

    /// A put waits for room; one of more items than the limit fails all the same. Otherwise a put fails with [`QueueError::Full`](crate::QueueError::Full).
    pub fn waiting(self) -> Self {
        Self { waits: true, ..self }
    }
}

/// What a handle knows of the room in a queue.
#[derive(Debug)]
pub(super) struct Room {
    /// Those that wait for it.
    pub(super) line: Line,
    /// How many items there are, and when they were counted.
    pub(super) counted: Mutex<Option<(usize, Instant)>>,
    /// Places that may be free.
    pub(super) free: Mutex<Vec<u32>>,
}

impl Room {
    pub(super) fn new(client: &Client, places: &Places) -> Self {
        let line = Line::new(client, places.putters.clone());
        Self { line, counted: Mutex::default(), free: Mutex::default() }
    }
}
