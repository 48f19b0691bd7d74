//! Shared values whose methods wait.

use std::path::Path;
use std::sync::Arc;

use lockkeeper_client::{ZnodePath, Zxid};

use crate::blocking::client::Client;
use crate::blocking::forward::{same, waits};
use crate::blocking::runtime::Runtime;
use crate::values::{
    self, Added, Codec, CounterBuilder, Json, LastGoodError, PublicationBuilder, Revision,
    SharedBuilder, Swap, ValueChange, ValueError, ValuePathError, Versioned,
};

/// A number that many programs add to, as [`crate::Counter`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Counter {
    counter: values::Counter,
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
        let counter = configure(values::Counter::builder(client.as_async(), path)).build()?;
        Ok(Self { counter, runtime: Arc::clone(&client.runtime) })
    }

    /// The counter for async code, and for futures that are given to [`Client::wait`].
    pub fn as_async(&self) -> &values::Counter {
        &self.counter
    }
}

same! { Counter, "Counter": path() -> &ZnodePath; }
waits! { Counter, "Counter":
    value() -> Result<i64, ValueError>;
    add(delta: i64) -> Result<Added, ValueError>;
}

/// Numbers that nobody else has, as [`crate::IdBlocks`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct IdBlocks {
    blocks: values::IdBlocks,
    runtime: Arc<Runtime>,
}

impl IdBlocks {
    /// As [`crate::IdBlocks::new`].
    pub fn new(counter: &Counter, size: u32) -> Self {
        let blocks = values::IdBlocks::new(&counter.counter, size);
        Self { blocks, runtime: Arc::clone(&counter.runtime) }
    }

    /// The numbers for async code, and for futures that are given to [`Client::wait`].
    pub fn as_async(&self) -> &values::IdBlocks {
        &self.blocks
    }
}

waits! { IdBlocks, "IdBlocks": next() -> Result<i64, ValueError>; }

/// Wakes up whoever waits, in any program, as [`crate::Notify`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Notify {
    notify: values::Notify,
    runtime: Arc<Runtime>,
}

impl Notify {
    /// The notifications at a path such as `/app/news`. No I/O.
    ///
    /// # Errors
    /// As [`crate::Notify::new`].
    pub fn new(client: &Client, path: &str) -> Result<Self, ValuePathError> {
        let notify = values::Notify::new(client.as_async(), path)?;
        Ok(Self { notify, runtime: Arc::clone(&client.runtime) })
    }

    /// The notifications for async code, and for futures that are given to [`Client::wait`].
    pub fn as_async(&self) -> &values::Notify {
        &self.notify
    }
}

same! { Notify, "Notify": path() -> &ZnodePath; }
waits! { Notify, "Notify":
    notify() -> Result<Zxid, ValueError>;
    last() -> Result<Zxid, ValueError>;
    wait_past(known: Zxid) -> Result<Zxid, ValueError>;
}

/// One value that many programs read, change and follow, as [`crate::Shared`]. Cheap to clone.
#[derive(Debug)]
pub struct Shared<T, C = Json> {
    shared: values::Shared<T, C>,
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
        let shared = configure(SharedBuilder::new(client.as_async(), path)).build()?;
        Ok(Self { shared, runtime: Arc::clone(&client.runtime) })
    }

    /// The value for async code, and for futures that are given to [`Client::wait`].
    pub fn as_async(&self) -> &values::Shared<T, C> {
        &self.shared
    }

    /// As [`crate::Shared::path`].
    pub fn path(&self) -> &ZnodePath {
        self.shared.path()
    }

    /// Reads the value, as [`crate::Shared::get`].
    ///
    /// # Errors
    /// As [`crate::Shared::get`].
    pub fn get(&self) -> Result<Option<Versioned<T>>, ValueError> {
        self.runtime.wait(self.shared.get())
    }

    /// Writes the value over whatever is there, as [`crate::Shared::set`].
    ///
    /// # Errors
    /// As [`crate::Shared::set`].
    pub fn set(&self, value: &T) -> Result<Zxid, ValueError> {
        self.runtime.wait(self.shared.set(value))
    }

    /// Writes the value if the present one is as expected, as [`crate::Shared::compare_and_set`].
    ///
    /// # Errors
    /// As [`crate::Shared::compare_and_set`].
    pub fn compare_and_set(
        &self,
        expected: Option<Revision>,
        value: T,
    ) -> Result<Swap<T>, ValueError> {
        self.runtime.wait(self.shared.compare_and_set(expected, value))
    }

    /// Changes the value, as [`crate::Shared::update`].
    ///
    /// # Errors
    /// As [`crate::Shared::update`].
    pub fn update(&self, change: impl FnMut(Option<&T>) -> T) -> Result<Versioned<T>, ValueError> {
        self.runtime.wait(self.shared.update(change))
    }

    /// Follows the value, as [`crate::Shared::changes`].
    pub fn changes(&self) -> ValueChanges<T, C> {
        ValueChanges { changes: self.shared.changes(), runtime: Arc::clone(&self.runtime) }
    }
}

impl<T, C> Clone for Shared<T, C> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), runtime: Arc::clone(&self.runtime) }
    }
}

/// Follows a [`Shared`] value, as [`crate::ValueChanges`].
#[derive(Debug)]
pub struct ValueChanges<T, C = Json> {
    changes: values::ValueChanges<T, C>,
    runtime: Arc<Runtime>,
}

