//! The order in which a client receives replies and events.

/// A position in the order in which a client received replies, events and reconnects.
///
/// Servers send the event of a change before any reply that shows the change. So a reply includes every
/// change whose event arrived before it on the same connection, and may not include changes whose events
/// arrive later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arrival(pub(crate) u64);

impl Arrival {
    /// The position before everything.
    pub const START: Self = Self(0);

    /// The position right after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}
