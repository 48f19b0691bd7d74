//! Shared values whose methods wait.

use std::path::Path;
use std::sync::Arc;

use lockkeeper_client::{ZnodePath, Zxid};

use crate::blocking::client::Client;
use crate::blocking::forward::{same, waits, waits_mut};
use crate::blocking::runtime::Runtime;
use crate::values::{
    self, Added, Codec, CounterBuilder, Json, LastGoodError, PublicationBuilder, Revision,
    SharedBuilder, Swap, ValueChange, ValueError, ValuePathError, Versioned,
};

/// A number that many programs add to, as [`crate::Counter`]. What it guarantees and costs is
/// described there. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Counter {
    inner: values::Counter,
    runtime: Arc<Runtime>,
}

impl Counter {
    /// The counter at a path such as `/app/orders`. No I/O.
    ///
    /// # Errors
    /// As [`crate::Counter::new`].
    pub fn new(client: &Client, path: &str) -> Result<Self, ValuePathError> {
        Self::with(client, path, |counter| counter)
    }

    /// The same, with options. No I/O.
    ///
    /// # Errors
    /// As [`CounterBuilder::build`].
    pub fn with(
        client: &Client,
        path: &str,
        configure: impl FnOnce(CounterBuilder) -> CounterBuilder,
    ) -> Result<Self, ValuePathError> {
        let inner = configure(values::Counter::builder(client.as_async(), path)).build()?;
        Ok(Self { inner, runtime: Arc::clone(&client.runtime) })
    }

    /// The counter for async code, and for futures that are given to [`Client::wait`].
    pub fn as_async(&self) -> &values::Counter {
        &self.inner
    }
}

same! { Counter, "Counter": path() -> &ZnodePath; }
waits! { Counter, "Counter":
    value() -> Result<i64, ValueError>;
    add(delta: i64) -> Result<Added, ValueError>;
}

/// Numbers that nobody else has, as [`crate::IdBlocks`]. What it guarantees and costs is described
/// there. Cheap to clone.
#[derive(Clone, Debug)]
pub struct IdBlocks {
    inner: values::IdBlocks,
    runtime: Arc<Runtime>,
}

impl IdBlocks {
    /// As [`crate::IdBlocks::new`].
    pub fn new(counter: &Counter, size: u32) -> Self {
        let inner = values::IdBlocks::new(&counter.inner, size);
        Self { inner, runtime: Arc::clone(&counter.runtime) }
    }

    /// The numbers for async code, and for futures that are given to [`Client::wait`].
    pub fn as_async(&self) -> &values::IdBlocks {
        &self.inner
    }
}

waits! { IdBlocks, "IdBlocks": next() -> Result<i64, ValueError>; }

/// Wakes up whoever waits, in any program, as [`crate::Notify`]. What it guarantees and costs is
/// described there. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Notify {
    inner: values::Notify,
    runtime: Arc<Runtime>,
}

impl Notify {
    /// The notifications at a path such as `/app/news`. No I/O.
    ///
    /// # Errors
    /// As [`crate::Notify::new`].
    pub fn new(client: &Client, path: &str) -> Result<Self, ValuePathError> {
        let inner = values::Notify::new(client.as_async(), path)?;
        Ok(Self { inner, runtime: Arc::clone(&client.runtime) })
    }

    /// The notifications for async code, and for futures that are given to [`Client::wait`].
    pub fn as_async(&self) -> &values::Notify {
        &self.inner
    }
}

same! { Notify, "Notify": path() -> &ZnodePath; }
waits! { Notify, "Notify":
    notify() -> Result<Zxid, ValueError>;
    last() -> Result<Zxid, ValueError>;
    wait_past(known: Zxid) -> Result<Zxid, ValueError>;
}

/// One value that many programs read, change and follow, as [`crate::Shared`]. What it guarantees
/// and costs is described there. Cheap to clone.
#[derive(Debug)]
pub struct Shared<T, C = Json> {
    inner: values::Shared<T, C>,
    runtime: Arc<Runtime>,
}

impl<T> Shared<T>
where
    Json: Codec<T>,
{
    /// The value at a path such as `/app/limits`, written as JSON. No I/O.
    ///
    /// # Errors
    /// As [`crate::Shared::new`].
    pub fn new(client: &Client, path: &str) -> Result<Self, ValuePathError> {
        Self::with(client, path, |value| value)
    }
}

impl<T, C: Codec<T>> Shared<T, C> {
    /// The same, with options. No I/O.
    ///
    /// # Errors
    /// As [`SharedBuilder::build`].
    pub fn with(
        client: &Client,
        path: &str,
        configure: impl FnOnce(SharedBuilder<T>) -> SharedBuilder<T, C>,
    ) -> Result<Self, ValuePathError> {
        let inner = configure(SharedBuilder::new(client.as_async(), path)).build()?;
        Ok(Self { inner, runtime: Arc::clone(&client.runtime) })
    }

    /// The value for async code, and for futures that are given to [`Client::wait`].
    pub fn as_async(&self) -> &values::Shared<T, C> {
        &self.inner
    }

    /// Follows the value, as [`crate::Shared::changes`].
    pub fn changes(&self) -> ValueChanges<T, C> {
        ValueChanges { inner: self.inner.changes(), runtime: Arc::clone(&self.runtime) }
    }
}

