//! Macros for all crates that depend on this one: setters of builders, and `Debug` implementations that omit
//! fields.

/// Defines setter methods of a builder: each takes the builder, runs the expression to the right of the
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

/// Implements `Debug` with these values only. The other fields are secret, or useless in a log.
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