impl<T: Clone, C: Codec<T>> ValueChanges<T, C> {
    /// As [`crate::ValueChanges::latest`].
    pub fn latest(&self) -> Option<&Versioned<T>> {
        self.changes.latest()
    }

    /// As [`crate::ValueChanges::is_current`].
    pub fn is_current(&self) -> bool {
        self.changes.is_current()
    }

    /// Keeps the last good value in a file, as [`crate::ValueChanges::keep_in`].
    ///
    /// # Errors
    /// As [`crate::ValueChanges::keep_in`].
    pub fn keep_in(&mut self, file: impl AsRef<Path>) -> Result<bool, LastGoodError> {
        self.runtime.wait(self.changes.keep_in(file))
    }

    /// Waits until the last good value is kept, as [`crate::ValueChanges::kept`].
    ///
    /// # Errors
    /// As [`crate::ValueChanges::kept`].
    pub fn kept(&self) -> Result<(), LastGoodError> {
        self.runtime.wait(self.changes.kept())
    }

    /// Waits until the value is another one than told last, as [`crate::ValueChanges::next`].
    ///
    /// # Errors
    /// As [`crate::ValueChanges::next`].
    #[expect(
        clippy::should_implement_trait,
        reason = "it has no end, and the name is that of the async form"
    )]
    pub fn next(&mut self) -> Result<ValueChange<T>, ValueError> {
        self.runtime.wait(self.changes.next())
    }
}

/// What one publishes as a whole, and many follow, as [`crate::Publication`]. Cheap to clone.
#[derive(Debug)]
pub struct Publication<T, C = Json> {
    publication: values::Publication<T, C>,
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
        let publication = configure(builder).build()?;
        Ok(Self { publication, runtime: Arc::clone(&client.runtime) })
    }

    /// The publication for async code, and for futures that are given to [`Client::wait`].
    pub fn as_async(&self) -> &values::Publication<T, C> {
        &self.publication
    }

    /// As [`crate::Publication::path`].
    pub fn path(&self) -> &ZnodePath {
        self.publication.path()
    }

    /// Publishes an edition, as [`crate::Publication::publish`].
    ///
    /// # Errors
    /// As [`crate::Publication::publish`].
    pub fn publish(&self, value: &T) -> Result<u64, ValueError> {
        self.runtime.wait(self.publication.publish(value))
    }

    /// Publishes an edition once more, as [`crate::Publication::rollback`].
    ///
    /// # Errors
    /// As [`crate::Publication::rollback`].
    pub fn rollback(&self, number: u64) -> Result<Option<u64>, ValueError> {
        self.runtime.wait(self.publication.rollback(number))
    }

    /// Reads the last edition, as [`crate::Publication::current`].
    ///
    /// # Errors
    /// As [`crate::Publication::current`].
    pub fn current(&self) -> Result<Option<Versioned<T>>, ValueError> {
        self.runtime.wait(self.publication.current())
    }

    /// The numbers of the editions that are kept, as [`crate::Publication::editions`].
    ///
    /// # Errors
    /// As [`crate::Publication::editions`].
    pub fn editions(&self) -> Result<Vec<u64>, ValueError> {
        self.runtime.wait(self.publication.editions())
    }

    /// Follows the publication, as [`crate::Publication::follow`].
    pub fn follow(&self) -> Editions<T, C> {
        Editions { editions: self.publication.follow(), runtime: Arc::clone(&self.runtime) }
    }
}

impl<T, C> Clone for Publication<T, C> {
    fn clone(&self) -> Self {
        Self { publication: self.publication.clone(), runtime: Arc::clone(&self.runtime) }
    }
}

/// Follows a [`Publication`], as [`crate::Editions`].
#[derive(Debug)]
pub struct Editions<T, C = Json> {
    editions: values::Editions<T, C>,
    runtime: Arc<Runtime>,
}

impl<T: Clone, C: Codec<T>> Editions<T, C> {
    /// As [`crate::Editions::latest`].
    pub fn latest(&self) -> Option<&Versioned<T>> {
        self.editions.latest()
    }

    /// As [`crate::Editions::is_current`].
    pub fn is_current(&self) -> bool {
        self.editions.is_current()
    }

    /// Keeps the last good edition in a file, as [`crate::Editions::keep_in`].
    ///
    /// # Errors
    /// As [`crate::Editions::keep_in`].
    pub fn keep_in(&mut self, file: impl AsRef<Path>) -> Result<bool, LastGoodError> {
        self.runtime.wait(self.editions.keep_in(file))
    }

    /// Waits until the last good edition is kept, as [`crate::Editions::kept`].
    ///
    /// # Errors
    /// As [`crate::Editions::kept`].
    pub fn kept(&self) -> Result<(), LastGoodError> {
        self.runtime.wait(self.editions.kept())
    }

    /// Waits until there is another edition than told last, as [`crate::Editions::next`].
    ///
    /// # Errors
    /// As [`crate::Editions::next`].
    #[expect(
        clippy::should_implement_trait,
        reason = "it has no end, and the name is that of the async form"
    )]
    pub fn next(&mut self) -> Result<ValueChange<T>, ValueError> {
        self.runtime.wait(self.editions.next())
    }
}
