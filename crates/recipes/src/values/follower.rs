//! The common part of [`ValueChanges`](crate::ValueChanges) and [`Editions`](crate::Editions): watching a node and
//! decoding its content.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use lockkeeper_client::horizon::{BEHIND_PAUSE, Horizon};
use lockkeeper_client::retry::reachable;
use lockkeeper_client::{Contact, Error, SessionId, Stat, Watcher, Zxid, present};

use crate::values::codec::Codec;
use crate::values::editions::{Content, edition};
use crate::values::error::ValueError;
use crate::values::last_good::{LastGood, LastGoodError};
use crate::values::place::Place;
use crate::values::revision::{Revision, Versioned};

/// A change of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueChange<T> {
    /// The value is now this one.
    Set(Versioned<T>),
    /// Unreadable data was written. [`ValueChanges::latest`](crate::ValueChanges::latest) still returns the last
    /// good value.
    Invalid {
        /// The state of the node.
        revision: Revision,
        /// Why it cannot be read.
        reason: String,
    },
    /// The node is missing.
    Absent,
}

/// The content of the watched node.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// The value itself.
    Value,
    /// The manifest of a publication.
    Manifest,
}

/// Watches a node, over lost connections and ended sessions.
pub(super) struct ValueFollower<T, C> {
    place: Place,
    codec: Arc<C>,
    form: Form,
    told: ReportedState,
    /// The session of the last read.
    session: SessionId,
    /// The watch on the state that was read.
    watcher: Option<Watcher>,
    /// A state that was read and not returned yet, because the future may be dropped before.
    pending: Option<NodeData>,
    latest: Option<Versioned<T>>,
    /// Whether the last change returned was `Absent`.
    is_absent: bool,
    last_good: LastGood,
}

/// The data and stat of a node; `None` if it is missing.
type NodeData = Option<(Bytes, Stat)>;

/// The last state that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ReportedState {
    state: Option<NodeState>,
    /// A transaction after which the node had this state: a server that lags behind it may show an older one.
    as_of: Zxid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeState {
    Absent,
    /// The transaction that wrote the node, and when. Servers that were wiped may use the same zxid for another
    /// transaction.
    Written(Zxid, i64),
}

impl ReportedState {
    /// Whether the node may have changed from `state`, on a lagging server, to the recorded one.
    fn may_follow(self, state: NodeState) -> bool {
        let is_later = matches!(state, NodeState::Written(zxid, _) if zxid > self.as_of);
        self.state.is_some_and(|told| told != state) && !is_later
    }
}

impl<T, C> ValueFollower<T, C> {
    pub(super) fn new(place: Place, codec: Arc<C>, form: Form) -> Self {
        Self {
            place,
            codec,
            form,
            told: ReportedState::default(),
            session: SessionId::NONE,
            watcher: None,
            pending: None,
            latest: None,
            is_absent: false,
            last_good: LastGood::default(),
        }
    }

    pub(super) fn latest(&self) -> Option<&Versioned<T>> {
        self.latest.as_ref()
    }

    pub(super) fn is_current(&self) -> bool {
        self.pending.is_none() && self.is_fresh()
    }

    /// Whether the last read shows the current state, as far as known.
    fn is_fresh(&self) -> bool {
        let client = &self.place.client;
        self.session == client.session_id()
            && client.contact() == Contact::Connected
            && self.watcher.as_ref().is_some_and(Watcher::is_armed)
    }

    pub(super) async fn keep_in(&mut self, file: &Path) -> Result<bool, LastGoodError>
    where
        C: Codec<T>,
    {
        let (codec, is_first) = (&*self.codec, self.told.state.is_none());
        let restored = self.last_good.keep_in(file, &self.place, codec, is_first).await?;
        let is_restored = restored.is_some();
        self.latest = restored.or(self.latest.take());
        Ok(is_restored)
    }

    pub(super) async fn kept(&self) -> Result<(), LastGoodError> {
        self.last_good.kept().await
    }

    /// Reads the node when servers can be reached. Returns whether its state is new.
    async fn look(&mut self) -> Result<bool, ValueError> {
        reachable(&self.place.client).await;
        match self.try_look().await {
            Ok(is_news) => return Ok(is_news),
            Err(error) if error.is_unreachable() => {}
            Err(error) => self.place.again(error).await?,
        }
        Ok(false)
    }

    /// Reads the node, with a watch.
    async fn try_look(&mut self) -> Result<bool, Error> {
        let Place { client, path } = &self.place;
        let mut session = client.session_id();
        if session == SessionId::NONE || session != self.session {
            // The server of a new session may lag behind the one of the last session.
            client.sync(path).await?;
            session = client.session_id();
        }

        let horizon = Horizon::of(client);
        let (seen, watcher) = match present(client.data_watched(path).await)? {
            Some((found, watcher)) => (Some(found), watcher),
            None => match client.exists_watched(path).await? {
                // The node was created in between.
                (Some(_), _) => return Ok(false),
                (None, watcher) => (None, watcher),
            },
        };
        if client.session_id() != session {
            // The session has changed since the `sync`.
            return Ok(false);
        }

        let state = seen
            .as_ref()
            .map_or(NodeState::Absent, |(_, stat)| NodeState::Written(stat.mzxid, stat.mtime));
        if self.told.may_follow(state) && horizon.is_behind(client, self.told.as_of) {
            self.session = SessionId::NONE;
            tokio::time::sleep(BEHIND_PAUSE).await;
            return Ok(false);
        }
        (self.session, self.watcher) = (session, Some(watcher));
        Ok(self.take(state, seen))
    }

