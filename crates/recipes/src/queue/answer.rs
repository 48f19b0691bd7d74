//! Results of items, for their requesters. No I/O.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::queue::marks::{Marks, Requested};

/// The result of an item.
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

/// The data of an answer's node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct AnswerData {
    /// Until when it is kept, in milliseconds since 1970 by the servers' clock; `None`: as long as the requester's
    /// session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<u64>,
    /// The id that the putter has set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    /// `None`: no result yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) answer: Option<ItemAnswer>,
}

impl AnswerData {
    /// The data for an item with these marks.
    pub(super) fn new(marks: &Marks, answer: Option<ItemAnswer>) -> Self {
        let until = match marks.requested {
            Some(Requested::Until(time)) => Some(time),
            _ => None,
        };
        Self { until, name: marks.name.clone(), answer }
    }

    pub(super) fn to_data(&self) -> Bytes {
        serde_json::to_vec(self).map_or_else(|_| Bytes::new(), Bytes::from)
    }

    pub(super) fn read(data: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(data).map_err(|error| error.to_string())
    }
}
