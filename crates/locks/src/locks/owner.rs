//! Owner: the identity that may enter a reentrant lock again.

use std::fmt;
use std::sync::Arc;

use crate::acquire::reentry::OwnerHolds;
use crate::guard::Guard;
use crate::locks::mutex::MutexGuard;

/// The identity that may enter a lock that it already holds: a
/// [`ReentrantMutex`](crate::ReentrantMutex) or an [`ExclusiveNode`](crate::ExclusiveNode).
///
/// It is not bound to a thread or a task: any code with a clone acts as the owner. Two owners are
/// different even if they have the same name.
#[derive(Clone)]
pub struct Owner {
    inner: Arc<OwnerInner>,
}

struct OwnerInner {
    name: String,
    mutexes: OwnerHolds<MutexGuard>,
    nodes: OwnerHolds<Guard>,
}

impl Owner {
    /// A new owner, different from all others. The name is only for display.
    pub fn new(name: impl Into<String>) -> Self {
        let (mutexes, nodes) = (OwnerHolds::default(), OwnerHolds::default());
        Self { inner: Arc::new(OwnerInner { name: name.into(), mutexes, nodes }) }
    }

    /// The owner's name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    pub(crate) fn mutexes(&self) -> &OwnerHolds<MutexGuard> {
        &self.inner.mutexes
    }

    pub(crate) fn nodes(&self) -> &OwnerHolds<Guard> {
        &self.inner.nodes
    }
}

/// An owner with a generated name.
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
