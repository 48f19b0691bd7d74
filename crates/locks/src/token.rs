//! Fencing tokens: numbers that grow from holder to holder, and the check that a resource makes.
//!
//! A holder can be paused and continue after another client has acquired its lock. A resource that remembers
//! the highest token it has seen, and rejects lower ones, is safe even then. The idea is
//! described in M. Kleppmann, "How to do distributed locking" (2016), and as *sequencers* in
//! M. Burrows, "The Chubby lock service" (OSDI 2006).

use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use lockkeeper_client::{Zxid, fails_for_good};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value that is larger for every later holder of a lock.
///
/// It consists of a transaction number, and a count for locks that are handed on without a new node. The
/// transaction is the one that created the holder's node (`czxid`). If an earlier holder's node may be younger, as
/// contenders of an [`RwLock`](crate::RwLock) can overtake each other, it is a later write to the node. A writer that
/// becomes a reader keeps its token. A token prints as a decimal number, with the count after a dot if
/// there is one: `4294967338` or `4294967338.2`. Compare it as two numbers, not as text. [`str::parse`] reads
/// it back, and serde writes and reads the same text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken {
    zxid: Zxid,
    grant: u32,
}

impl FencingToken {
    /// The token of this transaction, usually the one that created the holder's node.
    pub fn new(zxid: Zxid) -> Self {
        Self { zxid, grant: 0 }
    }

    /// The token of the next holder of the same node.
    pub(crate) fn next_grant(self) -> Self {
        Self { grant: self.grant.saturating_add(1), ..self }
    }

    /// The transaction of the token.
    pub fn zxid(self) -> Zxid {
        self.zxid
    }

    /// The whole token as one number in the same order: below 2⁹⁵, and at least 2³² for every holder.
    /// For stores that keep numbers of this size. [`FencingToken::from_u128`] converts it back.
    pub fn to_u128(self) -> u128 {
        let zxid = u128::from(self.zxid.0.cast_unsigned());
        (zxid << 32) | u128::from(self.grant)
    }

    /// The token of a number from [`FencingToken::to_u128`]; `None` if the number cannot be from there.
    pub fn from_u128(number: u128) -> Option<Self> {
        let zxid = Zxid(i64::try_from(number >> 32).ok()?);
        let grant = u32::try_from(number & u128::from(u32::MAX)).ok()?;
        Some(Self { zxid, grant })
    }

    /// Only the transaction, from 1 to 2⁶³ - 1, for stores that keep 64 bits. It grows with each
    /// holder, except between holders of the same node (`linger`, `cohort`), for which it stays the same. Those are
    /// tasks of one process, and the store cannot distinguish
    /// them by this number.
    pub fn to_i64(self) -> i64 {
        self.zxid.0
    }
}

/// Serialized as text, because many JSON parsers would lose the last digits of a number.
impl Serialize for FencingToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FencingToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.grant {
            0 => write!(f, "{}", self.zxid.0),
            grant => write!(f, "{}.{grant}", self.zxid.0),
        }
    }
}

/// The error for text that is not a [`FencingToken`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a fencing token; expected a number such as 4294967338 or 4294967338.2")]
pub struct ParseTokenError(String);

fails_for_good!(ParseTokenError);

impl FromStr for FencingToken {
    type Err = ParseTokenError;

    fn from_str(text: &str) -> Result<Self, ParseTokenError> {
        let parse = || {
            let (zxid, grant) = text.split_once('.').unwrap_or((text, "0"));
            let zxid: i64 = zxid.parse().ok().filter(|zxid| *zxid >= 0)?;
            Some(Self { zxid: Zxid(zxid), grant: grant.parse().ok()? })
        };
        parse().ok_or_else(|| ParseTokenError(text.to_owned()))
    }
}

/// The error for a token that is lower than an earlier one: its holder has lost the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fencing token {token} is stale: {highest} was seen before")]
pub struct Stale {
    /// The rejected token.
    pub token: FencingToken,
    /// The highest token seen before.
    pub highest: FencingToken,
}

fails_for_good!(Stale);

/// The check that a resource makes. It keeps the highest token it has seen.
///
/// This implementation keeps the token in memory, for a resource within one process. A persistent
/// resource stores the token with its data, and checks it in the same transaction.
///
/// ```
/// use lockkeeper::{Fence, FencingToken};
///
/// let fence = Fence::new();
/// let (old, new): (FencingToken, FencingToken) = ("41".parse()?, "42".parse()?);
/// fence.admit(new)?;
/// assert!(fence.admit(old).is_err(), "its holder has lost the lock");
/// fence.admit(new)?; // the same holder again
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Fence {
    highest: Mutex<Option<FencingToken>>,
}

impl Fence {
    /// A fence that has not seen a token yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Accepts a token that is not lower than any token before.
    ///
    /// # Errors
    /// [`Stale`] if a higher token was seen.
    pub fn admit(&self, token: FencingToken) -> Result<(), Stale> {
        let mut highest = self.highest.lock().unwrap_or_else(PoisonError::into_inner);
        match *highest {
            Some(highest) if highest > token => Err(Stale { token, highest }),
            _ => {
                *highest = Some(token);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_print_and_parse_and_keep_their_order() {
        let texts = ["0", "9", "10", "10.1", "10.10", "4294967338"];
        let tokens = texts.map(|text| text.parse::<FencingToken>().unwrap());
        assert_eq!(tokens.map(|token| token.to_string()), texts);
        assert!(tokens.is_sorted() && tokens.map(FencingToken::to_u128).is_sorted());
        for token in tokens {
            assert_eq!(FencingToken::from_u128(token.to_u128()), Some(token));
            let json = serde_json::to_string(&token).unwrap();
            assert_eq!(json, format!("\"{token}\""));
            assert_eq!(serde_json::from_str::<FencingToken>(&json).unwrap(), token);
        }
        let largest = FencingToken { zxid: Zxid(i64::MAX), grant: u32::MAX };
        assert_eq!(largest.to_u128(), (1 << 95) - 1);
        assert_eq!(FencingToken::from_u128(1 << 95), None);
        assert_eq!(tokens.map(FencingToken::to_i64), [0, 9, 10, 10, 10, 4294967338]);
        let error = serde_json::from_str::<FencingToken>("\"x\"").unwrap_err().to_string();
        assert!(error.contains("\"x\" is not a fencing token"), "{error}");
        for text in ["", "-1", "x", "1.", ".1", "1.2.3", "1.-2"] {
            assert!(text.parse::<FencingToken>().is_err(), "{text}");
        }
    }
}
