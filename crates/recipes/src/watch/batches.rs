//! How many reads go into one request: pure.
//!
//! A server answers many reads in one request (`multiRead`) much faster than one by one. But an answer has a
//! longest length, and how long it is shows only when it is there. So a batch is as large as its answer is
//! expected to stay well below that: by what is known of a node, or by what others had. An answer
//! that is too long all the same is read again in parts, down to single reads. See
//! `docs/decisions/0027-reads-together.md`.

use std::collections::VecDeque;

use lockkeeper_client::Instant;

use crate::watch::view::{Question, Read, View};

/// The most reads of a request.
const MOST: usize = 32;

/// How many reads of unknown length fit into a request at first.
const AT_FIRST: usize = 8;

/// How often the connection may be lost before the first batch is answered. A server that does not know
/// batches may close it.
const TRIES: u32 = 2;

/// What a read takes in a request or its answer besides path and content, in bytes.
const OVERHEAD: usize = 96;

/// What a child is expected to take in a listing, in bytes.
const NAME: usize = 64;

/// Divides what is to be read into requests.
#[derive(Debug)]
pub(crate) struct Batches {
    max_frame: usize,
    /// How much an answer is expected to take at most, in bytes.
    room: usize,
    /// What a node has whose data was never read: no less than the last ones had, in bytes.
    typical: usize,
    most: usize,
    /// How often the connection was lost before a batch was answered; `None` once one was.
    losses: Option<u32>,
    /// When that was noticed last.
    lost_at: Option<Instant>,
    /// To be read before anything else, and as it is.
    parts: VecDeque<Vec<Read>>,
    /// Did not fit into the last batch.
    left_over: Option<Read>,
}

impl Batches {
    /// For a client that takes answers of so many bytes.
    pub(crate) fn new(max_frame: usize) -> Self {
        let room = max_frame / 4;
        let typical = (room / AT_FIRST).saturating_sub(2 * OVERHEAD);
        let (losses, lost_at, parts, left_over) = (Some(0), None, VecDeque::new(), None);
        Self { max_frame, room, typical, most: MOST, losses, lost_at, parts, left_over }
    }

    /// The most reads of the next request.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// The reads of the next request, if there is something to read.
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

    /// What a read is expected to take, in bytes.
    fn expected(&self, read: &Read, view: &View) -> usize {
        let stat = view.tree().get(&read.path).map(|node| node.stat());
        let content = match (read.question, stat) {
            (Question::Data, Some(stat)) => usize::try_from(stat.data_length).unwrap_or(0),
            (Question::Data, None) => self.typical,
            (Question::List, Some(stat)) => {
                usize::try_from(stat.num_children).unwrap_or(0).saturating_mul(NAME)
            }
            (Question::List, None) => self.room,
        };
        OVERHEAD + read.path.len() + content
    }

    /// A node turned out to have so many bytes of data. The typical length follows at once upwards, and
    /// slowly downwards.
    pub(crate) fn found(&mut self, len: usize) {
        self.typical = len.max(self.typical - self.typical.saturating_sub(len).div_ceil(8));
    }

    /// A batch was answered.
    pub(crate) fn answered(&mut self) {
        self.losses = None;
    }

    /// The connection was lost before a batch was answered that had been sent then.
    pub(crate) fn lost(&mut self, sent: Instant, now: Instant) {
        // With one connection, all that were on their way are lost.
        if self.lost_at.is_some_and(|lost_at| sent < lost_at) {
            return;
        }
        self.lost_at = Some(now);
        self.losses = self.losses.map(|losses| losses + 1);
        if self.losses == Some(TRIES) {
            self.most = 1;
        }
    }

    /// Has this read made by itself.
    pub(crate) fn alone(&mut self, read: Read) {
        self.parts.push_back(vec![read]);
    }

    /// The answer to a batch was too long: of so many bytes, if that is known.
    pub(crate) fn too_long(&mut self, reads: &[Read], len: Option<usize>) {
        let mean = len.unwrap_or(self.max_frame) / reads.len().max(1);
        self.typical = self.typical.max(mean);
        let part = (self.room / mean.max(1)).clamp(1, (reads.len() / 2).max(1));
        self.parts.extend(reads.chunks(part).map(<[Read]>::to_vec));
    }

    /// The server did not understand a batch. It gets no other one.
    pub(crate) fn give_up(&mut self, reads: Vec<Read>) {
        self.most = 1;
        reads.into_iter().for_each(|read| self.alone(read));
    }

    /// All that was taken from the view will be taken from it again.
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
    use crate::watch::view::{Found, Scope};

    fn unread() -> View {
        View::new(Scope { max_frame: 1 << 20, ..Scope::new("/r") })
    }

    /// A view that has to read the data of so many children.
    fn view(children: usize) -> View {
        let mut view = unread();
        let names = (0..children).map(|n| format!("{n:04}")).collect();
        let root = Found::Data(CachedNode::new(b"", Stat::default()));
        for found in [root, Found::Names(names)] {
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
            let found = Found::Data(CachedNode::new(b"not all of it", stat));
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
    fn who_closes_twice_at_batches_gets_no_more() {
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
        assert_eq!(known.most(), MOST);
    }

    #[test]
    fn who_does_not_understand_gets_single_reads() {
        let mut batches = Batches::new(1 << 20);
        let mut view = view(12);
        let reads = batches.next(&mut view).unwrap();
        batches.give_up(reads);
        assert_eq!(sizes(&mut batches, &mut view), [1; 12]);
    }
}
