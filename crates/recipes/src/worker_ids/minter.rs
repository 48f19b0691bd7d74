//! Ids within a reservation. No I/O.

use crate::worker_ids::id_layout::IdLayout;

/// Mints the ids of one number, starting from a given time. Time is a position among all ids of the number, and no
/// position is used twice; a clock only moves it forward.
#[derive(Clone, Debug)]
pub(super) struct Minter {
    layout: IdLayout,
    number: u32,
    /// The next position.
    next: u64,
    /// The first position that is not reserved.
    end: u64,
    /// The same in milliseconds since 1970.
    until_unix_ms: u64,
}

impl Minter {
    /// A minter that may use the milliseconds from `from` until before `until`, both since 1970.
    pub(super) fn new(layout: IdLayout, number: u32, from: u64, until: u64) -> Self {
        let (next, end) = (layout.place_of(from), layout.place_of(until));
        Self { layout, number, next, end, until_unix_ms: until }
    }

    /// The next id, with the time `unix_ms` or a later one; `None` if the reservation is used up. When the ids of a
    /// millisecond are used up, it uses those of the next one.
    pub(super) fn mint(&mut self, unix_ms: u64) -> Option<i64> {
        let place = self.next.max(self.layout.place_of(unix_ms));
        if place >= self.end {
            return None;
        }
        self.next = place + 1;
        Some(self.layout.id(self.number, place))
    }

    /// Extends the reservation until before `until`.
    pub(super) fn extend(&mut self, until: u64) {
        self.until_unix_ms = self.until_unix_ms.max(until);
        self.end = self.layout.place_of(self.until_unix_ms);
    }

    /// The millisecond of the next id, if no clock moves it forward.
    pub(super) fn next_unix_ms(&self) -> u64 {
        self.layout.unix_ms_at(self.next)
    }

    /// The first millisecond that is not reserved.
    pub(super) fn until_unix_ms(&self) -> u64 {
        self.until_unix_ms
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    const EPOCH: u64 = IdLayout::SNOWFLAKE.epoch_unix_ms;

    #[test]
    fn a_millisecond_that_is_used_up_is_followed_by_the_next() {
        let layout = IdLayout { sequence_bits: 2, number_bits: 20, ..IdLayout::SNOWFLAKE };
        let mut minter = Minter::new(layout, 7, EPOCH + 10, EPOCH + 12);
        let minted: Vec<_> = (0..9).map(|_| minter.mint(EPOCH)).collect();
        let parts = minted.iter().flatten().map(|id| layout.parts(*id));
        let parts: Vec<_> = parts.map(|parts| (parts.unix_ms - EPOCH, parts.sequence)).collect();
        let of = |ms| (0..4).map(move |sequence| (ms, sequence));
        assert_eq!(parts, of(10).chain(of(11)).collect::<Vec<_>>());
        assert_eq!(minted[8], None, "the reservation is used up");
        minter.extend(EPOCH + 13);
        assert!(minter.mint(EPOCH).is_some());
        minter.extend(EPOCH + 1);
        assert_eq!(minter.until_unix_ms(), EPOCH + 13);
    }

    proptest! {
        /// Programs that have a number one after the other, with clocks that jump. Each starts where the
        /// reservation of the previous one ends, and the previous one continues to mint from its reservation.
        #[test]
        fn no_id_comes_twice_whatever_the_clocks_show(
            clocks in prop::collection::vec((0_u64..400, 0_usize..3, 0_u64..9), 1..200)
        ) {
            let layout = IdLayout { sequence_bits: 1, number_bits: 21, ..IdLayout::SNOWFLAKE };
            let mut written = EPOCH;
            let mut minters = Vec::new();
            let mut seen = HashSet::new();
            for (clock, which, act) in clocks {
                let clock = EPOCH + clock;
                if minters.is_empty() || act == 0 {
                    let from = written;
                    written = clock.max(written) + 5;
                    minters.push((Minter::new(layout, 7, from, written), written));
                } else if act == 1 && let Some((minter, last)) = minters.last_mut() {
                    // Only the last writer writes again.
                    written = clock.max(*last) + 5;
                    *last = written;
                    minter.extend(written);
                }
                let newest = minters.len() - 1;
                let (minter, _) = &mut minters[newest.saturating_sub(which)];
                let mut last = None;
                for _ in 0..3 {
                    let Some(id) = minter.mint(clock) else { break };
                    prop_assert!(seen.insert(id), "{:?} twice", layout.parts(id));
                    prop_assert!(last.is_none_or(|last| last < id));
                    last = Some(id);
                }
            }
        }
    }
}
