//! How many reads one request has. No I/O.
//!
//! A server answers many reads in one request (`multiRead`) much faster than one by one. But the length of an
//! answer is limited, and is known only when it arrives. So a batch is filled until its answer is expected to be
//! near a fraction of that limit, estimated from what is known of a node, or from the nodes read before. If an
//! answer is too long nevertheless, its reads are repeated in smaller batches, down to single reads. See
//! `docs/decisions/0027-reads-together.md`.

use std::collections::VecDeque;

use lockkeeper_client::Instant;

use crate::watch::view::{Read, ReadKind, View};

/// The maximum number of reads in a request.
const MAX_READS: usize = 32;

/// How many reads of unknown length the first requests have.
const FIRST_READS: usize = 8;

/// How many connections may be lost before the first batch is answered. A server that does not know
/// `multiRead` may close them.
const MAX_LOSSES: u32 = 2;

/// The size of a read in a request or its answer, without path and data, in bytes.
const READ_BYTES: usize = 96;

/// The expected size of a child's name in a listing, in bytes.
const NAME_BYTES: usize = 64;

/// Divides reads into requests.
#[derive(Debug)]
pub(crate) struct Batches {
    max_frame: usize,
    /// The maximum expected size of an answer, in bytes.
    room: usize,
    /// The expected size of a node whose data was never read: at least that of the last ones, in bytes.
    typical: usize,
    most: usize,
    /// How many connections were lost before a batch was answered; `None` after an answer.
    losses: Option<u32>,
    /// When the last loss was noticed.
    lost_at: Option<Instant>,
    /// Batches to send first, unchanged.
    parts: VecDeque<Vec<Read>>,
    /// The read that did not fit into the last batch.
    left_over: Option<Read>,
}

impl Batches {
    /// For a client whose answers are limited to this number of bytes.
    pub(crate) fn new(max_frame: usize) -> Self {
        let room = max_frame / 4;
        let typical = (room / FIRST_READS).saturating_sub(2 * READ_BYTES);
        let (losses, lost_at, parts, left_over) = (Some(0), None, VecDeque::new(), None);
        Self { max_frame, room, typical, most: MAX_READS, losses, lost_at, parts, left_over }
    }

    /// The maximum number of reads in the next request.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// The reads of the next request, if any.
    pub(crate) fn next(&mut self, view: &mut View) -> Option<Vec<Read>> {
        if let Some(part) = self.parts.pop_front() {
            return Some(part);
        }

        let (mut batch, mut taken) = (Vec::new(), 0);
        while batch.len() < self.most
            && let Some(read) = self.left_over.take().or_else(|| view.next_read())
        {
            taken += self.expected(&read, view);
            if taken > self.room && !batch.is_empty() {
                self.left_over = Some(read);
                break;
            }
            batch.push(read);
        }
        (!batch.is_empty()).then_some(batch)
    }

    /// The expected size of a read, in bytes.
    fn expected(&self, read: &Read, view: &View) -> usize {
        let stat = view.tree().get(&read.path).map(|node| node.stat());
        let content = match (read.question, stat) {
            (ReadKind::Data, Some(stat)) => usize::try_from(stat.data_length).unwrap_or(0),
            (ReadKind::Data, None) => self.typical,
            (ReadKind::List, Some(stat)) => {
                usize::try_from(stat.num_children).unwrap_or(0).saturating_mul(NAME_BYTES)
            }
            (ReadKind::List, None) => self.room,
        };
        READ_BYTES + read.path.len() + content
    }

    /// Records the size of a node's data. The typical size grows at once, and shrinks slowly.
    pub(crate) fn found(&mut self, len: usize) {
        self.typical = len.max(self.typical - self.typical.saturating_sub(len).div_ceil(8));
    }

    /// Records that a batch was answered.
    pub(crate) fn answered(&mut self) {
        self.losses = None;
    }

    /// Records that the connection was lost before a batch that was sent at `sent` was answered.
    pub(crate) fn lost(&mut self, sent: Instant, now: Instant) {
        // All batches in flight are lost with one connection.
        if self.lost_at.is_some_and(|lost_at| sent < lost_at) {
            return;
        }
        self.lost_at = Some(now);
        self.losses = self.losses.map(|losses| losses + 1);
        if self.losses == Some(MAX_LOSSES) {
            self.most = 1;
        }
    }

    /// Sends this read in its own request.
    pub(crate) fn alone(&mut self, read: Read) {
        self.parts.push_back(vec![read]);
    }

    /// Records that the answer to a batch was too long, and its size if it is known.
    pub(crate) fn too_long(&mut self, reads: &[Read], len: Option<usize>) {
        let mean = len.unwrap_or(self.max_frame) / reads.len().max(1);
        self.typical = self.typical.max(mean);
        let part = (self.room / mean.max(1)).clamp(1, (reads.len() / 2).max(1));
        self.parts.extend(reads.chunks(part).map(<[Read]>::to_vec));
    }

