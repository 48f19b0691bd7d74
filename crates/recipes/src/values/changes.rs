//! Following a shared value, and a publication.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::values::codec::{Codec, Json};
use crate::values::error::ValueError;
use crate::values::follower::{Form, ValueChange, ValueFollower};
use crate::values::last_good::LastGoodError;
use crate::values::place::Place;
use crate::values::revision::Versioned;

/// Follows a [`Shared`](crate::Shared) value, over lost connections and ended sessions.
pub struct ValueChanges<T, C = Json>(ValueFollower<T, C>);

impl<T, C: Codec<T>> ValueChanges<T, C> {
    pub(super) fn new(place: Place, codec: Arc<C>) -> Self {
        Self(ValueFollower::new(place, codec, Form::Value))
    }

    /// The last value that could be read, of those that [`ValueChanges::next`] has told, or the
    /// [restored](ValueChanges::keep_in) one. It stays when the node is deleted, when somebody writes what
    /// cannot be read, and without a connection.
    pub fn latest(&self) -> Option<&Versioned<T>> {
        self.0.latest()
    }

    /// Whether nothing is known that was not told: there is a connection, and no change since the last
    /// look at the node. A restored value is not current before servers have confirmed it. An
    /// ensemble's server may still be behind its leader; see [`Client::sync`](lockkeeper_client::Client::sync).
    pub fn is_current(&self) -> bool {
        self.0.is_current()
    }

    /// Keeps the last good value in a file, so that this program can start without servers, and restores
    /// the one that is there: it is the [latest](ValueChanges::latest), although not
    /// [current](ValueChanges::is_current). [`ValueChanges::next`] then tells only what is different on
    /// the servers. Returns whether a value was restored. To be called before the first `next`; after
    /// it, nothing is restored.
    ///
    /// The file belongs to this user alone (mode 0600), and to this one node; programs of the same user
    /// may share it. Each good value replaces it in one step, in the background. The directory must
    /// exist. For a client that does not wait for servers, see
    /// [`ClientBuilder::connect_later`](lockkeeper_client::ClientBuilder::connect_later).
    ///
    /// The restored value may be old: it is what this program was told last, on this machine. It is no
    /// permission to do what another program may have been told not to do since. Makes no request.
    ///
    /// # Errors
    /// Why nothing was restored although there is a file. Following goes on without it; whether values
    /// are kept in it nevertheless, the error says.
    ///
    /// # Session loss
    /// Has no effect.
    ///
    /// # Cancel safety
    /// Safe; nothing is kept.
    pub async fn keep_in(&mut self, file: impl AsRef<Path>) -> Result<bool, LastGoodError> {
        self.0.keep_in(file.as_ref()).await
    }

    /// Waits until the last good value is [kept](ValueChanges::keep_in); at once if none is to be. Makes no
    /// request.
    ///
    /// # Errors
    /// Why it is not. The next value is tried again.
    ///
    /// # Session loss
    /// Has no effect.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn kept(&self) -> Result<(), LastGoodError> {
        self.0.kept().await
    }

    /// Waits until the value is another one than told last; the first time, tells what it is now. Costs an
    /// event and one round trip for each change, two round trips at the start of each session, and one more
    /// while there is no node.
    ///
    /// # Errors
    /// If the node may not be read, or the client is closed: then it always fails
    /// ([`ValueError::is_retryable`] is false). While no server can be reached it waits.
    ///
    /// # Session loss
    /// It goes on in the next session, and misses nothing.
    ///
    /// # Cancel safety
    /// Safe: nothing is missed.
    pub async fn next(&mut self) -> Result<ValueChange<T>, ValueError>
    where
        T: Clone,
    {
        self.0.next().await
    }
}

impl<T: fmt::Debug, C> fmt::Debug for ValueChanges<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.debug("ValueChanges", f)
    }
}

/// Follows a [`Publication`](crate::Publication), over lost connections and ended sessions.
pub struct Editions<T, C = Json>(ValueFollower<T, C>);

impl<T, C: Codec<T>> Editions<T, C> {
    pub(super) fn new(place: Place, codec: Arc<C>) -> Self {
        Self(ValueFollower::new(place, codec, Form::Manifest))
    }

    /// The last edition that could be read, of those that [`Editions::next`] has told, or the
    /// [restored](Editions::keep_in) one.
    pub fn latest(&self) -> Option<&Versioned<T>> {
        self.0.latest()
    }

    /// Whether nothing is known that was not told, as [`ValueChanges::is_current`].
    pub fn is_current(&self) -> bool {
        self.0.is_current()
    }

    /// Keeps the last good edition in a file, and restores the one that is there, as
    /// [`ValueChanges::keep_in`]: the file is as long as the edition, and a little longer. A long edition
    /// is fetched once more when the servers can be reached, to see whether it is the restored one. Makes
    /// no request.
    ///
    /// # Errors
    /// As [`ValueChanges::keep_in`].
    ///
    /// # Session loss
    /// Has no effect.
    ///
    /// # Cancel safety
    /// Safe; nothing is kept.
    pub async fn keep_in(&mut self, file: impl AsRef<Path>) -> Result<bool, LastGoodError> {
        self.0.keep_in(file.as_ref()).await
    }

    /// Waits until the last good edition is [kept](Editions::keep_in); at once if none is to be. Makes no
    /// request.
    ///
    /// # Errors
    /// Why it is not. The next edition is tried again.
    ///
    /// # Session loss
    /// Has no effect.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn kept(&self) -> Result<(), LastGoodError> {
        self.0.kept().await
    }

    /// Waits until there is another edition than told last; the first time, tells which there is now.
    /// [`ValueChange::Absent`] stands for no edition, and [`ValueChange::Invalid`] also for one with parts
    /// that are longer than this client takes ([`ClientBuilder::max_frame`](lockkeeper_client::ClientBuilder::max_frame)).
    /// Costs what [`ValueChanges::next`] does, and one round trip more for an edition in parts.
    ///
    /// # Errors
    /// If a node may not be read, no server answers for a whole session timeout while an edition is
    /// fetched, or the client is closed. Called again it waits for the servers and misses nothing: an edition
    /// that could not be read is tried again, unless there is a newer one. If the client is closed
    /// ([`Client::is_closed`](lockkeeper_client::Client::is_closed)), it always fails.
    ///
    /// # Session loss
    /// It goes on in the next session, and misses nothing.
    ///
    /// # Cancel safety
    /// Safe: nothing is missed.
    pub async fn next(&mut self) -> Result<ValueChange<T>, ValueError>
    where
        T: Clone,
    {
        self.0.next().await
    }
}

impl<T: fmt::Debug, C> fmt::Debug for Editions<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.debug("Editions", f)
    }
}
