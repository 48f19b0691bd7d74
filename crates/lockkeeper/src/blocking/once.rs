//! What is done once for each key, with methods that wait.

use std::ops::Deref;
use std::sync::Arc;

use lockkeeper_client::ZnodePath;

use crate::blocking::client::Client;
use crate::blocking::forward::{same, waits};
use crate::blocking::guard::Guard;
use crate::blocking::runtime::Runtime;
use crate::error::BuildError;
use crate::guard;
use crate::once::{self, Begun, OnceBuilder, OnceError, OnceKey, OnceRecord, Tick};

/// Something is done once for each key, as [`crate::Once`]. What it guarantees and costs is described there.
/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct Once {
    inner: once::Once,
    runtime: Arc<Runtime>,
}

/// Something that was begun for a key, as [`crate::OnceRun`].
#[must_use = "without `end`, it counts as unfinished"]
#[derive(Debug)]
pub struct OnceRun<'a> {
    inner: once::OnceRun<'a>,
    runtime: Arc<Runtime>,
}

impl Once {
    /// The records of the lock at this path. No I/O.
    ///
    /// # Errors
    /// As [`crate::Once::new`].
    pub fn new(client: &Client, lock: &str) -> Result<Self, BuildError> {
        Self::with(client, lock, |once| once)
    }

    /// The same, with options. No I/O.
    ///
    /// # Errors
    /// As [`OnceBuilder::build`].
    pub fn with(
        client: &Client,
        lock: &str,
        configure: impl FnOnce(OnceBuilder) -> OnceBuilder,
    ) -> Result<Self, BuildError> {
        let inner = configure(once::Once::builder(client.as_async(), lock)).build()?;
        Ok(Self { inner, runtime: Arc::clone(&client.runtime) })
    }

    /// The records for async code, and for futures that are given to [`Client::wait`].
    pub fn as_async(&self) -> &once::Once {
        &self.inner
    }

    /// As [`crate::Once::begin`].
    ///
    /// # Errors
    /// As the method that it is named after.
    pub fn begin<'a, G: Deref<Target = guard::Guard>>(
        &self,
        guard: &'a Guard<G>,
        key: impl Into<OnceKey>,
    ) -> Result<Begun<OnceRun<'a>>, OnceError> {
        Ok(match self.runtime.wait(self.inner.begin(&guard.inner, key))? {
            Begun::Run(inner) => Begun::Run(OnceRun { inner, runtime: Arc::clone(&self.runtime) }),
            Begun::Done(record) => Begun::Done(record),
            Begun::Unfinished(record) => Begun::Unfinished(record),
            Begun::Passed(tick) => Begun::Passed(tick),
        })
    }

    /// As [`crate::Once::forget`].
    ///
    /// # Errors
    /// As the method that it is named after.
    pub fn forget(&self, key: impl Into<OnceKey>) -> Result<bool, OnceError> {
        self.runtime.wait(self.inner.forget(key))
    }
}

same! { Once, "Once": lock() -> &ZnodePath; }
waits! { Once, "Once":
    records() -> Result<Vec<OnceRecord>, OnceError>;
    last_tick() -> Result<Option<Tick>, OnceError>;
}

same! { OnceRun<'_>, "OnceRun":
    key() -> &OnceKey;
    attempt() -> u32;
    earlier() -> Option<&OnceRecord>;
}

impl OnceRun<'_> {
    /// As [`crate::OnceRun::end`].
    ///
    /// # Errors
    /// As the method that it is named after.
    pub fn end(self, code: i32) -> Result<(), OnceError> {
        self.runtime.wait(self.inner.end(code))
    }
}
