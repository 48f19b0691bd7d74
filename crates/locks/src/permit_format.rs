//! The format of a semaphore's number of permits in a node.

use bytes::Bytes;
use lockkeeper_client::CreateMode;

/// The format of the number of permits in a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermitFormat {
    /// Text, in a node that is deleted when it is not used.
    Text,
    /// Text, in a persistent node, like kazoo.
    LastingText,
    /// Four bytes, big-endian, like Curator's `SharedCount`.
    SharedCount,
}

impl PermitFormat {
    pub(crate) fn write(self, number: u32) -> Bytes {
        match self {
            Self::Text | Self::LastingText => number.to_string().into(),
            Self::SharedCount => Bytes::copy_from_slice(&number.to_be_bytes()),
        }
    }

    /// The largest number that every program reads correctly.
    pub(crate) fn most(self) -> u32 {
        match self {
            Self::Text | Self::LastingText => u32::MAX,
            Self::SharedCount => i32::MAX.unsigned_abs(),
        }
    }

    pub(crate) fn read(self, data: &[u8]) -> Option<u32> {
        match self {
            Self::Text | Self::LastingText => std::str::from_utf8(data).ok()?.trim().parse().ok(),
            // Curator stores an `i32`. A negative number counts as 0.
            Self::SharedCount => {
                let number = i32::from_be_bytes(data.try_into().ok()?);
                Some(u32::try_from(number).unwrap_or(0))
            }
        }
    }

    pub(crate) fn mode(self) -> CreateMode {
        match self {
            Self::Text => CreateMode::Container,
            Self::LastingText | Self::SharedCount => CreateMode::Persistent,
        }
    }
}
