//! Following a shared value.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use lockkeeper_client::{Contact, Error, SessionId, Stat, Watcher, Zxid, present};

use crate::values::codec::{Codec, Json};
use crate::values::error::ValueError;
use crate::values::keeping::Keeping;
use crate::values::last_good::LastGoodError;
use crate::values::place::Place;
use crate::values::revision::{Revision, Versioned};
use lockkeeper_client::horizon::{BEHIND_PAUSE, Horizon};
use lockkeeper_client::retry::reachable;

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
    /// The session of the last look.
    session: SessionId,
    /// Of the state that was seen.
    watcher: Option<Watcher>,
    keeping: Keeping,
}

/// What was told last, if anything was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Told {
    state: Option<State>,
    /// The transaction after which it was so: a server that is behind it may show an older state.
    as_of: Zxid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Absent,
    /// The transaction that wrote the node, and when. Servers that were wiped may give its number to
    /// another one.
    Written(Zxid, i64),
}

impl Told {
    /// Whether the node may have come from this state, on a server that is behind, to what was told.
    fn may_follow(self, state: State) -> bool {
        let is_later = matches!(state, State::Written(zxid, _) if zxid > self.as_of);
        self.state.is_some_and(|told| told != state) && !is_later
    }
}

impl State {
    fn of(stat: &Stat) -> Self {
        Self::Written(stat.mzxid, stat.mtime)
    }
}

impl<T, C: Codec<T>> ValueChanges<T, C> {
    pub(super) fn new(place: Place, codec: Arc<C>) -> Self {
        let (told, session, watcher) = (Told::default(), SessionId::NONE, None);
        let (latest, keeping) = (None, Keeping::default());
        Self { place, codec, latest, told, session, watcher, keeping }
    }

    /// The last value that could be read, of those that [`ValueChanges::next`] has told, or the
    /// [restored](ValueChanges::keep_in) one. It stays when the node is deleted, when somebody writes what
    /// cannot be read, and without a connection.
    pub fn latest(&self) -> Option<&Versioned<T>> {
        self.latest.as_ref()
    }

