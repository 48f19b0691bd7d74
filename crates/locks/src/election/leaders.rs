//! Observers of an election.

use std::collections::VecDeque;
use std::sync::Arc;

use lockkeeper_client::horizon::{BEHIND_PAUSE, Horizon};
use lockkeeper_client::retry::{reachable, retry_pause};
use lockkeeper_client::{
    Client, Error, ErrorCode, EventKind, Listing, WatchEvent, Watcher, ZnodePath, Zxid,
};
use serde::{Deserialize, Serialize};

use crate::admin::inspect::{KnownTree, LockQueue};
use crate::contender::order::{Foreign, WaitQueue};
use crate::contender::queue_settings::QueueSettings;
use crate::election::record::{LeaderRecord, record_path};
use crate::error::ObserveError;
use crate::guard::revocation::REQUEST;
use crate::profile::Kind;
use crate::token::FencingToken;

/// How many candidates in a row may be found gone before the candidates are listed again. After that many, others
/// behind them have probably gone too.
const MAX_MISSES: u32 = 2;

/// The leader of an election.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Leader {
    /// The token of its [`Leadership`](crate::Leadership), which is larger for every later leader. The token of
    /// a Curator or kazoo program is derived in the same way.
    pub token: FencingToken,
    /// The id of the candidate. Empty if the observer has not seen it before a request to resign replaced
    /// it in the node.
    pub id: String,
    /// The value that the leader has proclaimed, if any.
    pub value: Option<String>,
    /// The leader's node.
    pub node: ZnodePath,
}

impl LockQueue {
    /// Whether this is the queue of an election, as far as the tree shows: its candidates have the names of
    /// Curator's `LeaderLatch`, or its leader has proclaimed a value. In the other layouts an election looks
    /// like a mutex.
    pub fn is_election(&self, tree: &impl KnownTree) -> bool {
        let is_latch = self.entries.first().is_some_and(|first| first.kind == Kind::Latch);
        is_latch || tree.node(record_path(&self.path).as_str()).is_some()
    }
}

impl Leader {
    /// The leader of the election with this queue, read from the same tree as the queue. `None` if there is no
    /// candidate. No I/O.
    pub fn in_tree(tree: &impl KnownTree, election: &LockQueue) -> Option<Self> {
        let first = election.holders().next()?;
        let record = tree.node(record_path(&election.path).as_str());
        let record = record.and_then(|(data, _)| LeaderRecord::read(&data));
        let id = match first.data.starts_with(REQUEST) {
            true => String::new(),
            false => String::from_utf8_lossy(&first.data).into_owned(),
        };
        Some(Self {
            token: first.token,
            id,
            value: record.and_then(|it| it.value_of(first.node.name()).map(str::to_owned)),
            node: first.node.clone(),
        })
    }
}

/// An observer of an [`Election`](crate::Election).
///
/// It watches only the leader's node and remembers the queue, so a change of leader costs one event and
/// one round trip, however many candidates there are. It costs up to four round trips, with a listing, if candidates
/// behind the leader had left before. While there is no leader, it watches for the first
/// candidate. It never shows an older leader after a newer one, even after a new session on a server
/// that lags behind. Dropping it removes its watches.
#[derive(Debug)]
pub struct Leaders {
    client: Client,
    settings: Arc<QueueSettings>,
    record_path: ZnodePath,
    /// The known candidates, in order. The first ones may be gone.
    queue: VecDeque<ZnodePath>,
    /// The last seen change of the queue. A server that shows an older one lags behind, or the servers have another
    /// history. `newest_leader` and `newest_value` are the same for the newest leader's node and the last value.
    newest: Zxid,
    newest_leader: Zxid,
    newest_value: Zxid,
    first: FirstPlace,
    /// The record that was read, and the watch on it; `None` if it must be read again.
    record: Option<(Option<LeaderRecord>, Watcher)>,
    current: Option<Leader>,
}

/// What is known about the first place.
#[derive(Debug)]
enum FirstPlace {
    /// It must be read again.
    Unknown,
    /// A candidate has it.
    Taken { token: FencingToken, id: String, node: ZnodePath, watcher: Watcher },
    /// It is vacant. The watch is for the first candidate.
    Vacant(Watcher),
}

/// Why an update was interrupted.
enum Interrupted {
    Failed(ObserveError),
    Request(Error),
    /// The server shows an older state than was seen before.
    Behind,
}

impl From<Error> for Interrupted {
    fn from(error: Error) -> Self {
        Self::Request(error)
    }
}

#[cfg(feature = "stream")]
impl lockkeeper_client::Updates for Leaders {
    type Update = Option<Leader>;
    type Error = ObserveError;

    async fn next_update(&mut self) -> Result<Option<Leader>, ObserveError> {
        self.next().await
    }
}

impl Leaders {
    pub(super) async fn open(
        client: &Client,
        settings: Arc<QueueSettings>,
        record: &ZnodePath,
    ) -> Result<Self, ObserveError> {
        let mut leaders = Self {
            client: client.clone(),
            settings,
            record_path: record.clone(),
            queue: VecDeque::new(),
            newest: Zxid(0),
            newest_leader: Zxid(0),
            newest_value: Zxid(0),
            first: FirstPlace::Unknown,
            record: None,
            current: None,
        };

        leaders.look().await?;
        Ok(leaders)
    }

