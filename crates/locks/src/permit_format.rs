//! How the number of a semaphore's permits is written into a node.

use bytes::Bytes;
use lockkeeper_client::CreateMode;

/// How the number of permits is written into a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermitFormat {
    /// As text, in a node that goes away when it is not used.
    Text,
    /// As text, in a node that stays: kazoo's.
    LastingText,
    /// As Curator's `SharedCount` does: four bytes, the highest first.
    SharedCount,
}

impl PermitFormat {
    pub(crate) fn write(self, number: u32) -> Bytes {
        match self {
            Self::Text | Self::LastingText => number.to_string().into(),
            Self::SharedCount => Bytes::copy_from_slice(&number.to_be_bytes()),
        }
    }

    /// The largest number that every program reads as it was written.
    pub(crate) fn most(self) -> u32 {
        match self {
            Self::Text | Self::LastingText => u32::MAX,
            Self::SharedCount => i32::MAX.unsigned_abs(),
        }
    }

    pub(crate) fn read(self, data: &[u8]) -> Option<u32> {
        match self {
            Self::Text | Self::LastingText => std::str::from_utf8(data).ok()?.trim().parse().ok(),
            // An `i32` there; a negative number counts as 0.
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
