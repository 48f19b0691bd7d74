//! The mark of somebody who wants a lock: what asks, and what the holder writes in its place.

use bytes::Bytes;

use crate::owner_info::OwnerInfo;

/// The data of a node whose holder is asked to go.
pub const REQUEST: &[u8] = b"__REVOKE__";

/// What a holder writes in place of a request to give way: what the node said before, if that is
/// known.
pub(super) fn answer(before: Option<&Bytes>) -> Bytes {
    match before.map(|data| (data, OwnerInfo::from_data(data))) {
        None => OwnerInfo { revoked: true, ..OwnerInfo::current(None) }.to_data(),
        Some((_, Some(owner))) => OwnerInfo { revoked: true, ..owner }.to_data(),
        // The name alone, in the way of kazoo.
        Some((data, None)) => data.clone(),
    }
}
