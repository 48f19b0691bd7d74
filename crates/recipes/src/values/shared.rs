//! [`Shared`]: one value that many programs read, change and watch.

use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use lockkeeper_client::{Client, CreateMode, Error, ErrorCode, Stat, ZnodePath, Zxid, present};

use crate::exact::{ExactWriter, Writers};
use crate::values::changes::ValueChanges;
use crate::values::codec::{Codec, Json};
use crate::values::error::{ValueError, ValuePathError};
use crate::values::place::{Place, PlaceOptions, place_options};
use crate::values::revision::{Revision, Versioned};

/// The result of a compare-and-set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it may not have been set"]
pub enum Swap<T> {
    /// The value was as expected, and is now this one.
    Done(Versioned<T>),
    /// The value was not as expected, and is unchanged: this one, or `None` if the node is missing.
    Conflict(Option<Versioned<T>>),
}

/// One value that many programs read, change and watch.
///
/// Do not use it for values that change many times a second, nor for more than a few hundred kilobytes: each change
/// is a write to a quorum, and all readers read all of it. Cheap to clone.
///
/// # Guarantees
///
/// - A change is applied once, even when its reply is lost. It is unknown whether it was applied only if, before
///   the answer came, the session ended, no server could be reached for a session timeout, or the outcome marker
///   was deleted.
/// - An update is never lost: it is computed from the very value that it replaces.
/// - Readers see the last state eventually, and never an older one after a newer one. They keep the last good value
///   when unreadable data is written.
///
/// # Not guaranteed
///
/// - Readers may miss changes: several in a row may be reported as one.
/// - An update is not exact over a node that is deleted and created again at the same time: once that has been
///   written as often as the old one, it has the same version.
///
/// # Znodes
///
/// - `<path>`, persistent, has the value as JSON, or in another [`Codec`]. With [`Raw`](crate::Raw), it is
///   Curator's `SharedValue`.
/// - `/lockkeeper-outcomes/<uuid>` is the outcome marker of a handle, ephemeral and nearly always empty. It is
///   deleted with the handle.
///
/// # Cost
///
/// - A get costs 1 round trip.
/// - A set or a compare-and-set costs 1 round trip (1 write). It costs 1 more to create the marker, once for each
///   write of a handle that is in progress at the same time, and 1 more to create the node.
/// - An update costs 2 round trips, and 1 more for each time that another program was faster, from the second time
///   in a row with a pause and a read.
/// - A reader costs 1 event and 1 read for a change, or for several in quick succession.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let engine = lockkeeper_engine::Engine::builder().start().await?;
/// # let client = lockkeeper::Client::connect(&engine.connect_string()).await?;
/// use lockkeeper::{Shared, ValueChange};
///
/// let limits: Shared<Vec<u32>> = Shared::new(&client, "/limits")?;
/// limits.set(&vec![10, 20]).await?;
/// let mut changes = limits.changes();
/// limits.update(|old| [old.cloned().unwrap_or_default(), vec![30]].concat()).await?;
/// match changes.next().await? {
///     ValueChange::Set(now) => assert_eq!(*now, [10, 20, 30]),
///     other => panic!("{other:?}"),
/// }
/// # client.close().await;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "SharedValue")]
#[doc(alias = "NodeCache")]
#[doc(alias = "DataWatch")]
#[doc(alias = "DistributedAtomicValue")]
pub struct Shared<T, C = Json> {
    place: Place,
    codec: Arc<C>,
    writers: Arc<Writers>,
    value: PhantomData<fn(T) -> T>,
}

/// Options of a [`Shared`] value.
#[must_use = "a builder does nothing until `build` is called"]
pub struct SharedBuilder<T, C = Json> {
    place: PlaceOptions,
    codec: C,
    value: PhantomData<fn() -> T>,
}

place_options!(SharedBuilder<T, C>);

impl<T> SharedBuilder<T> {
    pub(crate) fn new(client: &Client, path: &str) -> Self {
        Self { place: PlaceOptions::new(client, path), codec: Json, value: PhantomData }
    }
}

impl<T, C> SharedBuilder<T, C> {
    /// Sets the encoding of the value. Default: [`Json`].
    pub fn codec<D>(self, codec: D) -> SharedBuilder<T, D> {
        SharedBuilder { place: self.place, codec, value: self.value }
    }

