//! Znodes beside a lock, that keep something for its contenders.
//!
//! They are beside the lock and not in it: a child of the lock would be a contender for every library.

use lockkeeper_client::ZnodePath;

/// After a lock's name, in that of the mark of its lock delay.
pub(crate) const DELAY: &str = "-__delay__";

/// After a lock's name, in that of the node with its records of what was done once.
pub(crate) const ONCE: &str = "-__once__";

/// After an election's name, in that of the node with the value that its leader proclaims.
pub(crate) const LEADER: &str = "-__leader__";

/// The node beside a lock whose name goes on with this.
pub fn beside(lock: &ZnodePath, suffix: &str) -> ZnodePath {
    let name = format!("{}{suffix}", lock.name());
    let parent = lock.parent().unwrap_or_else(ZnodePath::root);
    parent.child(&name).expect("a lock's name goes on to be a name")
}

/// The name of the lock that a node of this name is beside of.
pub(crate) fn lock_beside<'a>(name: &'a str, suffix: &str) -> Option<&'a str> {
    name.strip_suffix(suffix).filter(|lock| !lock.is_empty())
}

/// Whether a node of this name keeps a lock delay or records, so that no lock may be there.
pub(crate) fn is_beside_a_lock(name: &str) -> bool {
    [DELAY, ONCE].iter().any(|suffix| lock_beside(name, suffix).is_some())
}
