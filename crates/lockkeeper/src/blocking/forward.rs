//! Macros that make blocking methods out of async ones. Each method is listed by name, so that none
//! that returns a future gets in. A new method of an async lock or guard must be listed too.

/// Methods that ask no server, as they are.
macro_rules! same {
    ($type:ty, $of:literal: $(
        $method:ident($($argument:ident: $kind:ty),*) $(-> $output:ty)?;
    )*) => {
        impl $type { $(
            #[doc = concat!("As [`crate::", $of, "::", stringify!($method), "`].")]
            pub fn $method(&self $(, $argument: $kind)*) $(-> $output)? {
                self.as_async().$method($($argument),*)
            }
        )* }
    };
}

/// Methods that ask a server, and wait for what comes of it.
macro_rules! waits {
    ($type:ty, $of:literal: $(
        $method:ident($($argument:ident: $kind:ty),*) -> Result<$output:ty, $error:ty>;
    )*) => {
        impl $type { $(
            #[doc = concat!("As [`crate::", $of, "::", stringify!($method), "`].")]
            ///
            /// # Errors
            /// As the method that it is named after.
            pub fn $method(&self $(, $argument: $kind)*) -> Result<$output, $error> {
                self.runtime.wait(self.as_async().$method($($argument),*))
            }
        )* }
    };
}

pub(super) use {same, waits};
