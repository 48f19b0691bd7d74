//! Sets builder options for which the user gave a value.

use lockkeeper_engine::Builder;

/// Sets optional values.
pub(crate) trait With: Sized {
    /// The same builder, with this value if there is one.
    fn with<T>(self, value: Option<T>, set: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Some(value) => set(self, value),
            None => self,
        }
    }

    /// The same builder, with this flag if it is set.
    fn set_flag(self, is_set: bool, set: impl FnOnce(Self) -> Self) -> Self {
        if is_set { set(self) } else { self }
    }
}

impl With for Builder {}
