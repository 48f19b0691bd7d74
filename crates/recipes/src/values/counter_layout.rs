//! Layouts of a counter's number in its node.

use bytes::Bytes;

use crate::values::shown::shown;

/// The layout of a counter's number. In all of them, a missing node and a node without data are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CounterLayout {
    /// Eight bytes, big-endian: Curator's `DistributedAtomicLong`.
    #[default]
    #[doc(alias = "DistributedAtomicLong")]
    CuratorLong,
    /// Four bytes, big-endian: Curator's `DistributedAtomicInteger` and `SharedCount`, and
    /// kazoo's `Counter` with `support_curator=True`.
    #[doc(alias = "DistributedAtomicInteger")]
    #[doc(alias = "SharedCount")]
    CuratorInt,
    /// Decimal digits: kazoo's `Counter`. Only integers from -2^63 to 2^63 - 1; kazoo can write others.
    KazooAscii,
}

impl CounterLayout {
    /// Parses the number. The error describes the data.
    pub(super) fn decode(self, data: &[u8]) -> Result<i64, String> {
        if data.is_empty() {
            return Ok(0);
        }
        let number = match self {
            Self::CuratorLong => data.try_into().ok().map(i64::from_be_bytes),
            Self::CuratorInt => data.try_into().ok().map(|four| i32::from_be_bytes(four).into()),
            Self::KazooAscii => str::from_utf8(data).ok().and_then(|text| text.parse().ok()),
        };
        number.ok_or_else(|| shown(data))
    }

    /// The data for a number; `None` if it is out of the layout's range.
    pub(super) fn encode(self, number: i64) -> Option<Bytes> {
        Some(match self {
            Self::CuratorLong => Bytes::copy_from_slice(&number.to_be_bytes()),
            Self::CuratorInt => Bytes::copy_from_slice(&i32::try_from(number).ok()?.to_be_bytes()),
            Self::KazooAscii => Bytes::from(number.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [CounterLayout; 3] =
        [CounterLayout::CuratorLong, CounterLayout::CuratorInt, CounterLayout::KazooAscii];

    #[test]
    fn every_number_comes_back() {
        for layout in ALL {
            assert_eq!(layout.decode(b""), Ok(0));
            for number in [0, 1, -1, 255, 65_536, i64::from(i32::MAX), i64::from(i32::MIN)] {
                let data = layout.encode(number).expect("it is in range");
                assert_eq!(layout.decode(&data), Ok(number), "{layout:?}");
            }
        }
        assert_eq!(CounterLayout::CuratorInt.encode(i64::from(i32::MAX) + 1), None);
        assert_eq!(
            CounterLayout::CuratorLong.encode(258).as_deref(),
            Some(&[0, 0, 0, 0, 0, 0, 1, 2][..])
        );
        assert_eq!(
            CounterLayout::CuratorInt.encode(-2).as_deref(),
            Some(&[255, 255, 255, 254][..])
        );
        assert_eq!(CounterLayout::KazooAscii.encode(-12).as_deref(), Some(&b"-12"[..]));
    }

    #[test]
    fn what_is_no_number_is_told() {
        for (layout, data) in [
            (CounterLayout::CuratorLong, &b"1234"[..]),
            (CounterLayout::CuratorLong, b"12345678+"),
            (CounterLayout::CuratorInt, b"12345678"),
            (CounterLayout::KazooAscii, b"1.5"),
            (CounterLayout::KazooAscii, b"9223372036854775808"),
            (CounterLayout::KazooAscii, b"\xff"),
        ] {
            assert!(layout.decode(data).is_err(), "{layout:?} {data:?}");
        }
        let found = CounterLayout::CuratorInt.decode(b"a\xffsomewhat longer text").unwrap_err();
        assert_eq!(found, "22 bytes (\"a\\xffsomewhat longe\", …)");
    }
}
