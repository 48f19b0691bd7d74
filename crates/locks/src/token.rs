//! Fencing tokens: numbers that grow from holder to holder, and the check of a resource.
//!
//! A holder can be paused, and go on after another client has got its lock. A resource that remembers
//! the highest token it has seen, and refuses lower ones, is safe even then. The idea is
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
/// It is a transaction, followed by a count for locks that are handed on without a new node. The
/// transaction is that which created the holder's node (`czxid`), or a later write to it where an earlier holder's
/// node may be younger, as contenders of an [`RwLock`](crate::RwLock) overtake each other. A writer that becomes a
/// reader keeps its token. It prints as a decimal number, with the count after a dot if
/// there is one: `4294967338` or `4294967338.2`. Compare it as two numbers, not as text. It is read
/// back with [`str::parse`], and serde writes and reads the same text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken {
    zxid: Zxid,
    grant: u32,
}

impl FencingToken {
    /// The token of this transaction: as a rule that which created the holder's node.
    pub fn new(zxid: Zxid) -> Self {
        Self { zxid, grant: 0 }
    }

    /// The token of the next holder that the same node is handed to.
    pub(crate) fn next_grant(self) -> Self {
        Self { grant: self.grant.saturating_add(1), ..self }
    }

    /// The transaction that it comes from.
    pub fn zxid(self) -> Zxid {
        self.zxid
    }

    /// All of it as one number, which has the same order: below 2⁹⁵, and at least 2³² for every holder.
    /// For stores that keep such numbers; [`FencingToken::from_u128`] is the way back.
    pub fn to_u128(self) -> u128 {
        let zxid = u128::from(self.zxid.0.cast_unsigned());
        (zxid << 32) | u128::from(self.grant)
    }

    /// The token of a number that [`FencingToken::to_u128`] made; `None` if it made no such number.
    pub fn from_u128(number: u128) -> Option<Self> {
        let zxid = Zxid(i64::try_from(number >> 32).ok()?);
        let grant = u32::try_from(number & u128::from(u32::MAX)).ok()?;
        Some(Self { zxid, grant })
    }

    /// The transaction alone, from 1 to 2⁶³ - 1, for stores that keep 64 bits. It never falls from
    /// holder to holder, and grows with each of them, except from one to the next whom the same node is
    /// handed to (`linger`, `cohort`): those are tasks of one process, and the store cannot tell them
    /// apart by it.
    pub fn to_i64(self) -> i64 {
        self.zxid.0
    }
}

/// As the text that it prints as: a number would lose its last digits in many a JSON parser.
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

/// A text that is no [`FencingToken`].
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

/// A token that is lower than one that was seen before: its holder has lost the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fencing token {token} is stale: {highest} was seen before")]
pub struct Stale {
    /// The token that was shown.
    pub token: FencingToken,
    /// The highest one seen before.
    pub highest: FencingToken,
}

fails_for_good!(Stale);

/// The check that a resource makes: it keeps the highest token it has seen.
///
/// This one remembers in memory, for a resource that lives in one process. A resource that is
/// stored keeps the token where its data is, and checks it in the same transaction.
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
    /// A fence that has seen no token.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets a token pass that is not lower than any before it.
    ///
    /// # Errors
    /// [`Stale`] if a higher one was seen.
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