    /// The leader as last seen, also without a connection; `None` if there was no leader. Makes no request.
    pub fn current(&self) -> Option<&Leader> {
        self.current.as_ref()
    }

    /// Waits for a change: another leader, another value, or no leader (`None`). Changes in quick succession
    /// may be reported as one. Costs an event and one round trip, or [a few more](Leaders).
    ///
    /// # Errors
    /// Same as [`Election::observe`](crate::Election::observe).
    ///
    /// # Session loss
    /// Continues with the next session, and reports only what has changed.
    ///
    /// # Cancel safety
    /// Safe: no change is lost.
    pub async fn next(&mut self) -> Result<Option<Leader>, ObserveError> {
        loop {
            if matches!(self.first, FirstPlace::Unknown) || self.record.is_none() {
                let before = self.current.clone();
                self.look().await?;
                if self.current != before {
                    return Ok(self.current.clone());
                }
            }
            self.changed().await;
        }
    }

    /// Waits for an event, and notes what must be read again.
    async fn changed(&mut self) {
        let Some((_, record)) = &mut self.record else { return };
        let (first, is_taken) = match &mut self.first {
            FirstPlace::Unknown => return,
            FirstPlace::Taken { watcher, .. } => (watcher, true),
            FirstPlace::Vacant(watcher) => (watcher, false),
        };

        let (event, of_record) = tokio::select! {
            // A fixed order makes simulations repeatable.
            biased;
            event = first.changed() => (event, false),
            event = record.changed() => (event, true),
        };

        match event {
            // All watches end with their session, and anything may have changed since.
            Err(_) => {
                (self.first, self.record) = (FirstPlace::Unknown, None);
                self.queue.clear();
            }
            Ok(_) if of_record => self.record = None,
            Ok(WatchEvent { kind: EventKind::NodeDeleted, .. }) if is_taken => {
                self.queue.pop_front();
                self.first = FirstPlace::Unknown;
            }
            Ok(_) => self.first = FirstPlace::Unknown,
        }
    }

    /// Reads what must be read again, and retries after lost connections and sessions.
    async fn look(&mut self) -> Result<(), ObserveError> {
        loop {
            match self.look_once().await {
                Ok(()) => break,
                Err(Interrupted::Failed(error)) => return Err(error),
                Err(Interrupted::Behind) => self.catch_up().await,
                Err(Interrupted::Request(error)) => self.outlast(error).await?,
            }
        }

        self.current = match &self.first {
            FirstPlace::Taken { token, id, node, .. } => {
                let record = self.record.as_ref().and_then(|(record, _)| record.as_ref());
                let value = record.and_then(|record| record.value_of(node.name()));
                Some(Leader {
                    token: *token,
                    id: id.clone(),
                    value: value.map(str::to_owned),
                    node: node.clone(),
                })
            }
            FirstPlace::Vacant(_) | FirstPlace::Unknown => None,
        };
        Ok(())
    }

    async fn look_once(&mut self) -> Result<(), Interrupted> {
        // The first place is read first: a value that is read later is not older than the leader.
        let mut misses = 0;
        while matches!(self.first, FirstPlace::Unknown) {
            match self.queue.front().cloned() {
                Some(node) if misses < MAX_MISSES => {
                    self.look_at(node).await?;
                    misses += 1;
                }
                _ => {
                    self.list().await?;
                    misses = 0;
                }
            }
        }

        if self.record.is_none() {
            let record = self.read_record().await?;
            self.record = Some(record);
        }
        Ok(())
    }

