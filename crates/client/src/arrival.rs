//! The order of what a client is told.

/// A place in the order in which a client was told things: answers, events, and reconnects.
///
/// Servers tell of a change before they answer anything that shows it. So an answer shows all that
/// was told before it on the same connection, and whatever is told later may not be in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arrival(pub(crate) u64);

impl Arrival {
    /// Before everything.
    pub const START: Self = Self(0);

    /// The place right behind this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
