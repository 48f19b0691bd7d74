//! What a picker needs to know about an instance, and the ways to pick one.

use lockkeeper_client::{Outcome, impl_failure};

/// An instance as a [`Picker`](crate::Picker) sees it.
pub trait Candidate {
    /// Its unique id. The state of calls stays with an instance as long as one with this id is in the set; of two
    /// with the same id, only the first is used.
    fn id(&self) -> &str;

    /// Its share of the calls, relative to the weights of the others. With 0, it gets no new calls.
    fn weight(&self) -> u32;

    /// Its zone, if known.
    fn zone(&self) -> Option<&str> {
        None
    }

    /// Whether it has the same address as `earlier`, which has the same id. If not, its calls, latency and failures
    /// start from zero.
    fn is_same_endpoint(&self, earlier: &Self) -> bool {
        let _ = earlier;
        true
    }
}

/// A way to pick an instance. All of them exclude instances of weight 0, and ejected ones as long as there are
/// others.
///
/// All but [`Pick::Key`] prefer instances of the picker's own zone, if it has one. Only the single call that
/// decides about an ejected instance goes to any zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pick<'a> {
    /// Each in turn, in the order of their ids, regardless of weights. Every picker starts at another one, so that
    /// many clients that start together do not all call the same instance.
    RoundRobin,
    /// Each as often as its weight says, spread evenly in time: with weights 5, 1 and 1, the calls of the first are
    /// not five in a row. Takes O(log n).
    Weighted,
    /// Draws two at random by weight, and picks the less loaded one: by calls in flight, by the moving average of
    /// latency, and by failures in a row. If the two are about equal, picks the first, so that weights are
    /// respected. One pick of sixteen compares only calls in flight, so that an instance that was slow or has
    /// failed is tried again. Takes O(log n).
    PowerOfTwo,
    /// The owner of this key, by rendezvous hashing with weights: the same for every client that sees the same
    /// instances, in any language (`docs/rendezvous.md` describes the hash). When one of n instances of equal
    /// weight comes or goes, 1/n of the keys move. Takes O(n): about half a microsecond for 100 instances, and less
    /// if all weights are equal.
    ///
    /// The keys of an ejected instance go to others during that time, and then come back. Until it is ejected, the
    /// same key gives the same instance: if a call fails, try another with
    /// [`ServiceDirectory::pick_except`](crate::ServiceDirectory::pick_except).
    Key(&'a [u8]),
}

impl<'a> Pick<'a> {
    /// [`Pick::Key`] with bytes or text.
    pub fn key<K: AsRef<[u8]> + ?Sized>(key: &'a K) -> Self {
        Self::Key(key.as_ref())
    }
}

/// Why no instance can be picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum PickError {
    /// The set is empty; or, in a [`ServiceDirectory`](crate::ServiceDirectory), has no readable instance:
    /// [`Instances::unreadable`](crate::Instances::unreadable) lists the others.
    #[error("no instance can be picked: none is registered, or the registered ones cannot be read")]
    NoInstance,
    /// All instances are drained or have weight 0.
    #[error("no instance takes calls: all {instances} are drained or have weight 0")]
    AllDrained {
        /// The number of instances.
        instances: usize,
    },
    /// Each instance that takes calls was already tried.
    #[error("all {instances} instances that take calls were tried")]
    AllTried {
        /// The number of instances.
        instances: usize,
    },
}

impl_failure!(
    /// Instances come and go.
    PickError { _ => (true, Outcome::NotApplied) }
);
