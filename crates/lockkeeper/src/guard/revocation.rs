//! The request to release a lock, as data of the holder's node, and the holder's answer to it.

use bytes::Bytes;

use crate::owner_info::OwnerInfo;

/// The data of a node whose holder is asked to release the lock.
pub const REQUEST: &[u8] = b"__REVOKE__";

/// What a holder writes in place of a request: the data of the node before it.
pub(super) fn answer(before: &Bytes) -> Bytes {
    match OwnerInfo::from_data(before) {
        Some(owner) => OwnerInfo { revoked: true, ..owner }.to_data(),
        // The name alone, in the way of kazoo; or the id of a candidate.
        None => before.clone(),
    }
}
