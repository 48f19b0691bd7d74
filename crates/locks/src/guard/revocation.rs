//! Requests to release a lock, in the data of the holder's node, and the data that the holder writes in reply.

use bytes::Bytes;
use serde_json::Value;

use crate::owner_info::{OwnerInfo, RevokeRequest};

/// The data of a node whose holder has been asked to release the lock.
pub const REQUEST: &[u8] = b"__REVOKE__";

/// The data that asks a holder to release the lock. `owner`: the owner in its node, if any. Only Lockkeeper
/// programs write an owner, and only they read more than [`REQUEST`]; other programs compare the data with it.
pub(crate) fn ask(owner: Option<&OwnerInfo>, request: &RevokeRequest) -> Bytes {
    let is_plain = *request == RevokeRequest::default();
    match owner.filter(|_| !is_plain).and_then(|_| serde_json::to_vec(request).ok()) {
        Some(text) => [REQUEST, &text].concat().into(),
        None => Bytes::from_static(REQUEST),
    }
}

/// Reads a request from the data of a node; `None` if it is not a request. Unknown fields of later versions are
/// ignored.
pub(crate) fn asked(data: &[u8]) -> Option<RevokeRequest> {
    let text = data.strip_prefix(REQUEST)?;
    Some(serde_json::from_slice(text).unwrap_or_default())
}

/// Changes the owner in a node's data, and keeps its other fields. `None` if the data does not contain an
/// owner: it is only a label, as in kazoo's profile, or the id of a candidate.
pub(super) fn changed(before: &Bytes, change: impl FnOnce(&mut OwnerInfo)) -> Option<Bytes> {
    let mut owner = OwnerInfo::from_data(before)?;
    change(&mut owner);
    let Ok(Value::Object(mut fields)) = serde_json::from_slice(before) else { return None };
    let Ok(Value::Object(changes)) = serde_json::to_value(owner) else { return None };
    fields.extend(changes);
    serde_json::to_vec(&fields).ok().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> RevokeRequest {
        let (by, reason) = (Some("ann on db1".to_owned()), Some("maintenance".to_owned()));
        RevokeRequest { by, reason }
    }

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let (owner, plain) = (OwnerInfo::current(None), RevokeRequest::default());
        assert_eq!(asked(&ask(Some(&owner), &request())), Some(request()));
        assert_eq!(asked(b"__REVOKE__ of a later version"), Some(plain.clone()));
        assert_eq!(asked(b"nightly"), None);
        // Curator's holders compare the data with this.
        for data in [ask(None, &request()), ask(Some(&owner), &plain)] {
            assert_eq!(data, REQUEST);
        }
    }

    #[test]
    fn a_change_keeps_what_else_is_in_the_data() {
        let before = r#"{"host":"a","pid":1,"program":"b","obeys_lock_delay":true,"owner":"o"}"#;
        let after = changed(&before.into(), |owner| owner.held_since_unix_ms = Some(7)).unwrap();
        assert_eq!(OwnerInfo::from_data(&after).unwrap().held_since_unix_ms, Some(7));
        let fields: Value = serde_json::from_slice(&after).unwrap();
        assert_eq!((&fields["obeys_lock_delay"], &fields["owner"]), (&true.into(), &"o".into()));
        assert_eq!(changed(&"nightly".into(), |_| ()), None);
    }
}
