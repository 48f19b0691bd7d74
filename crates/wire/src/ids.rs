//! Integers of the protocol that must not be confused with each other.

use std::fmt;

use crate::codec::record;

/// The position of a transaction in the server's total order.
///
/// The high 32 bits are the epoch of the leader, the low 32 bits count its transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct Zxid(pub i64);

record!(Zxid { 0 });

impl Zxid {
    /// The upper half, which grows with each new leader.
    pub const fn epoch(self) -> u32 {
        (self.0 as u64 >> 32) as u32
    }

    /// The first value of an epoch, before its first transaction.
    pub const fn start_of(epoch: u32) -> Self {
        Self((epoch as i64) << 32)
    }
}

/// The id of a client session, chosen by the server. 0 asks for a new session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct SessionId(pub i64);

record!(SessionId { 0 });

impl SessionId {
    /// No session. In a handshake it asks for a new session; in a [`Stat`](crate::Stat) it marks a node that
    /// is not ephemeral.
    pub const NONE: Self = Self(0);
}

impl fmt::Display for Zxid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:x}", self.0)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:x}", self.0)
    }
}

/// The number that a server appends to the name of a sequential node.
///
/// It is the parent's count of created children, an `i32` printed with `%010d`. It overflows, and it restarts
/// when the parent is deleted. It orders only the children of one parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub i32);

impl Sequence {
    /// The number of characters in a node's name, unless the number is below -999,999,999.
    pub const LENGTH: usize = 10;

    /// Parses the part after the prefix of a sequential node's name.
    ///
    /// Returns `None` unless `text` is exactly what a server prints: `0000000042`, or `-000000042` after an
    /// overflow.
    pub fn parse(text: &str) -> Option<Self> {
        let number: i32 = text.parse().ok()?;
        // A server pads to ten characters, the sign included. A longer number must not have leading zeros.
        let is_as_printed = match text.as_bytes() {
            [b'+', ..] => false,
            [b'-', b'0', ..] => number < 0 && text.len() == 10,
            [b'-', ..] => matches!(text.len(), 10 | 11),
            _ => text.len() == 10,
        };
        is_as_printed.then_some(Self(number))
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A shortcut for non-negative numbers: the padding of `fmt` takes several times as long.
        let Ok(mut rest) = u32::try_from(self.0) else { return write!(f, "{:010}", self.0) };
        let mut digits = [b'0'; Self::LENGTH];
        for digit in digits.iter_mut().rev() {
            *digit += (rest % 10) as u8;
            rest /= 10;
        }
        f.write_str(std::str::from_utf8(&digits).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_read_as_the_server_prints_them() {
        for (text, number) in [
            ("0000000000", 0),
            ("0000000042", 42),
            ("2147483647", i32::MAX),
            ("-000000001", -1),
            ("-999999999", -999_999_999),
            ("-1000000000", -1_000_000_000),
            ("-2147483648", i32::MIN),
        ] {
            assert_eq!(Sequence::parse(text), Some(Sequence(number)), "{text}");
            assert_eq!(Sequence(number).to_string(), text);
        }
        for text in [
            "",
            "-",
            "42",
            "-42",
            "+000000042",
            "000000004x",
            "00000000042",
            "2147483648",
            "-000000000",
            "-0000000042",
            "-00000000042",
            "-2147483649",
        ] {
            assert_eq!(Sequence::parse(text), None, "{text}");
        }
    }

    #[test]
    fn negative_sequences_come_first_unlike_their_text() {
        assert!(Sequence(-2) < Sequence(-1) && Sequence(-1) < Sequence(0));
        assert!("-000000001" < "-000000002", "the text order of negative numbers is reversed");
    }
}
