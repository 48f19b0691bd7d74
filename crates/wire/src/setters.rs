//! The options of builders, which all crates above this one have.

/// Writes methods of a builder that set an option: each takes the builder, does what is to the right of the
/// arrow, and returns the builder.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($(
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident($this:ident $(, $argument:ident: $type:ty)*) => $set:expr;
    )*) => {$(
        $(#[$attribute])*
        $visibility fn $name(mut $this $(, $argument: $type)*) -> Self {
            $set;
            $this
        }
    )*};
}
