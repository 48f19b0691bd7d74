//! A value with its revision.

use std::ops::Deref;

use lockkeeper_client::{Stat, Zxid};
use serde::{Deserialize, Serialize};

/// A state of a value's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Revision {
    /// The transaction that created the node; it changes if the node is deleted and created again.
    pub czxid: Zxid,
    /// The transaction that wrote the value. It only grows, also when the node is created again.
    pub mzxid: Zxid,
    /// How often the node was changed since it was created. A compare-and-set compares it.
    pub version: i32,
}

impl Revision {
    /// The revision of a missing node.
    pub(super) const NONE: Self = Self { czxid: Zxid(0), mzxid: Zxid(0), version: 0 };

    /// The revision after a write over this one, or over a missing node.
    pub(super) fn following(old: Option<Self>, mzxid: Zxid) -> Self {
        match old {
            None => Self { czxid: mzxid, mzxid, version: 0 },
            Some(old) => Self { mzxid, version: old.version.wrapping_add(1), ..old },
        }
    }
}

impl From<Stat> for Revision {
    fn from(stat: Stat) -> Self {
        Self { czxid: stat.czxid, mzxid: stat.mzxid, version: stat.version }
    }
}

/// A value with its revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versioned<T> {
    /// The value.
    pub value: T,
    /// The state of the node.
    pub revision: Revision,
}

impl<T> Deref for Versioned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_back_from_json_with_its_revision() {
        let revision = Revision { czxid: Zxid(1 << 40), mzxid: Zxid(i64::MAX), version: -3 };
        let versioned = Versioned { value: "v".to_owned(), revision };
        let json = serde_json::to_string(&versioned).unwrap();
        assert_eq!(serde_json::from_str::<Versioned<String>>(&json).unwrap(), versioned);
        let text = r#"{"czxid":1099511627776,"mzxid":9223372036854775807,"version":-3}"#;
        assert_eq!(serde_json::to_string(&revision).unwrap(), text);
    }
}
