//! The data of a node.

use std::ops::Deref;

use bytes::Bytes;

use crate::codec::record;

/// A node's data: bytes, or null.
///
/// Servers distinguish null data (length -1 on the wire) from zero bytes, and so do clients in other
/// languages. As a slice, both are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeData(Option<Bytes>);

record!(NodeData { 0 });

impl NodeData {
    /// Null data.
    pub const NULL: Self = Self(None);

    /// Whether the data is null, which is different from empty.
    pub fn is_null(&self) -> bool {
        self.0.is_none()
    }

    /// The bytes; empty for [`NULL`](Self::NULL).
    pub fn into_bytes(self) -> Bytes {
        self.0.unwrap_or_default()
    }

    /// A copy that does not share memory with the frame.
    ///
    /// Decoded data is a slice of its frame and keeps the whole frame in memory.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self(self.0.as_deref().map(Bytes::copy_from_slice))
    }
}

impl From<Bytes> for NodeData {
    fn from(bytes: Bytes) -> Self {
        Self(Some(bytes))
    }
}

impl Deref for NodeData {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Decoder, Record as _, encoded};

    #[test]
    fn no_data_is_not_zero_bytes() {
        let empty = NodeData::from(Bytes::new());
        assert_ne!(NodeData::NULL, empty);
        assert_eq!(encoded(&NodeData::NULL), [0xff; 4].as_slice());
        assert_eq!(encoded(&empty), [0; 4].as_slice());
        for data in [NodeData::NULL, empty, Bytes::from_static(b"x").into()] {
            assert_eq!(NodeData::decode(&mut Decoder::new(encoded(&data))), Ok(data.clone()));
            assert_eq!(data.detached(), data);
        }
        assert_eq!((NodeData::NULL.len(), NodeData::NULL.into_bytes()), (0, Bytes::new()));
    }
}