    /// Accepts a state, unless its server lags behind the recorded one. Returns whether the state is new.
    fn take(&mut self, state: NodeState, seen: NodeData) -> bool {
        let as_of = match state {
            NodeState::Absent => self.place.client.last_zxid(),
            NodeState::Written(zxid, _) => zxid,
        };
        let before = std::mem::replace(&mut self.told, ReportedState { state: Some(state), as_of });
        let is_news = before.state != Some(state);
        if is_news {
            self.pending = Some(seen);
        }
        is_news
    }
}

impl<T: Clone, C: Codec<T>> ValueFollower<T, C> {
    pub(super) async fn next(&mut self) -> Result<ValueChange<T>, ValueError> {
        loop {
            if self.pending.is_none() {
                if let Some(watcher) = &mut self.watcher {
                    // The end of the session ends the watch too.
                    let _ = watcher.changed().await;
                    self.watcher = None;
                }
                self.look().await?;
            } else {
                // It could not be read, or its caller was dropped. A newer state may be readable.
                while !self.is_fresh() && !self.look().await? {}
            }

            let Some(seen) = &self.pending else { continue };
            let revision = seen.as_ref().map_or(Revision::NONE, |(_, stat)| (*stat).into());
            let content = read(&self.place, &*self.codec, self.form, seen).await?;
            self.pending = None;
            if let Some(change) = content.and_then(|content| self.tell(revision, content)) {
                return Ok(change);
            }
        }
    }

    /// The change to return for a content, if it is new.
    fn tell(&mut self, revision: Revision, content: Content<T>) -> Option<ValueChange<T>> {
        let body = match &content {
            Content::Value(_, body) => Some((revision, body)),
            _ => None,
        };
        if self.last_good.is_restored(body) {
            return None;
        }

        let was_absent = std::mem::replace(&mut self.is_absent, matches!(content, Content::Absent));
        match content {
            Content::Absent => (!was_absent).then_some(ValueChange::Absent),
            Content::Invalid(reason) => Some(ValueChange::Invalid { revision, reason }),
            Content::Value(value, body) => {
                self.last_good.keep(revision, &body);
                let now = Versioned { value, revision };
                self.latest = Some(now.clone());
                Some(ValueChange::Set(now))
            }
        }
    }
}

/// Decodes the node's content; `None` if a newer one exists.
async fn read<T>(
    place: &Place,
    codec: &impl Codec<T>,
    form: Form,
    seen: &NodeData,
) -> Result<Option<Content<T>>, ValueError> {
    let Some(found) = seen else { return Ok(Some(Content::Absent)) };
    match form {
        Form::Value => Ok(Some(Content::decoded(codec, found.0.clone()))),
        Form::Manifest => match edition(place, codec, found).await {
            // It never changes, so another try cannot read it.
            Err(ValueError::Client { source, .. }) if source.answer_too_long().is_some() => {
                Ok(Some(Content::Invalid(source.to_string())))
            }
            content => content,
        },
    }
}

impl<T: fmt::Debug, C> ValueFollower<T, C> {
    pub(super) fn debug(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct(name);
        shown.field("path", &self.place.path).field("latest", &self.latest).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_client::Client;

    use super::*;
    use crate::Json;

    /// A follower that has not reached a server.
    fn follower() -> ValueFollower<u32, Json> {
        let client = Client::builder().connect_later("127.0.0.1:1").unwrap();
        ValueFollower::new(Place::new(&client, "/limit").unwrap(), Arc::new(Json), Form::Value)
    }

    fn written(zxid: i64, mtime: i64) -> NodeState {
        NodeState::Written(Zxid(zxid), mtime)
    }

    /// Servers that were wiped and set up again by the same steps use the same zxids.
    #[tokio::test]
    async fn a_state_with_the_number_of_another_is_told() {
        let mut follower = follower();
        let is_news = [written(50, 7), written(50, 7), written(50, 8)]
            .map(|state| follower.take(state, None));
        assert_eq!(is_news, [true, false, true]);
    }

    #[tokio::test]
    async fn only_what_may_be_older_than_what_was_told_may_be_behind() {
        let mut follower = follower();
        assert!(!follower.told.may_follow(NodeState::Absent), "nothing was told");
        follower.take(written(50, 7), None);
        let may_be_behind = [written(50, 7), written(51, 7), written(49, 6), NodeState::Absent]
            .map(|state| follower.told.may_follow(state));
        assert_eq!(may_be_behind, [false, false, true, true]);
        assert!(follower.take(NodeState::Absent, None));
        assert!(!follower.take(NodeState::Absent, None));
    }

    #[tokio::test]
    async fn a_restored_value_hides_no_other_with_the_same_revision() {
        let revision = Revision { czxid: Zxid(3), mzxid: Zxid(3), version: 0 };
        for (data, value) in [("1", 1), ("2", 2)] {
            let mut follower = follower();
            follower.last_good.restored = Some((revision, Bytes::from_static(b"1")));
            let told = follower.tell(revision, Content::decoded(&Json, data.into()));
            let news = ValueChange::Set(Versioned { value, revision });
            assert_eq!(told, (value != 1).then_some(news));
        }
    }
}
