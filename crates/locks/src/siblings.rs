//! Znodes next to a lock that keep data for its contenders.
//!
//! They are siblings of the lock's node and not its children, because every library takes a child for a contender.

use lockkeeper_client::ZnodePath;

/// The suffix of the node with the mark of a lock delay, after the lock's name.
pub(crate) const DELAY: &str = "-__delay__";

/// The suffix of the node with the records of [`Once`](crate::Once), after the lock's name.
pub(crate) const ONCE: &str = "-__once__";

/// The suffix of the node with the value that a leader proclaims, after the election's name.
pub(crate) const LEADER: &str = "-__leader__";

/// The sibling of a lock's node that has the lock's name with this suffix.
pub fn sibling(lock: &ZnodePath, suffix: &str) -> ZnodePath {
    let name = format!("{}{suffix}", lock.name());
    let parent = lock.parent().unwrap_or_else(ZnodePath::root);
    parent.child(&name).expect("a lock's name with a suffix is a valid name")
}

/// The name of the lock that a node with this name belongs to; `None` if the name does not have the suffix.
pub(crate) fn lock_of_sibling<'a>(name: &'a str, suffix: &str) -> Option<&'a str> {
    name.strip_suffix(suffix).filter(|lock| !lock.is_empty())
}

/// Whether a node with this name keeps a lock delay or records. Such a path cannot be a lock.
pub(crate) fn is_sibling_of_lock(name: &str) -> bool {
    [DELAY, ONCE].iter().any(|suffix| lock_of_sibling(name, suffix).is_some())
}
