//! What becomes of an item that is taken.

/// Items stay in the queue until a consumer has recorded that they are done: what is taken is an
/// [`Item`](crate::Item). The default of a [`Queue`](crate::Queue).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtLeastOnce;

/// Items are gone from the queue when they are taken: what is taken is the value. One that a consumer takes and
/// does not finish is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtMostOnce;

/// What becomes of an item that is taken: [`AtLeastOnce`] or [`AtMostOnce`].
pub trait Delivery: Sealed {}

impl Delivery for AtLeastOnce {}
impl Delivery for AtMostOnce {}

/// Nobody else implements it.
pub trait Sealed {
    /// Whether an item is claimed before it is gone.
    const CLAIMS: bool;
}

impl Sealed for AtLeastOnce {
    const CLAIMS: bool = true;
}

impl Sealed for AtMostOnce {
    const CLAIMS: bool = false;
}
