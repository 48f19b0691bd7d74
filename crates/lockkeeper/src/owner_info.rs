//! OwnerInfo: what a contender says of its program, for people to read.

use std::fmt;
use std::path::Path;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Who a contender is: the data of its node, as JSON.
///
/// Nothing is decided by it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerInfo {
    /// The name of the host.
    pub host: String,
    /// The process on that host.
    pub pid: u32,
    /// The name of the program.
    pub program: String,
    /// What the user calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Whether the holder has seen a request to release the lock, and still holds it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub revoked: bool,
}

impl OwnerInfo {
    /// This process.
    pub fn current(label: Option<String>) -> Self {
        let program = std::env::args_os().next().unwrap_or_default();
        let program = Path::new(&program).file_name().unwrap_or_default();
        Self {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            pid: std::process::id(),
            program: program.to_string_lossy().into_owned(),
            label,
            revoked: false,
        }
    }

    /// Reads a node's data; `None` if another library, or nobody, wrote it.
    pub fn from_data(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    pub(crate) fn to_data(&self) -> Bytes {
        serde_json::to_vec(self).map_or_else(|_| Bytes::new(), Bytes::from)
    }
}

/// As in `backup.sh (pid 4711 on db1, nightly)`.
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
    fn the_data_of_other_libraries_is_no_error() {
        for data in ["", "10.0.0.7", "{}", "\u{7f}"] {
            assert_eq!(OwnerInfo::from_data(data.as_bytes()), None);
        }
    }
}