    /// Whether nothing is known that was not told: there is a connection, and no change since the last
    /// look at the node. A restored value is not current before servers have confirmed it. An
    /// ensemble's server may still be behind its leader; see [`Client::sync`](lockkeeper_client::Client::sync).
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
        let (file, is_first) = (file.as_ref(), self.is_first());
        let Self { keeping, place, codec, latest, .. } = self;
        keeping.begin(file, place, &**codec, latest, is_first).await
    }

    /// Whether nothing was told yet.
    pub(super) fn is_first(&self) -> bool {
        self.told.state.is_none()
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
        self.keeping.kept().await
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
        loop {
            if let Some(watcher) = &mut self.watcher {
                // The end of the session ends the watch too.
                let _ = watcher.changed().await;
                self.watcher = None;
            }

            if let Some(change) = self.looked().await? {
                return Ok(change);
            }
        }
    }

    /// What is new, if anything is: makes no request unless something may be, and waits for no change.
    pub(super) async fn newer(&mut self) -> Result<Option<ValueChange<T>>, ValueError>
    where
        T: Clone,
    {
        while !self.is_current() {
            self.watcher = None;
            if let Some(change) = self.looked().await? {
                return Ok(Some(change));
            }
        }
        Ok(None)
    }

    /// Looks at the node when servers can be reached. Says what is new.
    async fn looked(&mut self) -> Result<Option<ValueChange<T>>, ValueError>
    where
        T: Clone,
    {
        reachable(&self.place.client).await;
        match self.look().await {
            Ok(change) => return Ok(change),
            Err(error) if error.is_unreachable() => {}
            Err(error) => self.place.again(error).await?,
        }
        Ok(None)
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

        let horizon = Horizon::of(client);
        let (found, watcher) = match present(client.data_watched(path).await)? {
            Some((found, watcher)) => (Some(found), watcher),
            None => match client.exists_watched(path).await? {
                // It was created in between.
                (Some(_), _) => return Ok(None),
                (None, watcher) => (None, watcher),
            },
        };
        if client.session_id() != session {
            // That was another session, in which nothing has been synced.
            return Ok(None);
        }

        let state = found.as_ref().map_or(State::Absent, |(_, stat)| State::of(stat));
        if self.told.may_follow(state) && horizon.is_behind(client, self.told.as_of) {
            self.session = SessionId::NONE;
            tokio::time::sleep(BEHIND_PAUSE).await;
            return Ok(None);
        }
        (self.session, self.watcher) = (session, Some(watcher));
        Ok(self.found(state, found))
    }

    /// Takes what a server shows that is not behind what was told.
    fn found(&mut self, state: State, found: Option<(Bytes, Stat)>) -> Option<ValueChange<T>>
    where
        T: Clone,
    {
        let as_of = match state {
            State::Absent => self.place.client.last_zxid(),
            State::Written(zxid, _) => zxid,
        };
        let before = std::mem::replace(&mut self.told, Told { state: Some(state), as_of });
        if before.state == Some(state) {
            return None;
        }

        let Some((data, stat)) = found else {
            self.keeping.settle(None);
            return Some(ValueChange::Absent);
        };
        let revision = Revision::from(stat);
        if self.keeping.settle(Some((revision, &data))) {
            return None;
        }
        Some(match self.codec.decode(&data) {
            Ok(value) => {
                self.keeping.keep(revision, || Bytes::copy_from_slice(&data));
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

    fn state(data: &'static str, zxid: i64, mtime: i64) -> (State, Option<(Bytes, Stat)>) {
        let stat = Stat { mtime, ..Stat::of_new(Zxid(zxid), SessionId::NONE) };
        (State::of(&stat), Some((Bytes::from_static(data.as_bytes()), stat)))
    }

    fn set(value: u32, zxid: i64) -> Option<ValueChange<u32>> {
        let revision = Revision { czxid: Zxid(zxid), mzxid: Zxid(zxid), version: 0 };
        Some(ValueChange::Set(Versioned { value, revision }))
    }

    fn told(
        changes: &mut ValueChanges<u32>,
        (state, found): (State, Option<(Bytes, Stat)>),
    ) -> Option<ValueChange<u32>> {
        changes.found(state, found)
    }

    /// Servers that were wiped, and are set up by the same steps, give the same numbers.
    #[tokio::test]
    async fn a_state_with_the_number_of_another_is_told() {
        let mut changes = changes();
        assert_eq!(told(&mut changes, state("1", 50, 7)), set(1, 50));
        assert_eq!(told(&mut changes, state("1", 50, 7)), None);
        assert_eq!(told(&mut changes, state("2", 50, 8)), set(2, 50));
    }

    #[tokio::test]
    async fn only_what_may_be_older_than_what_was_told_may_be_behind() {
        let mut changes = changes();
        let may_be_behind = |changes: &ValueChanges<u32>, state| changes.told.may_follow(state);
        assert!(!may_be_behind(&changes, State::Absent), "nothing was told");
        told(&mut changes, state("1", 50, 7));
        assert!(!may_be_behind(&changes, State::Written(Zxid(50), 7)), "it was told");
        assert!(!may_be_behind(&changes, State::Written(Zxid(51), 7)));
        assert!(may_be_behind(&changes, State::Written(Zxid(49), 6)));
        assert!(may_be_behind(&changes, State::Absent));
        assert_eq!(told(&mut changes, (State::Absent, None)), Some(ValueChange::Absent));
        assert_eq!(told(&mut changes, (State::Absent, None)), None);
    }

    #[tokio::test]
    async fn a_restored_value_hides_no_other_with_the_same_revision() {
        for (data, wanted) in [("1", None), ("2", set(2, 3))] {
            let mut changes = changes();
            let Some(ValueChange::Set(now)) = set(1, 3) else { unreachable!() };
            changes.keeping.restored = Some((now.revision, Bytes::from_static(b"1")));
            assert_eq!(told(&mut changes, state(data, 3, 0)), wanted);
        }
    }
}
