//! What a picker has to know of an instance, and the ways to pick one.

use lockkeeper_client::{Outcome, impl_failure};

/// An instance as a [`Picker`](crate::Picker) sees it.
pub trait Candidate {
    /// What tells it from the others. What is known of calls stays with an instance for as long as one
    /// with this id is among those to pick from; of two with the same id, only the first is used.
    fn id(&self) -> &str;

    /// Its share of the calls, compared with the weights of the others. With 0, it gets no new calls.
    fn weight(&self) -> u32;

    /// Where it is, if that is known.
    fn zone(&self) -> Option<&str> {
        None
    }

    /// Whether it answers where `earlier`, with the same id, did. If not, it starts with no calls, no
    /// latency and no failures.
    fn is_same_endpoint(&self, earlier: &Self) -> bool {
        let _ = earlier;
        true
    }
}

/// A way to pick an instance. All of them leave out instances of weight 0, and ejected ones as long as
/// there are others.
///
/// All but [`Pick::Key`] prefer instances of the picker's own zone, if it has one. Only the one call that
/// decides about an ejected instance goes to any zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pick<'a> {
    /// Each in turn, in the order of their ids, whatever their weights. Every picker begins somewhere
    /// else, so that many clients that start together do not all call the same instance.
    RoundRobin,
    /// Each as often as its weight says, spread evenly in time: of weights 5, 1 and 1, the first one's
    /// calls are not five in a row. Takes O(log n).
    Weighted,
    /// Of two that are drawn at random by weight, the one that has less to do: by calls in flight, by
    /// the moving average of its latency, and by failures in a row. Where the two are about equal, the
    /// first, so that weights are respected. One pick of sixteen looks at calls in flight only, so that an
    /// instance that was slow or has failed is tried again. Takes O(log n).
    PowerOfTwo,
    /// The one that this key belongs to, by rendezvous hashing with weights: the same for every client
    /// that sees the same instances, in any language (`docs/rendezvous.md` describes the hash). When one
    /// of n instances of equal weight comes or goes, 1/n of the keys move. Takes O(n): about half a
    /// microsecond for 100 instances, and less if all weights are the same.
    ///
    /// Keys of an ejected instance go to others for as long, and then come back. Until it is ejected, the same key
    /// gives the same instance: where a call fails, try another by
    /// [`ServiceDirectory::pick_except`](crate::ServiceDirectory::pick_except).
    Key(&'a [u8]),
}

impl<'a> Pick<'a> {
    /// [`Pick::Key`], of bytes or text.
    pub fn key<K: AsRef<[u8]> + ?Sized>(key: &'a K) -> Self {
        Self::Key(key.as_ref())
    }
}

/// Why there is nothing to pick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum PickError {
    /// There is no instance; or, in a [`ServiceDirectory`](crate::ServiceDirectory), none that can be read:
    /// [`Instances::unreadable`](crate::Instances::unreadable) names the others.
    #[error(
        "there is no instance to pick: none is registered, or what is registered cannot be read"
    )]
    NoInstance,
    /// There are instances, and each of them is drained or has weight 0.
    #[error("of {instances} instances, each is drained or has weight 0: none takes calls")]
    AllDrained {
        /// How many there are.
        instances: usize,
    },
    /// Each instance that takes calls was tried before.
    #[error("all {instances} instances that take calls were tried")]
    AllTried {
        /// How many there are.
        instances: usize,
    },
}

impl_failure!(
    /// Instances come and go.
    PickError { _ => (true, Outcome::NotApplied) }
);
