//! What types of all crates above this one have: setters of builders, and a `Debug` that leaves things out.

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

/// Implements `Debug` by these values alone: what else there is of the type is secret, or of no use in a log.
#[doc(hidden)]
#[macro_export]
macro_rules! impl_debug {
    (
        $(#[$attribute:meta])*
        $type:ident $(<$($parameter:ident $(: $bound:path)?),*>)?, $this:ident => $($name:ident: $value:expr),*
    ) => {
        $(#[$attribute])*
        impl $(<$($parameter $(: $bound)?),*>)? std::fmt::Debug for $type $(<$($parameter),*>)? {
            fn fmt(&$this, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($type))
                    $(.field(stringify!($name), &$value))*
                    .finish_non_exhaustive()
            }
        }
    };
}