    /// Creates the handle. No I/O.
    ///
    /// # Errors
    /// If one of the paths is not valid for a value.
    pub fn build(self) -> Result<Shared<T, C>, ValuePathError>
    where
        C: Codec<T>,
    {
        let (place, markers) = self.place.build()?;
        let writers = Arc::new(Writers::new(&place.client, markers));
        Ok(Shared { place, codec: Arc::new(self.codec), writers, value: PhantomData })
    }
}

impl<T> Shared<T> {
    /// The options of a value.
    pub fn builder(client: &Client, path: &str) -> SharedBuilder<T> {
        SharedBuilder::new(client, path)
    }
}

impl<T> Shared<T>
where
    Json: Codec<T>,
{
    /// A value at a path such as `/app/limits`, encoded as JSON. No I/O.
    ///
    /// # Errors
    /// If the path is not valid for a value.
    pub fn new(client: &Client, path: &str) -> Result<Self, ValuePathError> {
        Self::builder(client, path).build()
    }
}

impl<T, C: Codec<T>> Shared<T, C> {
    /// The value's path.
    pub fn path(&self) -> &ZnodePath {
        &self.place.path
    }

    /// Reads the value; `None` if the node is missing. Costs one round trip. A server of an ensemble may lag behind
    /// the latest writes.
    ///
    /// # Errors
    /// [`ValueError::Undecodable`] if it cannot be decoded; or if no server can be reached for a session timeout.
    ///
    /// # Session loss
    /// Reads again in the next session.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn get(&self) -> Result<Option<Versioned<T>>, ValueError> {
        let found = self.place.read().await?;
        found.map(|found| self.decode(found)).transpose()
    }

    /// Overwrites the value, and returns the transaction's number: the [`Revision::mzxid`] that others see. Costs
    /// one round trip (1 write), and [more](Shared#cost) at first.
    ///
    /// # Errors
    /// If the value cannot be encoded, is too large ([`ValueError::TooLong`] if the connection is lost at each
    /// attempt), or the request is refused; then nothing was changed. [`ValueError::Unknown`], the only error with
    /// an unknown [outcome](ValueError::outcome), if the session ended, no server could be reached for a session
    /// timeout, or the outcome marker was deleted, after the write was sent and before the answer came.
    ///
    /// # Session loss
    /// A write that was not sent yet continues in the next session.
    ///
    /// # Cancel safety
    /// When dropped, it is set once or not at all.
    pub async fn set(&self, value: &T) -> Result<Zxid, ValueError> {
        let data = self.place.encode(&*self.codec, value)?;
        let mut writer = self.writers.take();
        let (path, mut exists) = (&self.place.path, true);
        loop {
            let written = writer.commit(|steps| match exists {
                true => steps.set_data(path, data.clone(), None),
                false => steps.create(path, data.clone(), CreateMode::Persistent),
            });

            match (written.await, exists) {
                (Ok(applied), _) => return Ok(applied.zxid),
                (Err(error), true) if error.refuses_first(&[ErrorCode::NoNode]) => exists = false,
                (Err(error), false) if error.refuses_first(&[ErrorCode::NodeExists]) => {
                    exists = true;
                }
                (Err(error), false) if error.refuses_first(&[ErrorCode::NoNode]) => {
                    self.place.make_parents().await?;
                }
                (Err(error), _) => return Err(ValueError::write(path, error)),
            }
        }
    }

    /// Writes the value if the current one is still `expected`; `None` means a missing node. Costs one round trip,
    /// also on a conflict.
    ///
    /// # Errors
    /// As [`Shared::set`]; [`ValueError::VersionWrapped`] if the expected version is -1, because servers take that
    /// for any version; and [`ValueError::Undecodable`] if the current value is another one and cannot be decoded.
    ///
    /// # Session loss
    /// As [`Shared::set`].
    ///
    /// # Cancel safety
    /// As [`Shared::set`].
    pub async fn compare_and_set(
        &self,
        expected: Option<Revision>,
        value: T,
    ) -> Result<Swap<T>, ValueError> {
        self.swap(&mut self.writers.take(), expected, value).await
    }

    async fn swap(
        &self,
        writer: &mut ExactWriter,
        expected: Option<Revision>,
        value: T,
    ) -> Result<Swap<T>, ValueError> {
        let data = self.place.encode(&*self.codec, &value)?;
        let Place { client, path } = &self.place;
        if expected.is_some_and(|expected| expected.version == -1) {
            return Err(ValueError::VersionWrapped { path: path.clone() });
        }

        loop {
            // The read must follow the write.
            writer.prepare().await.map_err(|error| ValueError::write(path, error))?;
            let written = writer.commit(|steps| match expected {
                None => steps.create(path, data.clone(), CreateMode::Persistent),
                Some(old) => steps.set_data(path, data.clone(), Some(old.version)),
            });
            let seen = async { present(client.data(path).await) };
            let (written, seen) = tokio::join! { biased; written, seen };

            match written {
                Ok(applied) => {
                    let revision = Revision::following(expected, applied.zxid);
                    return Ok(Swap::Done(Versioned { value, revision }));
                }
                Err(error) if error.refuses_first(conflicts(expected)) => {
                    let found = self.conflicting(expected, seen).await?;
                    return Ok(Swap::Conflict(found.map(|found| self.decode(found)).transpose()?));
                }
                Err(error) if expected.is_none() && error.refuses_first(&[ErrorCode::NoNode]) => {
                    self.place.make_parents().await?;
                }
                Err(error) => return Err(ValueError::write(path, error)),
            }
        }
    }

    /// The current value after a conflict.
    async fn conflicting(
        &self,
        expected: Option<Revision>,
        seen: Result<Option<(Bytes, Stat)>, Error>,
    ) -> Result<Option<(Bytes, Stat)>, ValueError> {
        match seen {
            Ok(found) if found.as_ref().map(|(_, stat)| (*stat).into()) != expected => Ok(found),
            // The read was sent before a write that had to be repeated.
            _ => self.place.read().await,
        }
    }

    /// Changes the value: writes the result of `change` for the current value, which is `None` if the node is
    /// missing. `change` is called again with the new value each time that another program was faster, from the
    /// second time in a row after a random pause of up to a second, so that programs that change the value at the
    /// same time take turns. Costs two round trips (1 write), and [more](Shared#cost) at first and when other
    /// programs write too.
    ///
    /// # Errors
    /// As [`Shared::compare_and_set`].
    ///
    /// # Session loss
    /// As [`Shared::set`].
    ///
    /// # Cancel safety
    /// As [`Shared::set`].
    pub async fn update(
        &self,
        mut change: impl FnMut(Option<&T>) -> T,
    ) -> Result<Versioned<T>, ValueError> {
        let mut writer = self.writers.take();
        writer.let_others().await;
        let mut old = self.get().await?;
        loop {
            let new = change(old.as_ref().map(|old| &old.value));
            let expected = old.map(|old| old.revision);
            old = match self.swap(&mut writer, expected, new).await? {
                Swap::Done(done) => return Ok(done),
                Swap::Conflict(_) if writer.lost().await => self.get().await?,
                Swap::Conflict(found) => found,
            };
        }
    }

    /// The changes of the value, starting with the current one. Sends no request before the first
    /// [`ValueChanges::next`].
    pub fn changes(&self) -> ValueChanges<T, C> {
        ValueChanges::new(self.place.clone(), Arc::clone(&self.codec))
    }

    fn decode(&self, found: (Bytes, Stat)) -> Result<Versioned<T>, ValueError> {
        self.place.decode(&*self.codec, found)
    }
}

/// The error codes of a write whose expected state is outdated.
fn conflicts(expected: Option<Revision>) -> &'static [ErrorCode] {
    match expected {
        None => &[ErrorCode::NodeExists],
        Some(_) => &[ErrorCode::BadVersion, ErrorCode::NoNode],
    }
}

impl<T, C> Clone for Shared<T, C> {
    fn clone(&self) -> Self {
        let (codec, writers) = (Arc::clone(&self.codec), Arc::clone(&self.writers));
        Self { place: self.place.clone(), codec, writers, value: PhantomData }
    }
}

lockkeeper_client::impl_debug!(SharedBuilder<T, C>, self => path: self.place.path);

lockkeeper_client::impl_debug!(Shared<T, C>, self => path: self.place.path);
