//! Who holds and who waits: for people to read, and for locks that can be entered again.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::reentry::Entries;
use crate::{Guard, MutexGuard};

/// Somebody who can enter a lock again that they hold.
///
/// It belongs to no thread and no task: whoever has a clone is the owner. Two owners are different
/// even if they have the same name.
#[derive(Clone)]
pub struct Owner {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    mutexes: Entries<MutexGuard>,
    nodes: Entries<Guard>,
}

impl Owner {
    /// An owner that nobody else is. The name is for people.
    pub fn new(name: impl Into<String>) -> Self {
        let (mutexes, nodes) = (Entries::default(), Entries::default());
        Self { inner: Arc::new(Inner { name: name.into(), mutexes, nodes }) }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    pub(crate) fn mutexes(&self) -> &Entries<MutexGuard> {
        &self.inner.mutexes
    }

    pub(crate) fn nodes(&self) -> &Entries<Guard> {
        &self.inner.nodes
    }
}

/// An owner with a name that was made up.
impl Default for Owner {
    fn default() -> Self {
        Self::new(uuid::Uuid::new_v4().to_string())
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Owner {}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.inner.name)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Owner").field(&self.inner.name).finish()
    }
}

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
    /// Whether it has seen that somebody asked for the lock, and holds it still.
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

    /// What a holder writes in place of a request to give way: what the node said before, if that
    /// is known.
    pub(crate) fn after_request(before: Option<&Bytes>) -> Bytes {
        match before.map(|data| (data, Self::from_data(data))) {
            None => Self { revoked: true, ..Self::current(None) }.to_data(),
            Some((_, Some(owner))) => Self { revoked: true, ..owner }.to_data(),
            // The name alone, in the way of kazoo.
            Some((data, None)) => data.clone(),
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