same! { Shared<T, C> where [T, C: Codec<T>], "Shared": path() -> &ZnodePath; }
waits! { Shared<T, C> where [T, C: Codec<T>], "Shared":
    /// Reads the value.
    get() -> Result<Option<Versioned<T>>, ValueError>;
    /// Writes the value over whatever is there.
    set(value: &T) -> Result<Zxid, ValueError>;
    /// Writes the value if the present one is as expected.
    compare_and_set(expected: Option<Revision>, value: T) -> Result<Swap<T>, ValueError>;
    /// Changes the value.
    update(change: impl FnMut(Option<&T>) -> T) -> Result<Versioned<T>, ValueError>;
}

impl<T, C> Clone for Shared<T, C> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), runtime: Arc::clone(&self.runtime) }
    }
}

/// Follows a [`Shared`] value, as [`crate::ValueChanges`].
#[derive(Debug)]
pub struct ValueChanges<T, C = Json> {
    inner: values::ValueChanges<T, C>,
    runtime: Arc<Runtime>,
}

same! { ValueChanges<T, C> where [T: Clone, C: Codec<T>], "ValueChanges":
    latest() -> Option<&Versioned<T>>;
    is_current() -> bool;
}
waits! { ValueChanges<T, C> where [T: Clone, C: Codec<T>], "ValueChanges":
    /// Waits until the last good value is kept.
    kept() -> Result<(), LastGoodError>;
}
waits_mut! { ValueChanges<T, C> where [T: Clone, C: Codec<T>], "ValueChanges":
    /// Keeps the last good value in a file.
    keep_in(file: impl AsRef<Path>) -> Result<bool, LastGoodError>;
    /// Waits until the value is another one than told last.
    #[expect(
        clippy::should_implement_trait,
        reason = "it has no end, and the name is that of the async form"
    )]
    next() -> Result<ValueChange<T>, ValueError>;
}

/// What one publishes as a whole, and many follow, as [`crate::Publication`]. What it guarantees
/// and costs is described there. Cheap to clone.
#[derive(Debug)]
pub struct Publication<T, C = Json> {
    inner: values::Publication<T, C>,
    runtime: Arc<Runtime>,
}

impl<T> Publication<T>
where
    Json: Codec<T>,
{
    /// The publication at a path such as `/app/routes`, written as JSON. No I/O.
    ///
    /// # Errors
    /// As [`crate::Publication::new`].
    pub fn new(client: &Client, path: &str) -> Result<Self, ValuePathError> {
        Self::with(client, path, |publication| publication)
    }
}

impl<T, C: Codec<T>> Publication<T, C> {
    /// The same, with options. No I/O.
    ///
    /// # Errors
    /// As [`PublicationBuilder::build`].
    pub fn with(
        client: &Client,
        path: &str,
        configure: impl FnOnce(PublicationBuilder<T>) -> PublicationBuilder<T, C>,
    ) -> Result<Self, ValuePathError> {
        let builder = values::Publication::builder(client.as_async(), path);
        let inner = configure(builder).build()?;
        Ok(Self { inner, runtime: Arc::clone(&client.runtime) })
    }

    /// The publication for async code, and for futures that are given to [`Client::wait`].
    pub fn as_async(&self) -> &values::Publication<T, C> {
        &self.inner
    }

    /// Follows the publication, as [`crate::Publication::follow`].
    pub fn follow(&self) -> Editions<T, C> {
        Editions { inner: self.inner.follow(), runtime: Arc::clone(&self.runtime) }
    }
}

same! { Publication<T, C> where [T, C: Codec<T>], "Publication": path() -> &ZnodePath; }
waits! { Publication<T, C> where [T, C: Codec<T>], "Publication":
    /// Publishes an edition.
    publish(value: &T) -> Result<u64, ValueError>;
    /// Publishes an edition once more.
    rollback(number: u64) -> Result<Option<u64>, ValueError>;
    /// Reads the last edition.
    current() -> Result<Option<Versioned<T>>, ValueError>;
    /// The numbers of the editions that are kept.
    editions() -> Result<Vec<u64>, ValueError>;
}

impl<T, C> Clone for Publication<T, C> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), runtime: Arc::clone(&self.runtime) }
    }
}

/// Follows a [`Publication`], as [`crate::Editions`].
#[derive(Debug)]
pub struct Editions<T, C = Json> {
    inner: values::Editions<T, C>,
    runtime: Arc<Runtime>,
}

same! { Editions<T, C> where [T: Clone, C: Codec<T>], "Editions":
    latest() -> Option<&Versioned<T>>;
    is_current() -> bool;
}
waits! { Editions<T, C> where [T: Clone, C: Codec<T>], "Editions":
    /// Waits until the last good edition is kept.
    kept() -> Result<(), LastGoodError>;
}
waits_mut! { Editions<T, C> where [T: Clone, C: Codec<T>], "Editions":
    /// Keeps the last good edition in a file.
    keep_in(file: impl AsRef<Path>) -> Result<bool, LastGoodError>;
    /// Waits until there is another edition than told last.
    #[expect(
        clippy::should_implement_trait,
        reason = "it has no end, and the name is that of the async form"
    )]
    next() -> Result<ValueChange<T>, ValueError>;
}
