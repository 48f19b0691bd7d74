//! Macros that make blocking methods out of async ones. Each method is listed by name, so that none
//! that returns a future gets in. A new method of an async type must be listed too.
//!
//! A type that uses them has two fields: `inner`, the async type that it stands for, and `runtime`. The
//! type parameters of a generic one stand behind `where`. A method may have a sentence of its own before the
//! one that names its async twin.

/// Methods that ask no server, as they are.
macro_rules! same {
    ($type:ty $(where [$($generics:tt)*])?, $of:literal: $(
        $(#[$attribute:meta])*
        $method:ident($($argument:ident: $kind:ty),*) $(-> $output:ty)?;
    )*) => {
        impl $(<$($generics)*>)? $type { $(
            $(#[$attribute])*
            #[doc = concat!("As [`crate::", $of, "::", stringify!($method), "`].")]
            pub fn $method(&self $(, $argument: $kind)*) $(-> $output)? {
                self.inner.$method($($argument),*)
            }
        )* }
    };
}

/// Methods that ask a server, and wait for what comes of it.
macro_rules! waits {
    ($type:ty $(where [$($generics:tt)*])?, $of:literal: $(
        $(#[$attribute:meta])*
        $method:ident($($argument:ident: $kind:ty),*) -> Result<$output:ty, $error:ty>;
    )*) => {
        impl $(<$($generics)*>)? $type { $(
            $(#[$attribute])*
            #[doc = concat!("As [`crate::", $of, "::", stringify!($method), "`].")]
            ///
            /// # Errors
            /// As the method that it is named after.
            pub fn $method(&self $(, $argument: $kind)*) -> Result<$output, $error> {
                self.runtime.wait(self.inner.$method($($argument),*))
            }
        )* }
    };
}

/// The same for methods that take `&mut self`.
macro_rules! waits_mut {
    ($type:ty $(where [$($generics:tt)*])?, $of:literal: $(
        $(#[$attribute:meta])*
        $method:ident($($argument:ident: $kind:ty),*) -> Result<$output:ty, $error:ty>;
    )*) => {
        impl $(<$($generics)*>)? $type { $(
            $(#[$attribute])*
            #[doc = concat!("As [`crate::", $of, "::", stringify!($method), "`].")]
            ///
            /// # Errors
            /// As the method that it is named after.
            pub fn $method(&mut self $(, $argument: $kind)*) -> Result<$output, $error> {
                self.runtime.wait(self.inner.$method($($argument),*))
            }
        )* }
    };
}

/// Methods by which an async type is given up, and that wait until that is certain.
macro_rules! waits_for_end {
    ($type:ty, $of:literal: $(
        $(#[$attribute:meta])*
        $method:ident() -> Result<(), $error:ty>;
    )*) => {
        impl $type { $(
            $(#[$attribute])*
            #[doc = concat!("As [`crate::", $of, "::", stringify!($method), "`].")]
            ///
            /// # Errors
            /// As the method that it is named after.
            pub fn $method(self) -> Result<(), $error> {
                let Self { inner, runtime } = self;
                runtime.wait(inner.$method())
            }
        )* }
    };
}

/// Methods that come to a guard, and those that come to one only if that needs no waiting.
macro_rules! guards {
    ($type:ident => $guard:ty, $error:ty:
        $($method:ident($($argument:ident: $kind:ty),*);)*
        => Option:
        $($attempt:ident($($given:ident: $of:ty),*);)*
    ) => {
        impl $type {
            $(
                #[doc = concat!("As [`crate::", stringify!($type), "::", stringify!($method), "`].")]
                ///
                /// # Errors
                /// As the method that it is named after.
                pub fn $method(&self $(, $argument: $kind)*) -> Result<Guard<$guard>, $error> {
                    let held = self.runtime.wait(self.inner.$method($($argument),*))?;
                    Ok(Guard::new(held, &self.runtime))
                }
            )*

            $(
                #[doc = concat!("As [`crate::", stringify!($type), "::", stringify!($attempt), "`].")]
                ///
                /// # Errors
                /// As the method that it is named after.
                pub fn $attempt(&self $(, $given: $of)*) -> Result<Option<Guard<$guard>>, $error> {
                    let held = self.runtime.wait(self.inner.$attempt($($given),*))?;
                    Ok(held.map(|held| Guard::new(held, &self.runtime)))
                }
            )*
        }
    };
}

/// The options of a builder, or the steps of a transaction: each gives it back, changed.
macro_rules! options {
    ($type:ident: $( $option:ident($($argument:ident: $kind:ty),*); )*) => {
        impl $type { $(
            #[doc = concat!("As [`crate::", stringify!($type), "::", stringify!($option), "`].")]
            pub fn $option(self $(, $argument: $kind)*) -> Self {
                let Self { inner, runtime } = self;
                Self { inner: inner.$option($($argument),*), runtime }
            }
        )* }
    };
}

pub(super) use {guards, options, same, waits, waits_for_end, waits_mut};