    /// Reads the first known candidate.
    async fn look_at(&mut self, node: ZnodePath) -> Result<(), Interrupted> {
        let horizon = Horizon::of(&self.client);
        match self.client.data_watched(&node).await {
            Ok(((data, stat), watcher)) => {
                self.follows(horizon, self.newest_leader, stat.czxid)?;
                if !self.settings.profile.is_contender(&stat) {
                    let path = self.settings.path.clone();
                    return Err(Interrupted::Failed(ObserveError::NotEphemeral { path, node }));
                }

                let token = FencingToken::new(stat.czxid);
                // A request to resign is not an id. Lockkeeper candidates write their id
                // back.
                let id = match &self.current {
                    Some(known) if known.node == node && !known.id.is_empty() => known.id.clone(),
                    _ if data == REQUEST => String::new(),
                    _ => String::from_utf8_lossy(&data).into_owned(),
                };

                self.newest_leader = stat.czxid;
                self.first = FirstPlace::Taken { token, id, node, watcher };
            }
            Err(error) if error.code() == Some(ErrorCode::NoNode) => {
                self.queue.pop_front();
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Lists the candidates. If there are none, watches for the first one.
    async fn list(&mut self) -> Result<(), Interrupted> {
        let path = self.settings.path.clone();
        self.queue.clear();
        let horizon = Horizon::of(&self.client);
        match self.client.children(&path).await {
            Ok(listing) => {
                if self.remember(horizon, listing)? {
                    return Ok(());
                }
            }
            Err(error) if error.code() == Some(ErrorCode::NoNode) => {}
            Err(error) => return Err(error.into()),
        }

        match self.client.children_watched(&path).await {
            Ok((listing, watcher)) => {
                if !self.remember(horizon, listing)? {
                    self.first = FirstPlace::Vacant(watcher);
                }
            }
            Err(error) if error.code() == Some(ErrorCode::NoNode) => {
                // A server that lags behind may not know the node yet.
                if self.newest > Zxid(0) {
                    self.client.sync(&path).await?;
                }
                let (found, watcher) = self.client.exists_watched(&path).await?;
                if found.is_none() {
                    self.first = FirstPlace::Vacant(watcher);
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Whether there are candidates.
    fn remember(&mut self, horizon: Horizon, (names, stat): Listing) -> Result<bool, Interrupted> {
        self.follows(horizon, self.newest, stat.pzxid)?;
        self.newest = stat.pzxid;
        self.queue = candidates(names, &self.settings).map_err(Interrupted::Failed)?;
        Ok(!self.queue.is_empty())
    }

    async fn read_record(&mut self) -> Result<(Option<LeaderRecord>, Watcher), Interrupted> {
        loop {
            let horizon = Horizon::of(&self.client);
            match self.client.data_watched(&self.record_path).await {
                Ok(((data, stat), watcher)) => {
                    self.follows(horizon, self.newest_value, stat.mzxid)?;
                    self.newest_value = stat.mzxid;
                    return Ok((LeaderRecord::read(&data), watcher));
                }
                Err(error) if error.code() == Some(ErrorCode::NoNode) => {}
                Err(error) => return Err(error.into()),
            }

            // A server that lags behind may not know the node yet.
            if self.newest_value > Zxid(0) {
                self.client.sync(&self.record_path).await?;
            }
            let (found, watcher) = self.client.exists_watched(&self.record_path).await?;
            if found.is_none() {
                return Ok((None, watcher));
            }
        }
    }

    /// Fails if the state may be older than what was seen.
    fn follows(&self, horizon: Horizon, seen: Zxid, now: Zxid) -> Result<(), Interrupted> {
        match now < seen && horizon.is_behind(&self.client, seen) {
            true => Err(Interrupted::Behind),
            false => Ok(()),
        }
    }

    /// Waits after a server has shown an older state than was seen, until it has caught up or the client has
    /// another server.
    async fn catch_up(&mut self) {
        self.queue.clear();
        (self.first, self.record) = (FirstPlace::Unknown, None);
        // The next read shows the result.
        let _ = self.client.sync(&self.settings.path).await;
        tokio::time::sleep(BEHIND_PAUSE).await;
    }

    /// Returns when a failed request may be repeated.
    async fn outlast(&mut self, error: Error) -> Result<(), ObserveError> {
        if error.is_session_expired() {
            self.queue.clear();
            (self.first, self.record) = (FirstPlace::Unknown, None);
            return Ok(());
        }
        if error.is_unreachable() {
            reachable(&self.client).await;
            return Ok(());
        }
        let path = &self.settings.path;
        let failed = |source| ObserveError::Client { path: path.clone(), source };
        retry_pause(error).await.map_err(failed)
    }
}

/// The nodes of the candidates, the first one first.
///
/// # Errors
/// If there are nodes that are not candidates, or names that are not valid.
fn candidates(
    names: Vec<String>,
    settings: &QueueSettings,
) -> Result<VecDeque<ZnodePath>, ObserveError> {
    let QueueSettings { path, profile, kinds, .. } = settings;
    let foreign = |names| ObserveError::Foreign { path: path.clone(), names };
    let queue = WaitQueue::read(names, *profile, kinds).map_err(|Foreign(names)| foreign(names))?;
    let nodes = queue
        .places()
        .iter()
        .map(|place| path.child(&place.name).map_err(|_| foreign(vec![place.name.clone()])));
    nodes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::election::ElectionLayout;

    /// A server may send any list.
    #[test]
    fn a_name_that_no_node_can_have_is_an_error() {
        let path = ZnodePath::new("/election").unwrap();
        let settings = ElectionLayout::default().settings(path.clone());
        let good = "a-latch-0000000001";
        let listed = candidates(vec![good.to_owned()], &settings).unwrap();
        assert_eq!(listed, [path.child(good).unwrap()]);
        for bad in ["a/b-latch-0000000002", "a\0-latch-0000000002"] {
            let refused = candidates(vec![good.to_owned(), bad.to_owned()], &settings);
            let Err(ObserveError::Foreign { names, .. }) = refused else { panic!("{refused:?}") };
            assert_eq!(names, [bad]);
        }
    }

    #[test]
    fn a_leader_comes_back_from_json() {
        let leader = Leader {
            token: "7".parse().unwrap(),
            id: "one".to_owned(),
            value: None,
            node: ZnodePath::new("/leader/one").unwrap(),
        };
        let json = serde_json::to_string(&leader).unwrap();
        assert_eq!(serde_json::from_str::<Leader>(&json).unwrap(), leader);
    }
}
