//! Watching a shared value, and a publication.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::values::codec::{Codec, Json};
use crate::values::error::ValueError;
use crate::values::follower::{Form, ValueChange, ValueFollower};
use crate::values::last_good::LastGoodError;
use crate::values::place::Place;
use crate::values::revision::Versioned;

/// The changes of a [`Shared`](crate::Shared) value, over lost connections and ended sessions.
pub struct ValueChanges<T, C = Json>(ValueFollower<T, C>);

impl<T, C: Codec<T>> ValueChanges<T, C> {
    pub(super) fn new(place: Place, codec: Arc<C>) -> Self {
        Self(ValueFollower::new(place, codec, Form::Value))
    }

    /// The last readable value that [`ValueChanges::next`] has returned, or the
    /// [restored](ValueChanges::keep_in) one. It stays available when the node is deleted, when unreadable data is
    /// written, and without a connection.
    pub fn latest(&self) -> Option<&Versioned<T>> {
        self.0.latest()
    }

    /// Whether all known changes have been returned: the client is connected, and the node has not changed since it
    /// was last read. A restored value is not current before servers have confirmed it. A
    /// server of an ensemble may still lag behind its leader; see [`Client::sync`](lockkeeper_client::Client::sync).
    pub fn is_current(&self) -> bool {
        self.0.is_current()
    }

    /// Keeps the last good value in a file, so that this program can start without servers, and restores
    /// the value in the file, if any: it is the [latest](ValueChanges::latest), although not
    /// [current](ValueChanges::is_current). [`ValueChanges::next`] then returns only differences on
    /// the servers. Returns whether a value was restored. Call it before the first `next`; after
    /// that, no value is restored.
    ///
    /// The file belongs to this user (mode 0600), and to this one node; programs of the same user
    /// may share it. Each good value replaces it atomically, in the background. The directory must
    /// exist. For a client that starts without servers, see
    /// [`ClientBuilder::connect_later`](lockkeeper_client::ClientBuilder::connect_later).
    ///
    /// The restored value may be old: it is the last one that this program received on this machine. Do not use it
    /// to justify an action that a newer value may forbid. Makes no request.
    ///
    /// # Errors
    /// Why no value was restored although the file exists. The changes are available without it; the error says
    /// whether later values are kept in the file nevertheless.
    ///
    /// # Session loss
    /// None.
    ///
    /// # Cancel safety
    /// Safe; no value is kept.
    pub async fn keep_in(&mut self, file: impl AsRef<Path>) -> Result<bool, LastGoodError> {
        self.0.keep_in(file.as_ref()).await
    }

    /// Waits until the last good value is [kept](ValueChanges::keep_in); returns at once without a file. Makes no
    /// request.
    ///
    /// # Errors
    /// Why it could not be kept. The next value is tried again.
    ///
    /// # Session loss
    /// None.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn kept(&self) -> Result<(), LastGoodError> {
        self.0.kept().await
    }

    /// Waits until the value differs from the last one returned; the first call returns the current value. Costs an
    /// event and one round trip for each change, two round trips at the start of each session, and one more
    /// while the node is missing.
    ///
    /// # Errors
    /// If the node may not be read, or the client is closed: all later calls fail too
    /// ([`ValueError::is_retryable`] is false). While no server can be reached, it waits.
    ///
    /// # Session loss
    /// Continues in the next session without missing a change.
    ///
    /// # Cancel safety
    /// Safe: no change is lost.
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

/// The editions of a [`Publication`](crate::Publication), over lost connections and ended sessions.
pub struct Editions<T, C = Json>(ValueFollower<T, C>);

impl<T, C: Codec<T>> Editions<T, C> {
    pub(super) fn new(place: Place, codec: Arc<C>) -> Self {
        Self(ValueFollower::new(place, codec, Form::Manifest))
    }

    /// The last readable edition that [`Editions::next`] has returned, or the
    /// [restored](Editions::keep_in) one.
    pub fn latest(&self) -> Option<&Versioned<T>> {
        self.0.latest()
    }

    /// Whether all known changes have been returned, as [`ValueChanges::is_current`].
    pub fn is_current(&self) -> bool {
        self.0.is_current()
    }

    /// Keeps the last good edition in a file, and restores the edition in the file, as
    /// [`ValueChanges::keep_in`]. The file is slightly longer than the edition. A long edition
    /// is read again when the servers can be reached, to compare it with the restored one. Makes
    /// no request.
    ///
    /// # Errors
    /// As [`ValueChanges::keep_in`].
    ///
    /// # Session loss
    /// None.
    ///
    /// # Cancel safety
    /// Safe; no edition is kept.
    pub async fn keep_in(&mut self, file: impl AsRef<Path>) -> Result<bool, LastGoodError> {
        self.0.keep_in(file.as_ref()).await
    }

    /// Waits until the last good edition is [kept](Editions::keep_in); returns at once without a file. Makes no
    /// request.
    ///
    /// # Errors
    /// Why it could not be kept. The next edition is tried again.
    ///
    /// # Session loss
    /// None.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn kept(&self) -> Result<(), LastGoodError> {
        self.0.kept().await
    }

    /// Waits for an edition other than the last one returned; the first call returns the current one.
    /// [`ValueChange::Absent`] means that no edition exists, and [`ValueChange::Invalid`] includes editions with
    /// parts that are longer than this client accepts
    /// ([`ClientBuilder::max_frame`](lockkeeper_client::ClientBuilder::max_frame)). Costs as much as
    /// [`ValueChanges::next`], and one round trip more for an edition in parts.
    ///
    /// # Errors
    /// If a node may not be read, no server answers for a session timeout while an edition is
    /// read, or the client is closed. The next call waits for the servers, and misses nothing: an edition
    /// that could not be read is tried again, unless a newer one exists. If the client is closed
    /// ([`Client::is_closed`](lockkeeper_client::Client::is_closed)), all later calls fail too.
    ///
    /// # Session loss
    /// Continues in the next session without missing a change.
    ///
    /// # Cancel safety
    /// Safe: no change is lost.
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