    /// Records that the server does not support batches. All later reads are single.
    pub(crate) fn give_up(&mut self, reads: Vec<Read>) {
        self.most = 1;
        reads.into_iter().for_each(|read| self.alone(read));
    }

    /// Drops all pending reads. The view will return them again.
    pub(crate) fn clear(&mut self) {
        self.parts.clear();
        self.left_over = None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lockkeeper_client::{Arrival, Rearms, Stat, Zxid};

    use super::*;
    use crate::watch::snapshot::CachedNode;
    use crate::watch::view::{ReadOutcome, Scope};

    fn unread() -> View {
        View::new(Scope { max_frame: 1 << 20, ..Scope::new("/r") })
    }

    /// A view that has to read the data of this many children.
    fn view(children: usize) -> View {
        let mut view = unread();
        let names = (0..children).map(|n| format!("{n:04}")).collect();
        let root = ReadOutcome::Data(CachedNode::new(b"", Stat::default()));
        for found in [root, ReadOutcome::Names(names)] {
            let read = view.next_read().unwrap();
            view.answer(&read, found, Arrival::START, Zxid(1)).unwrap();
        }
        view
    }

    fn sizes(batches: &mut Batches, view: &mut View) -> Vec<usize> {
        std::iter::from_fn(|| batches.next(view)).map(|reads| reads.len()).collect()
    }

    #[test]
    fn the_first_list_is_read_alone() {
        let mut batches = Batches::new(1 << 20);
        assert_eq!(sizes(&mut batches, &mut unread()), [1, 1]);
    }

    #[test]
    fn batches_are_as_large_as_what_was_found_is_short() {
        let mut batches = Batches::new(1 << 20);
        assert_eq!(sizes(&mut batches, &mut view(20)), [8, 8, 4], "lengths are not known");
        (0..100).for_each(|_| batches.found(100));
        assert_eq!(sizes(&mut batches, &mut view(70)), [32, 32, 6]);
        batches.found(100_000);
        assert_eq!(sizes(&mut batches, &mut view(5)), [2, 2, 1], "a long one counts at once");
        batches.found(1 << 20);
        assert_eq!(sizes(&mut batches, &mut view(3)), [1, 1, 1]);
    }

    #[test]
    fn what_is_known_to_be_long_is_read_alone() {
        let mut view = view(4);
        for len in [10, 200_000, 200_000, 10] {
            let read = view.next_read().unwrap();
            let stat = Stat { data_length: len, ..Stat::default() };
            let found = ReadOutcome::Data(CachedNode::new(b"not all of it", stat));
            view.answer(&read, found, Arrival::START, Zxid(1)).unwrap();
        }
        view.watched(Rearms::once(Arrival::START.next()));
        let mut batches = Batches::new(1 << 20);
        assert_eq!(sizes(&mut batches, &mut view), [3, 2], "root, 10, long; long, 10");
    }

    #[test]
    fn what_is_too_long_is_read_in_parts() {
        let mut batches = Batches::new(1 << 20);
        (0..100).for_each(|_| batches.found(100));
        let mut view = view(40);
        let reads = batches.next(&mut view).unwrap();
        batches.too_long(&reads, None);
        let parts = [(); 4].map(|()| batches.next(&mut view).unwrap());
        assert!(parts.iter().all(|part| part.len() == 8), "as the answer had a megabyte at least");
        assert_eq!(parts.concat(), reads);
        assert_eq!(sizes(&mut batches, &mut view), [7, 1], "and the rest is as long");
    }

    #[test]
    fn a_known_length_says_how_large_the_parts_are() {
        let mut batches = Batches::new(1 << 20);
        (0..100).for_each(|_| batches.found(100));
        let mut view = view(32);
        let reads = batches.next(&mut view).unwrap();
        batches.too_long(&reads, Some(32 << 20));
        assert_eq!(sizes(&mut batches, &mut view), [1; 32]);
        batches.too_long(&reads[..3], Some((1 << 20) + 1));
        assert_eq!(sizes(&mut batches, &mut view), [1; 3], "never the same again");
    }

    #[test]
    fn a_server_that_closes_twice_gets_no_more_batches() {
        let at = |seconds| Instant::from_start(Duration::from_secs(seconds));
        let (mut batches, mut view) = (Batches::new(1 << 20), view(12));
        batches.lost(at(1), at(3));
        batches.lost(at(2), at(3));
        assert_eq!(batches.next(&mut view).unwrap().len(), 8, "both on one connection");
        batches.lost(at(3), at(5));
        assert_eq!(sizes(&mut batches, &mut view), [1; 4]);

        let mut known = Batches::new(1 << 20);
        known.answered();
        (1..9).for_each(|n| known.lost(at(n), at(n)));
        assert_eq!(known.most(), MAX_READS);
    }

    #[test]
    fn a_server_without_batches_gets_single_reads() {
        let mut batches = Batches::new(1 << 20);
        let mut view = view(12);
        let reads = batches.next(&mut view).unwrap();
        batches.give_up(reads);
        assert_eq!(sizes(&mut batches, &mut view), [1; 12]);
    }
}
