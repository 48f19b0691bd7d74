//! The layout of ids. No I/O.

use crate::worker_ids::error::WorkerIdError;

/// The layout of an id, from its time, the number of its program and a sequence: 63 bits from the highest to the
/// lowest, so that ids are positive and ordered by time. All programs that use the same path must have the same
/// layout.
///
/// ```
/// use lockkeeper::IdLayout;
///
/// // Milliseconds since 2020, and up to 65,536 programs with 64 ids in a millisecond each.
/// let layout = IdLayout {
///     epoch_unix_ms: 1_577_836_800_000,
///     number_bits: 16,
///     sequence_bits: 6,
///     ..IdLayout::SNOWFLAKE
/// };
/// assert_eq!(layout.parts(7 << 22 | 3 << 6 | 5).number, 3);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IdLayout {
    /// The time 0, in milliseconds since 1970.
    pub epoch_unix_ms: u64,
    /// The width of the time, in bits; milliseconds since the epoch.
    pub time_bits: u32,
    /// The width of the number, in bits.
    pub number_bits: u32,
    /// The width of the sequence, in bits. It counts the ids of a number in a millisecond.
    pub sequence_bits: u32,
}

/// The layout of Snowflake.
impl Default for IdLayout {
    fn default() -> Self {
        Self::SNOWFLAKE
    }
}

/// The parts of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct IdParts {
    /// Its time, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The number of the program that minted it.
    pub number: u32,
    /// Its index among the ids of this number in the millisecond.
    pub sequence: u64,
}

impl IdLayout {
    /// Twitter's: 41 bits of time, which last until July 2080, 10 of the number and 12 of the sequence.
    pub const SNOWFLAKE: Self = Self {
        epoch_unix_ms: 1_288_834_974_657,
        time_bits: 41,
        number_bits: 10,
        sequence_bits: 12,
    };

    /// The parts of an id in this layout.
    pub fn parts(&self, id: i64) -> IdParts {
        let bits = id.cast_unsigned();
        let number = (bits >> self.sequence_bits) & ones(self.number_bits);
        let time = (bits >> (self.sequence_bits + self.number_bits)) & ones(self.time_bits);
        IdParts {
            unix_ms: self.epoch_unix_ms.saturating_add(time),
            number: u32::try_from(number).unwrap_or(u32::MAX),
            sequence: bits & ones(self.sequence_bits),
        }
    }

    /// Whether ids of this layout can have numbers up to this one.
    ///
    /// # Errors
    /// [`WorkerIdError::Widths`] and [`WorkerIdError::NumberTooLarge`].
    pub(super) fn check(&self, largest: u32) -> Result<(), WorkerIdError> {
        let (time, number, sequence) = (self.time_bits, self.number_bits, self.sequence_bits);
        // One by one, because a sum could overflow.
        let fits = [time, number, sequence].into_iter().all(|bits| bits < 63);
        if !fits || time == 0 || time + number + sequence != 63 {
            return Err(WorkerIdError::Widths { time, number, sequence });
        }
        match u64::from(largest) <= ones(number) {
            true => Ok(()),
            false => Err(WorkerIdError::NumberTooLarge { number: largest, bits: number }),
        }
    }

    /// The first millisecond since 1970 that is out of the layout's range.
    pub(super) fn end_unix_ms(&self) -> u64 {
        self.epoch_unix_ms.saturating_add(1 << self.time_bits)
    }

    /// The position of the first id of a millisecond among all ids of a number; times before the epoch count as the
    /// epoch.
    pub(super) fn place_of(&self, unix_ms: u64) -> u64 {
        let time = unix_ms.clamp(self.epoch_unix_ms, self.end_unix_ms()) - self.epoch_unix_ms;
        time << self.sequence_bits
    }

    /// The millisecond of the id at a position.
    pub(super) fn unix_ms_at(&self, place: u64) -> u64 {
        self.epoch_unix_ms.saturating_add(place >> self.sequence_bits)
    }

    /// The id of a number at a position, which is before the end of the layout.
    pub(super) fn id(&self, number: u32, place: u64) -> i64 {
        let time = place >> self.sequence_bits;
        let sequence = place & ones(self.sequence_bits);
        let above = time << self.number_bits | u64::from(number);
        (above << self.sequence_bits | sequence).cast_signed()
    }
}

fn ones(bits: u32) -> u64 {
    (1 << bits) - 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn layouts() -> impl Strategy<Value = IdLayout> {
        (1_u32..62, 0_u32..62, 0_u64..1 << 42).prop_filter_map(
            "63 bits",
            |(time, number, epoch)| {
                let sequence = 63_u32.checked_sub(time + number)?;
                Some(IdLayout {
                    epoch_unix_ms: epoch,
                    time_bits: time,
                    number_bits: number,
                    sequence_bits: sequence,
                })
            },
        )
    }

    proptest! {
        #[test]
        fn parts_are_what_an_id_was_made_of(
            layout in layouts(), time: u64, number: u32, sequence: u64
        ) {
            let time = time & ones(layout.time_bits);
            let number = number & u32::try_from(ones(layout.number_bits)).unwrap_or(u32::MAX);
            let sequence = sequence & ones(layout.sequence_bits);
            let id = layout.id(number, time << layout.sequence_bits | sequence);
            prop_assert!(id >= 0);
            let unix_ms = layout.epoch_unix_ms + time;
            prop_assert_eq!(layout.parts(id), IdParts { unix_ms, number, sequence });
            prop_assert_eq!(layout.place_of(unix_ms) >> layout.sequence_bits, time);
        }
    }

    /// The id of a tweet that was posted on 2022-06-28 at 16:07:40.105 UTC.
    #[test]
    fn the_default_is_snowflakes() {
        let parts = IdLayout::default().parts(1_541_815_603_606_036_480);
        assert_eq!((parts.unix_ms, parts.number, parts.sequence), (1_656_432_460_105, 378, 0));
    }

    #[test]
    fn widths_are_63_bits_and_numbers_fit() {
        let layout = IdLayout::SNOWFLAKE;
        assert_eq!(layout.check(1023), Ok(()));
        assert_eq!(
            layout.check(1024),
            Err(WorkerIdError::NumberTooLarge { number: 1024, bits: 10 })
        );
        for (time, number, sequence) in
            [(41, 10, 13), (41, 10, 11), (0, 31, 32), (u32::MAX, 1, 63), (63, 0, 0)]
        {
            let layout = IdLayout {
                time_bits: time,
                number_bits: number,
                sequence_bits: sequence,
                ..layout
            };
            assert_eq!(layout.check(0), Err(WorkerIdError::Widths { time, number, sequence }));
        }
    }
}
