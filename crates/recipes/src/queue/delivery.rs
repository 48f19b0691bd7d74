//! What happens to an item when it is taken.

/// Items stay in the queue until a consumer has recorded that they are done: a take returns an
/// [`Item`](crate::Item). The default of a [`Queue`](crate::Queue).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtLeastOnce;

/// Items are removed from the queue when they are taken: a take returns the value. A value that a consumer takes
/// and does not finish is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtMostOnce;

/// What happens to an item when it is taken: [`AtLeastOnce`] or [`AtMostOnce`].
pub trait Delivery: Sealed {}

impl Delivery for AtLeastOnce {}
impl Delivery for AtMostOnce {}

/// Prevents implementations elsewhere.
pub trait Sealed {
    /// Whether an item is claimed before it is removed.
    const CLAIMS: bool;
}

impl Sealed for AtLeastOnce {
    const CLAIMS: bool = true;
}

impl Sealed for AtMostOnce {
    const CLAIMS: bool = false;
}
