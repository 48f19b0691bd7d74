//! OwnerInfo: the description of a contender's program, for display.

use std::fmt;
use std::path::Path;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The description of a contender's program, stored as JSON in its node.
///
/// It does not affect the lock. With [`Profile::Kazoo`](crate::Profile::Kazoo), a node with a label
/// contains only the label, because kazoo programs display the whole data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OwnerInfo {
    /// The name of the host.
    pub host: String,
    /// The process id on that host.
    pub pid: u32,
    /// The name of the program.
    pub program: String,
    /// The label given by the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The person for whom the program runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Why the lock is taken, in the user's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// When the lock was granted, in milliseconds since 1970 by the holder's clock, if the holder
    /// [has recorded it](crate::Guard::note_held_since).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_since_unix_ms: Option<u64>,
    /// The holders' nodes of the `lockkeeper run` under which the program runs, if any. That run does not
    /// release its locks before the program has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub under: Vec<String>,
    /// Whether the holder has seen a request to release the lock and still holds it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub revoked: bool,
    /// The request that the holder has seen, if it has a requester or a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RevokeRequest>,
}

/// The requester and the reason of a request to release a lock.
///
/// Text beyond 1,024 bytes is cut off. [`Revocation`](crate::revoke::Revocation) sends a request, and
/// [`Guard::revoke_request`](crate::Guard::revoke_request) returns it to the holder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RevokeRequest {
    /// The requester, such as `ann on db1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Text from a user, cut off if it is too long; `None` if it is empty.
pub(crate) fn bounded(text: impl Into<String>) -> Option<String> {
    let mut text = text.into();
    text.truncate(text.floor_char_boundary(OwnerInfo::LONGEST_TEXT));
    (!text.is_empty()).then_some(text)
}

impl OwnerInfo {
    /// The longest label, user or reason in a description, and the longest text in a request to release a
    /// lock, in bytes. Longer text is cut off.
    pub const LONGEST_TEXT: usize = 1024;

    /// The description of this process.
    pub fn current(label: Option<String>) -> Self {
        let program = std::env::args_os().next().unwrap_or_default();
        let program = Path::new(&program).file_name().unwrap_or_default();
        Self {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            pid: std::process::id(),
            program: program.to_string_lossy().into_owned(),
            label,
            ..Self::default()
        }
    }

    /// The holders' nodes of the run under which this process runs, passed by `lockkeeper run` in the environment.
    pub(crate) fn nodes_of_the_run() -> Vec<String> {
        let nodes = std::env::var("LOCKKEEPER_NODE").unwrap_or_default();
        nodes.lines().map(str::to_owned).collect()
    }

    /// Reads a node's data; `None` if it is empty or from another library.
    pub fn from_data(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    pub(crate) fn to_data(&self) -> Bytes {
        serde_json::to_vec(self).map_or_else(|_| Bytes::new(), Bytes::from)
    }
}

/// Shown like `backup.sh (pid 4711 on db1, nightly)`.
impl fmt::Display for OwnerInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {} on {}", self.program, self.pid, self.host)?;
        match &self.label {
            Some(label) => write!(f, ", {label})"),
            None => f.write_str(")"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        for label in [None, Some("nightly".to_owned())] {
            let owner = OwnerInfo::current(label);
            assert_eq!(OwnerInfo::from_data(&owner.to_data()), Some(owner.clone()));
            assert_eq!(owner.pid, std::process::id());
            assert!(!owner.host.is_empty() && !owner.program.is_empty());
        }
    }

    #[test]
    fn data_without_the_later_fields_is_read_and_written_as_it_was() {
        let old = r#"{"host":"db1","pid":7,"program":"backup.sh","label":"nightly"}"#;
        let owner = OwnerInfo::from_data(old.as_bytes()).unwrap();
        assert_eq!((owner.label.as_deref(), owner.why.as_deref()), (Some("nightly"), None));
        assert_eq!(owner.to_data(), old);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(bounded(""), None);
        assert_eq!(bounded("a"), Some("a".to_owned()));
        let cut = bounded("漢".repeat(OwnerInfo::LONGEST_TEXT)).unwrap();
        assert!(cut.len() <= OwnerInfo::LONGEST_TEXT && cut.chars().all(|c| c == '漢'), "{cut}");
    }

    #[test]
    fn the_data_of_other_libraries_is_no_error() {
        for data in ["", "10.0.0.7", "{}", "\u{7f}"] {
            assert_eq!(OwnerInfo::from_data(data.as_bytes()), None);
        }
    }
}
