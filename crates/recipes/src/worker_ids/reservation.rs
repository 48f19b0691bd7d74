//! The reservation of a number: up to when its ids may have been minted. No I/O.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::wall_clock::millis;
use crate::worker_ids::id_layout::IdLayout;

/// How far ahead of the servers' time a program reserves. It writes again when half of that is left.
pub(super) const RESERVE_AHEAD: Duration = Duration::from_secs(10);

/// How far beyond the last id a program reserves whose ids are ahead of the servers' time.
pub(super) const RESERVE_STEP: Duration = Duration::from_secs(1);

const FORMAT: u32 = 1;

/// The data of a reservation. A program writes a reservation only over one that it has read, so that the time
/// between the two is its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReservationData {
    format: u32,
    /// The first millisecond since 1970 in which no id was minted.
    pub(super) until_unix_ms: u64,
    /// Its writer, which is unique.
    by: String,
}

impl ReservationData {
    pub(super) fn new(until_unix_ms: u64, by: &str) -> Self {
        Self { format: FORMAT, until_unix_ms, by: by.to_owned() }
    }

    /// Parses the data of a node; `None` if this version cannot read it as a reservation.
    pub(super) fn read(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok().filter(|read: &Self| read.format == FORMAT)
    }

    pub(super) fn is_by(&self, by: &str) -> bool {
        self.by == by
    }

    pub(super) fn data(&self) -> Bytes {
        serde_json::to_vec(self).map_or_else(|_| Bytes::new(), Bytes::from)
    }
}

/// How far a program reserves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Horizon {
    layout_end: u64,
    max_ahead: u64,
}

impl Horizon {
    pub(super) fn new(layout: &IdLayout, max_ahead: Duration) -> Self {
        Self { layout_end: layout.end_unix_ms(), max_ahead: millis(max_ahead) }
    }

    /// The new end of the reservation at `now`, if the next id has the time `next` and the current reservation ends
    /// at `until`.
    pub(super) fn reach(self, now: u64, next: u64, until: u64) -> u64 {
        let wanted = (now + millis(RESERVE_AHEAD)).max(next.saturating_add(millis(RESERVE_STEP)));
        wanted.min(now + self.max_ahead).min(self.layout_end).max(until)
    }

    /// Whether a reservation is so far ahead that a clock must have been wrong.
    pub(super) fn is_beyond(self, now: u64, until: u64) -> bool {
        until > now + self.max_ahead
    }
}

/// How long after `now` the next reservation must be written.
pub(super) fn lasts(now: u64, until: u64) -> Duration {
    Duration::from_millis(until.saturating_sub(now + millis(RESERVE_AHEAD / 2)))
}

/// Whether the ids are so close to the end of the reservation that the next one must be written.
pub(super) fn is_low(next: u64, until: u64) -> bool {
    next.saturating_add(millis(RESERVE_STEP / 2)) > until
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let reservation = ReservationData::new(1_700_000_000_000, "a");
        assert_eq!(ReservationData::read(&reservation.data()), Some(reservation.clone()));
        let later = ReservationData { format: 2, ..reservation };
        for foreign in [later.data(), Bytes::new(), Bytes::from_static(b"17")] {
            assert_eq!(ReservationData::read(&foreign), None);
        }
    }

    #[test]
    fn a_reservation_goes_ahead_but_not_without_bound() {
        let layout = IdLayout::SNOWFLAKE;
        let horizon = Horizon::new(&layout, Duration::from_secs(60));
        let now = layout.epoch_unix_ms + 1_000_000;
        assert_eq!(horizon.reach(now, now, now), now + 10_000);
        // A successor starts ahead of the time; only a little is added, so that many successors stay within bounds.
        assert_eq!(horizon.reach(now, now + 9_900, now + 9_900), now + 10_900);
        assert_eq!(horizon.reach(now, now + 59_900, now + 59_900), now + 60_000);
        // The reservation never goes back, even if the servers' clock does.
        assert_eq!(horizon.reach(now, now + 1, now + 3_600_000), now + 3_600_000);
        assert!(horizon.is_beyond(now, now + 60_001) && !horizon.is_beyond(now, now + 60_000));

        let end = layout.end_unix_ms();
        assert_eq!(horizon.reach(end - 1, end - 1, end - 1), end);
    }

    #[test]
    fn the_next_one_is_written_at_half_of_it() {
        let now = 1_000_000;
        assert_eq!(lasts(now, now + 10_000), Duration::from_secs(5));
        assert_eq!(lasts(now, now + 4_000), Duration::ZERO);
        assert!(is_low(now + 600, now + 1_000) && !is_low(now + 500, now + 1_000));
    }
}
