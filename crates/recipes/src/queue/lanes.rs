//! The parts of a queue that have entries, and their segments. No I/O.

use std::fmt;

/// The digits that servers append to the name of a sequential node.
pub(super) const DIGITS: usize = 10;

/// One minute, in milliseconds.
pub(super) const MINUTE_MS: u64 = 60_000;

/// The part of the queue that an entry is in. Sorted in the order in which they are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Lane {
    /// Items that can be taken; lower priorities first.
    Ready(i32),
    /// Items that are due in one minute, counted since 1970: they are moved to a ready lane then.
    Due(u32),
}

/// The lane of items that were put without options.
pub(super) const PLAIN: Lane = Lane::Ready(0);

impl Lane {
    /// The lane of items that are due then, in milliseconds since 1970.
    pub(super) fn due_at(unix_ms: u64) -> Self {
        Self::Due(u32::try_from(unix_ms / MINUTE_MS).unwrap_or(u32::MAX))
    }

    /// When the first of its entries may be due, in milliseconds since 1970; `None` for a ready lane.
    pub(super) fn due_from(self) -> Option<u64> {
        match self {
            Self::Ready(_) => None,
            Self::Due(minute) => Some(u64::from(minute) * MINUTE_MS),
        }
    }
}

/// A directory of some hundred entries. Each lane has its own segments; the last one gets new entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Segment {
    pub(super) lane: Lane,
    pub(super) number: u32,
}

impl Segment {
    /// The first one of a lane.
    pub(super) fn first_of(lane: Lane) -> Self {
        Self { lane, number: 0 }
    }

    /// Whether its items can be taken.
    pub(super) fn is_ready(self) -> bool {
        self.lane.due_from().is_none()
    }

    pub(super) fn next(self) -> Self {
        Self { number: self.number + 1, ..self }
    }

    /// Parses the name of a segment; `None` for other names.
    pub(super) fn read(name: &str) -> Option<Self> {
        let (lane, number) = match name.rsplit_once('.') {
            None => (PLAIN, name),
            Some((lane, number)) => {
                let lane = match lane.split_at_checked(1)? {
                    ("p", priority) => Lane::Ready(priority.parse().ok()?),
                    ("t", minute) => Lane::Due(minute.parse().ok()?),
                    _ => return None,
                };
                (lane, number)
            }
        };
        let number = (number.len() == DIGITS).then(|| number.parse().ok()).flatten()?;
        let segment = Self { lane, number };
        (segment.to_string() == name).then_some(segment)
    }
}

/// Its name.
impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lane {
            PLAIN => {}
            Lane::Ready(priority) => write!(f, "p{priority}.")?,
            Lane::Due(minute) => write!(f, "t{minute}.")?,
        }
        write!(f, "{:010}", self.number)
    }
}

/// The segments among these names, in the order in which they are listed.
pub(super) fn read_segments(names: &[String]) -> Vec<Segment> {
    let mut segments: Vec<_> = names.iter().filter_map(|name| Segment::read(name)).collect();
    segments.sort_unstable();
    segments
}

/// The last segment of a lane, in a sorted list.
pub(super) fn last_of(segments: &[Segment], lane: Lane) -> Option<Segment> {
    segments.iter().copied().rfind(|segment| segment.lane == lane)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_listed_by_priority_and_what_is_due_last() {
        let names =
            ["t29387462.0000000000", "0000000012", "p3.0000000000", "0000000002", "p-7.0000000001"];
        let read = read_segments(&names.map(str::to_owned));
        let order: Vec<_> = read.iter().map(Segment::to_string).collect();
        let expected = [names[4], names[3], names[1], names[2], names[0]];
        assert_eq!(order, expected);
        assert_eq!(last_of(&read, PLAIN), Some(Segment { lane: PLAIN, number: 12 }));
        assert_eq!(last_of(&read, Lane::Ready(1)), None);
    }

    #[test]
    fn only_what_a_queue_has_named_is_a_segment() {
        for foreign in ["12", "p.0000000000", "p0.0000000000", "p+1.0000000000", "q1.0000000000"] {
            assert_eq!(Segment::read(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn what_is_due_is_in_the_lane_of_its_minute() {
        let lane = Lane::due_at(61_500);
        assert_eq!((lane, lane.due_from()), (Lane::Due(1), Some(60_000)));
        assert_eq!(PLAIN.due_from(), None);
    }
}
