//! What comes of an item, for whoever has asked for it: pure.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// What has come of an item, in the data of its answer; without data, nothing yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ItemAnswer {
    /// It is being worked on.
    Note(String),
    Done(serde_json::Value),
    /// It is a dead letter.
    Dead(String),
    Cancelled,
}

impl ItemAnswer {
    pub(super) fn to_data(&self) -> Bytes {
        serde_json::to_vec(self).map_or_else(|_| Bytes::new(), Bytes::from)
    }

    /// `None` if there is nothing yet.
    pub(super) fn read(data: &[u8]) -> Result<Option<Self>, String> {
        match data {
            [] => Ok(None),
            _ => serde_json::from_slice(data).map(Some).map_err(|error| error.to_string()),
        }
    }
}
