//! Following a shared value.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use lockkeeper_client::{Contact, Error, SessionId, Watcher, Zxid};

use crate::error::present;
use crate::retry::reachable;
use crate::values::codec::{Codec, Json};
use crate::values::error::ValueError;
use crate::values::keeping::Keeping;
use crate::values::last_good::LastGoodError;
use crate::values::place::Place;
use crate::values::revision::{Revision, Versioned};

/// What has become of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueChange<T> {
    /// It is this one now.
    Set(Versioned<T>),
    /// Somebody has written what cannot be read. The last good value is [`ValueChanges::latest`] still.
    Invalid {
        /// Which state of the node it is.
        revision: Revision,
        /// Why it cannot be read.
        reason: String,
    },
    /// There is no node.
    Absent,
}

/// Follows a [`Shared`](crate::Shared) value, over lost connections and ended sessions.
pub struct ValueChanges<T, C = Json> {
    place: Place,
    codec: Arc<C>,
    latest: Option<Versioned<T>>,
    told: Told,
    /// How often servers had lost their data at the last look.
    rewinds: u64,
    /// The session of the last look.
    session: SessionId,
    /// Of the state that was seen.
    watcher: Option<Watcher>,
    keeping: Keeping,
}

/// What was told last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Told {
    /// The newest state of the node. It stays when the node is deleted: a server that is behind may
    /// show an older one afterwards. It is forgotten when the servers have lost their data.
    newest: Option<Zxid>,
    /// Whether there was no node after it.
    absent: bool,
}

impl<T, C: Codec<T>> ValueChanges<T, C> {
    pub(super) fn new(place: Place, codec: Arc<C>) -> Self {
        let (told, session, watcher) = (Told::default(), SessionId::NONE, None);
        let (latest, keeping, rewinds) = (None, Keeping::default(), place.rewinds());
        Self { place, codec, latest, told, rewinds, session, watcher, keeping }
    }

    /// The last value that could be read, of those that [`ValueChanges::next`] has told, or the
    /// [restored](ValueChanges::keep_in) one. It stays when the node is deleted, when somebody writes what
    /// cannot be read, and without a connection.
    pub fn latest(&self) -> Option<&Versioned<T>> {
        self.latest.as_ref()
    }

    /// Whether nothing is known that was not told: there is a connection, and no change since the last
    /// look at the node. A restored value is not current before servers have confirmed it. An
    /// ensemble's server may still be behind its leader; see [`Client::sync`](crate::Client::sync).
    pub fn is_current(&self) -> bool {
        let client = &self.place.client;
        self.session == client.session_id()
            && client.contact() == Contact::Connected
            && self.watcher.as_ref().is_some_and(Watcher::is_armed)
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
    /// [`ClientBuilder::connect_later`](crate::ClientBuilder::connect_later).
    ///
    /// The restored value may be old: it is what this program was told last, on this machine. It is no
    /// permission to do what another program may have been told not to do since.
    ///
    /// # Errors
    /// Why nothing was restored although there is a file. Following goes on without it; whether values
    /// are kept in it nevertheless, the error says.
    ///
    /// # Cancel safety
    /// Safe; nothing is kept.
    pub async fn keep_in(&mut self, file: impl AsRef<Path>) -> Result<bool, LastGoodError> {
        let (file, is_first) = (file.as_ref(), self.is_first());
        let Self { keeping, place, codec, latest, .. } = self;
        keeping.begin(file, place, &**codec, latest, is_first).await
    }

    /// Whether nothing was told yet.
    pub(super) fn is_first(&self) -> bool {
        self.told == Told::default()
    }

    /// How often servers had lost their data when what was told last was seen.
    pub(super) fn rewinds(&self) -> u64 {
        self.rewinds
    }

    /// Waits until the last good value is [kept](ValueChanges::keep_in); at once if none is to be.
    ///
    /// # Errors
    /// Why it is not. The next value is tried again.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn kept(&self) -> Result<(), LastGoodError> {
        self.keeping.kept().await
    }

