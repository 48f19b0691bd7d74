//! The value that a leader proclaims.
//!
//! It is stored in a sibling of the election's node, and not in the candidate's own node, whose data has other uses:
//! Curator's `LeaderLatch` reads the id from it, and has a watch on it that any change triggers. Requests to
//! release the leadership are written there too.

use bytes::Bytes;
use lockkeeper_client::ZnodePath;
use serde::{Deserialize, Serialize};

use crate::siblings::{LEADER, sibling};

/// The path of an election's record.
pub(super) fn record_path(election: &ZnodePath) -> ZnodePath {
    sibling(election, LEADER)
}

/// The record, stored as JSON. Unknown fields of later versions are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LeaderRecord {
    /// The version of this format.
    v: u32,
    /// The name of the leader's node. The value is void when another candidate leads.
    node: String,
    value: String,
}

impl LeaderRecord {
    pub(super) fn new(node: &str, value: String) -> Self {
        Self { v: 1, node: node.to_owned(), value }
    }

    /// Reads a node's data; `None` if it is not a record.
    pub(super) fn read(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    pub(super) fn to_data(&self) -> Bytes {
        serde_json::to_vec(self).map_or_else(|_| Bytes::new(), Bytes::from)
    }

    /// The value, if it was proclaimed by the candidate with this node.
    pub(super) fn value_of(&self, node: &str) -> Option<&str> {
        (self.node == node).then_some(self.value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_of_one_leadership() {
        let record = LeaderRecord::new("_c_x-latch-0000000007", "10.0.0.7".into());
        let read = LeaderRecord::read(&record.to_data()).unwrap();
        assert_eq!(read, record);
        assert_eq!(read.value_of("_c_x-latch-0000000007"), Some("10.0.0.7"));
        assert_eq!(read.value_of("_c_y-latch-0000000008"), None);
    }

    #[test]
    fn what_a_later_version_adds_is_read_over_and_other_data_is_no_record() {
        let later = br#"{"v":2,"node":"n","value":"x","zone":"b"}"#;
        assert_eq!(LeaderRecord::read(later).unwrap().value_of("n"), Some("x"));
        for data in ["", "10.0.0.7", "{}"] {
            assert_eq!(LeaderRecord::read(data.as_bytes()), None, "{data}");
        }
    }
}