    /// Waits until the value is another one than told last; the first time, tells what it is now.
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
        loop {
            if let Some(watcher) = &mut self.watcher {
                // The end of the session ends the watch too.
                let _ = watcher.changed().await;
                self.watcher = None;
            }

            reachable(&self.place.client).await;
            match self.look().await {
                Ok(Some(change)) => return Ok(change),
                Ok(None) => {}
                Err(error) if error.is_unreachable() => {}
                Err(error) => self.place.again(error).await?,
            }
        }
    }

    /// Looks at the node, with a watch; says what is new.
    async fn look(&mut self) -> Result<Option<ValueChange<T>>, Error>
    where
        T: Clone,
    {
        let Place { client, path } = &self.place;
        let mut session = client.session_id();
        if session == SessionId::NONE || session != self.session {
            // The server of another session may be behind the one of the last.
            client.sync(path).await?;
            session = client.session_id();
        }

        let found = present(client.data_watched(path).await)?;
        match found {
            // That was another session, in which nothing has been synced.
            _ if client.session_id() != session => Ok(None),
            Some(((data, stat), watcher)) => {
                (self.session, self.watcher) = (session, Some(watcher));
                self.note_rewinds(self.place.rewinds());
                Ok(self.found(&data, stat.into()))
            }
            None => match client.exists_watched(path).await? {
                // It was created in between.
                (Some(_), _) => Ok(None),
                (None, _) if client.session_id() != session => Ok(None),
                (None, watcher) => {
                    (self.session, self.watcher) = (session, Some(watcher));
                    self.keeping.settle(None);
                    let known = std::mem::replace(&mut self.told.absent, true);
                    Ok((!known).then_some(ValueChange::Absent))
                }
            },
        }
    }

    /// When servers were wiped or set back, nothing that was seen is newer than what they show.
    fn note_rewinds(&mut self, rewinds: u64) {
        if std::mem::replace(&mut self.rewinds, rewinds) != rewinds {
            self.told.newest = None;
        }
    }

    fn found(&mut self, data: &[u8], revision: Revision) -> Option<ValueChange<T>>
    where
        T: Clone,
    {
        if self.told.newest.is_some_and(|newest| revision.mzxid <= newest) {
            return None;
        }

        self.told = Told { newest: Some(revision.mzxid), absent: false };
        if self.keeping.settle(Some((revision, data))) {
            return None;
        }

        Some(match self.codec.decode(data) {
            Ok(value) => {
                self.keeping.keep(revision, || Bytes::copy_from_slice(data));
                let now = Versioned { value, revision };
                self.latest = Some(now.clone());
                ValueChange::Set(now)
            }
            Err(error) => ValueChange::Invalid { revision, reason: error.to_string() },
        })
    }
}

impl<T: fmt::Debug, C> fmt::Debug for ValueChanges<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ValueChanges");
        shown.field("path", &self.place.path).field("latest", &self.latest).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_client::Client;

    use super::*;

    /// What follows a value, and has not reached a server.
    fn changes() -> ValueChanges<u32> {
        let client = Client::builder().connect_later("127.0.0.1:1").unwrap();
        ValueChanges::new(Place::new(&client, "/limit").unwrap(), Arc::new(Json))
    }

    fn revision(zxid: i64) -> Revision {
        Revision { czxid: Zxid(zxid), mzxid: Zxid(zxid), version: 0 }
    }

    fn set(value: u32, revision: Revision) -> Option<ValueChange<u32>> {
        Some(ValueChange::Set(Versioned { value, revision }))
    }

    /// But what a server shows that is only behind is told by nobody.
    #[tokio::test]
    async fn after_servers_have_lost_their_data_a_lower_number_is_told() {
        let mut changes = changes();
        assert_eq!(changes.found(b"1", revision(50)), set(1, revision(50)));
        changes.note_rewinds(0);
        assert_eq!(changes.found(b"2", revision(3)), None, "it is behind");
        changes.note_rewinds(1);
        assert_eq!(changes.found(b"2", revision(3)), set(2, revision(3)));
        changes.note_rewinds(1);
        assert_eq!(changes.found(b"1", revision(2)), None, "forgotten once");
    }

    #[tokio::test]
    async fn a_restored_value_hides_no_other_with_the_same_revision() {
        for (data, wanted) in [(b"1", None), (b"2", set(2, revision(3)))] {
            let mut changes = changes();
            changes.keeping.restored = Some((revision(3), Bytes::from_static(b"1")));
            assert_eq!(changes.found(data, revision(3)), wanted);
        }
    }
}
